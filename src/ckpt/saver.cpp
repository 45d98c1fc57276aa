// SPDX-License-Identifier: MIT
#include "ckpt/saver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <ctime>
#include <fmt/chrono.h>
#include <mutex>
#include <set>
#include <sys/statvfs.h>

#include "ckpt/run_dir.h"
#include "core/log.h"

namespace vt {

namespace {

using Clock = std::chrono::steady_clock;  // deadlines must not follow the wall clock
using Seconds = std::chrono::duration<double>;

// How long a save that was given up may take to notice it: no longer than the piece of a tensor it
// is at. A thread that takes longer is inside a system call and touches no memory of ours.
constexpr Seconds kGrace{2.0};
constexpr Seconds kBetweenTries{0.5};

double mib(int64_t bytes) {
    return static_cast<double>(bytes) / 1048576.0;
}

int64_t bytes_of(const std::vector<StateTensor>& states) {
    int64_t n = 0;
    for (const StateTensor& t : states) n += t.local.bytes();
    return n;
}

std::string message_of(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Error& e) {
        return e.message();
    } catch (const std::bad_alloc&) {
        return "out of memory";
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "unknown exception";
    }
}

bool is_bug(const std::exception_ptr& error) {
    try {
        std::rethrow_exception(error);
    } catch (const Error& e) {
        return e.fault() == Fault::kBug;
    } catch (...) {
        return false;
    }
}

// For people; nothing is decided by it.
CheckpointInfo dated(CheckpointInfo info) {
    info.extra["saved_at"] = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
    return info;
}

}  // namespace

// Shared with threads that may outlive the Saver.
struct Saver::Kept {
    std::mutex lock;
    std::set<int64_t> verified;

    void keep_some(const fs::path& run_dir, const Retention& keep, const std::string& run_id,
                   int64_t step) {
        // the checkpoint is committed whatever happens here
        try {
            const std::lock_guard hold(lock);
            verified.insert(step);
            (void)prune(run_dir, keep, run_id, verified, step);
        } catch (const std::exception& e) {
            warn("older checkpoints could not be removed: {}", e.what());
        }
    }
};

// One save on a thread of its own.
struct Saver::Job {
    fs::path run_dir;
    CheckpointInfo info;
    std::vector<StateTensor> states;
    Retention keep;
    std::shared_ptr<Kept> kept;
    SaveAttempt attempt;
    Clock::time_point begin = Clock::now();
    std::atomic<bool> committed{false};

    std::mutex lock;
    std::condition_variable changed;
    bool ended = false;
    std::exception_ptr error;

    void run() {
        std::exception_ptr got;
        try {
            const std::unique_ptr<Group> alone = self_group();
            (void)vt::save(run_dir, info, states, *alone, attempt);
            committed = true;
            kept->keep_some(run_dir, keep, info.run_id, info.step);
        } catch (...) {
            got = std::current_exception();
        }
        const std::lock_guard hold(lock);
        error = got;
        ended = true;
        changed.notify_all();
    }
    bool has_ended() {
        const std::lock_guard hold(lock);
        return ended;
    }
    bool wait_until(Clock::time_point end) {
        std::unique_lock hold(lock);
        if (end == Clock::time_point::max()) {  // which wait_until may not add to
            changed.wait(hold, [&] { return ended; });
            return true;
        }
        return changed.wait_until(hold, end, [&] { return ended; });
    }
    [[nodiscard]] Clock::time_point deadline(double seconds) const {
        // a year is for ever, and does not overflow the clock
        if (seconds <= 0 || seconds > 3e7) return Clock::time_point::max();
        return begin + std::chrono::duration_cast<Clock::duration>(Seconds(seconds));
    }
    [[nodiscard]] double age() const { return Seconds(Clock::now() - begin).count(); }
};

Saver::Saver(fs::path run_dir, const CheckpointOptions& options, Group& world)
    : run_dir_(std::move(run_dir)),
      options_(options),
      world_(world),
      kept_(std::make_shared<Kept>()) {}

Saver::~Saver() {
    try {
        drain();
    } catch (const std::exception& e) {
        warn("{}", e.what());
    }
}

void Saver::declare(const std::vector<StateTensor>& states) {
    if (world_.size() > 1) return;
    snapshot_.clear();
    for (const StateTensor& t : states) {
        snapshot_.push_back(snapshot_arena_.alloc("snapshot", t.local.shape, t.local.dtype));
    }
}

void Saver::adopt(const CheckpointInfo& info) {
    VT_CHECK(!job_, "the save of step {} is under way", job_->info.step);
    committed_ = info.step;
    committed_cursor_ = info.cursor;
    const std::lock_guard hold(kept_->lock);
    kept_->verified.erase(kept_->verified.upper_bound(info.step), kept_->verified.end());
    kept_->verified.insert(info.step);
}

