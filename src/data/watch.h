// SPDX-License-Identifier: MIT
// A thread that reads files, as seen by whoever waits for it: a call into a dead file server may
// never come back, so it can be seen how long a reader has been inside one, and a reader can be
// left behind in it.
// Floor 3.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

namespace vt {

// Shared by one reader and its owner, and must outlive both. Invariants:
//  1. since_ is 0 outside of calls, the monotonic time of entry (ns) inside one, kLeft for ever
//     once the owner left the reader behind;
//  2. only a reader inside a call can be left behind; when the call comes back, leave() throws Left
//     and the reader must end without touching anything it does not own itself.
class ReadWatch {
  public:
    struct Left {};  // no std::exception: nobody mistakes it for an error of the file

    // What the owner sees of a call.
    struct Waiting {
        int64_t since = 0;   // tells calls apart
        double seconds = 0;  // so far
        std::string path;
    };

    // --- the reader
    /// The file of the calls that follow.
    void look_at(const std::string& path);
    void enter();
    void leave();
    /// Sleeps like a call, but not past give_up().
    void pause(double seconds);
    [[nodiscard]] bool giving_up() const { return giving_up_.load(std::memory_order_relaxed); }

    // --- the owner
    [[nodiscard]] std::optional<Waiting> waiting() const;
    /// Asks the reader to try nothing again.
    void give_up();
    /// True if the reader was inside a call: it then ends by itself, whenever that comes back.
    [[nodiscard]] bool leave_behind();

  private:
    static constexpr int64_t kLeft = -1;
    std::atomic<int64_t> since_{0};
    std::atomic<bool> giving_up_{false};
    mutable std::mutex mutex_;  // of path_, and of pause()
    std::condition_variable wake_;
    std::string path_;
};

/// call() as a call into the file system, seen by `watch` unless that is null. Left comes before
/// any error of the call, since an error may name what is gone.
template <typename Call>
void watched(ReadWatch* watch, Call&& call) {
    if (watch == nullptr) return std::forward<Call>(call)();
    watch->enter();
    try {
        std::forward<Call>(call)();
    } catch (...) {
        watch->leave();
        throw;
    }
    watch->leave();
}

// Says on stderr that a reader is stuck, at `first_s` seconds and each time that has doubled, and
// when it is not any more. Asked again and again by whoever waits.
class StallReport {
  public:
    explicit StallReport(double first_s) : first_s_(first_s), next_s_(first_s) {}
    void look(const ReadWatch& watch, const std::string& who);

  private:
    double first_s_, next_s_;
    int64_t reported_ = 0;  // since of the call that was reported
    std::string path_;
};

/// Monotonic time in ns, good to some milliseconds: steps of the wall clock do not matter.
[[nodiscard]] int64_t coarse_now_ns();

}  // namespace vt