void Saver::check_space(const std::vector<StateTensor>& states) const {
    if (world_.rank() != 0) return;
    std::set<std::string> seen;
    int64_t need = 0;
    for (const StateTensor& t : states) {
        if (seen.insert(t.name).second) need += t.global.numel() * size_of(t.local.dtype);
    }
    struct statvfs fs_stat {};
    if (::statvfs(run_dir_.c_str(), &fs_stat) != 0) return;  // the first save will tell
    const double free =
        static_cast<double>(fs_stat.f_bavail) * static_cast<double>(fs_stat.f_frsize);
    // one to be written while the old ones still stand, and one more
    if (free >= 2 * static_cast<double>(need)) return;
    warn("{} has {:.1f} MiB free, a checkpoint takes {:.1f} MiB: there is no room for two more",
         run_dir_.string(), free / 1048576.0, mib(need));
}

void Saver::copy_to_snapshot(std::vector<StateTensor>& states, Pool& pool) {
    VT_CHECK(states.size() == snapshot_.size(), "{} tensors, a snapshot of {}", states.size(),
             snapshot_.size());
    constexpr int64_t kPiece = int64_t{1} << 22;  // bytes
    struct Piece {
        char* to;
        const char* from;
        size_t bytes;
    };
    std::vector<Piece> pieces;
    for (size_t i = 0; i < states.size(); ++i) {
        Tensor& from = states[i].local;
        Tensor& to = snapshot_[i];
        VT_CHECK(to.shape == from.shape && to.dtype == from.dtype, "snapshot of '{}'",
                 states[i].name);
        for (int64_t at = 0; at < from.bytes(); at += kPiece) {
            pieces.push_back({static_cast<char*>(to.data) + at,
                              static_cast<const char*>(from.data) + at,
                              static_cast<size_t>(std::min(kPiece, from.bytes() - at))});
        }
        from = to;
    }
    pool.parallel_for(std::ssize(pieces), [&](int64_t i, int /*thread*/) {
        const Piece& p = pieces[static_cast<size_t>(i)];
        std::memcpy(p.to, p.from, p.bytes);
    });
}

void Saver::start(const CheckpointInfo& info, std::vector<StateTensor> states) {
    VT_CHECK(!job_, "two saves at once");
    auto job = std::make_shared<Job>();
    job->run_dir = run_dir_;
    job->info = dated(info);
    job->states = std::move(states);
    job->keep = {.keep_last = options_.keep_last, .keep_every = options_.keep_every};
    job->kept = kept_;
    // Signals are for the training thread: the writer's system calls are not interrupted.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    try {
        thread_ = std::thread([job] { job->run(); });
    } catch (const std::system_error& e) {
        ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
        raise(Fault::kSystem,
              fmt::format("no thread for the save of step {}: {}", info.step, e.code().message()));
    }
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    job_ = std::move(job);
}

// Waits for the save under way until its deadline; gives it up then. Its error, or null.
std::exception_ptr Saver::finish() {
    const std::shared_ptr<Job> job = std::move(job_);
    job_ = nullptr;
    std::exception_ptr error;
    if (!job->wait_until(job->deadline(options_.deadline_s))) {
        const char* doing = job->attempt.doing();
        const bool given_up = job->attempt.abandon();
        const bool committed = job->committed;
        if (!committed) {
            error = std::make_exception_ptr(Error(
                Fault::kSystem,
                fmt::format("{}: the save of step {} was given up after {:.1f} s: stuck at '{}', "
                            "{:.1f} of {:.1f} MiB written{}",
                            run_dir_.string(), job->info.step, job->age(), doing,
                            mib(job->attempt.bytes_written()), mib(bytes_of(job->states)),
                            given_up ? "" : "; whether it was committed is not known"),
                "checkpoint.deadline_s sets how long a save may take", Where::here()));
        }
        const auto grace = std::chrono::duration_cast<Clock::duration>(kGrace);
        if (!job->wait_until(Clock::now() + grace)) {
            thread_.detach();
            // only removing old checkpoints is left to it: it no longer reads the snapshot
            if (!committed) abandoned_.push_back(job);
            return error;
        }
    }
    thread_.join();
    if (job->committed) {
        committed_ = job->info.step;
        committed_cursor_ = job->info.cursor;
        failures_ = leave_out_ = 0;
        return nullptr;
    }
    return error ? error : job->error;
}

bool Saver::stuck() {
    std::erase_if(abandoned_, [](const std::shared_ptr<Job>& j) { return j->has_ended(); });
    return !abandoned_.empty();
}

std::exception_ptr Saver::over_all_ranks(const CheckpointInfo& info,
                                         const std::vector<StateTensor>& states) {
    try {
        SaveAttempt attempt;
        (void)vt::save(run_dir_, dated(info), states, world_, attempt);
    } catch (...) {
        return std::current_exception();
    }
    committed_ = info.step;
    committed_cursor_ = info.cursor;
    failures_ = leave_out_ = 0;
    if (world_.rank() == 0) {
        kept_->keep_some(run_dir_,
                         {.keep_last = options_.keep_last, .keep_every = options_.keep_every},
                         info.run_id, info.step);
    }
    return nullptr;
}

// The policy for an interval's save.
void Saver::settle(int64_t step, const std::exception_ptr& error) {
    if (!error) return;
    ++failures_;
    if (is_bug(error)) std::rethrow_exception(error);
    const std::string why = message_of(error);
    const std::string hint = fmt::format(
        "the checkpoints before it are untouched; make room or repair the disk and start again");
    if (options_.on_failure == "stop") {
        raise(Fault::kSystem, fmt::format("the save of step {} failed: {}", step, why), hint);
    }
    if (failures_ >= options_.max_failures) {
        raise(Fault::kSystem,
              fmt::format("{} saves in a row failed, the last that of step {}: {}", failures_, step,
                          why),
              hint);
    }
    leave_out_ = (int64_t{1} << std::min<int64_t>(failures_ - 1, 20)) - 1;
    if (world_.rank() != 0) return;
    warn(
        "THE SAVE OF STEP {} FAILED ({} in a row, {} end the run): {}; the checkpoints before it "
        "are untouched; next try {}",
        step, failures_, options_.max_failures, why,
        leave_out_ == 0 ? "at the next interval"
                        : fmt::format("after {} more intervals", leave_out_));
}

void Saver::poll() {
    if (!job_) return;
    if (!job_->has_ended() && Clock::now() < job_->deadline(options_.deadline_s)) return;
    const int64_t step = job_->info.step;
    settle(step, finish());
}

void Saver::drain() {
    if (!job_) return;
    const int64_t step = job_->info.step;
    if (const std::exception_ptr error = finish()) {
        ++failures_;
        warn("THE SAVE OF STEP {} FAILED: {}", step, message_of(error));
    }
}

void Saver::save(const CheckpointInfo& info, const std::vector<StateTensor>& states, Pool& pool) {
    poll();
    if (leave_out_ > 0) {
        --leave_out_;
        if (world_.rank() == 0) warn("no save at step {}: the last ones failed", info.step);
        return;
    }
    if (world_.size() > 1) {
        settle(info.step, over_all_ranks(info, states));
        return;
    }
    if (job_) {
        const int64_t before = job_->info.step;
        const Clock::time_point begin = Clock::now();
        settle(before, finish());
        say("checkpoint: the save of step {} waited {:.2f} s for that of step {}", info.step,
            Seconds(Clock::now() - begin).count(), before);
    }
    std::exception_ptr error;
    try {
        if (stuck()) {
            raise(Fault::kSystem,
                  fmt::format("{}: the save of step {} is still stuck at '{}'", run_dir_.string(),
                              abandoned_.front()->info.step, abandoned_.front()->attempt.doing()));
        }
        std::vector<StateTensor> source = states;
        if (!snapshot_.empty()) copy_to_snapshot(source, pool);
        start(info, std::move(source));
        if (!snapshot_.empty()) return;
        error = finish();
    } catch (...) {
        error = std::current_exception();
    }
    settle(info.step, error);
}

void Saver::save_last(const CheckpointInfo& info, const std::vector<StateTensor>& states) {
    drain();
    if (committed_ == info.step && committed_cursor_ == info.cursor) return;
    for (int tries = 1;; ++tries) {
        std::exception_ptr error;
        const size_t given_up = abandoned_.size();
        if (world_.size() > 1) {
            error = over_all_ranks(info, states);
        } else {
            start(info, states);
            error = finish();
        }
        if (!error) return;
        if (is_bug(error)) std::rethrow_exception(error);
        if (tries == 2 || abandoned_.size() > given_up) {
            raise(
                Fault::kSystem,
                fmt::format("THE LAST SAVE FAILED, {}: {}",
                            committed_ >= 0
                                ? fmt::format("what was trained after step {} is lost", committed_)
                                : std::string("nothing of this run is saved"),
                            message_of(error)),
                "the checkpoints before it are untouched; make room or repair the disk and start "
                "again");
        }
        if (world_.rank() == 0) {
            warn("the save of step {} failed, trying once more: {}", info.step, message_of(error));
        }
        std::this_thread::sleep_for(kBetweenTries);
    }
}

}  // namespace vt
