// SPDX-License-Identifier: MIT
// Both ends of the index child: the limited process, and the parent that believes nothing it says
// beyond what check_index establishes.
// Floor 3.
#include "data/index_child.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>

#include "core/check.h"
#include "data/child.h"
#include "data/h5.h"

namespace vt {

namespace {

enum Kind : uint32_t { kStart = 0, kIndex = 1, kRefusal = 2 };

// Before each message of the child. kIndex carries encode_index, kRefusal reason, NUL, hint.
struct Frame {
    uint32_t magic = kMagic, kind = kStart;
    uint64_t file = 0, bytes = 0;
    static constexpr uint32_t kMagic = 0x58495456;  // "VTIX"
};

// --- the child ----------------------------------------------------------------------------------

void send(const Fd& fd, Kind kind, size_t file, std::string_view body) {
    const Frame frame{.kind = kind, .file = file, .bytes = body.size()};
    write_all(fd, &frame, sizeof frame, "the parent's pipe");
    write_all(fd, body.data(), static_cast<int64_t>(body.size()), "the parent's pipe");
}

}  // namespace

int index_child_main(const std::string& foreign_text, const std::vector<std::string>& files) {
    try {
        const Foreign foreign = foreign_text.empty() ? Foreign{} : foreign_from_json(foreign_text);
        const Fd out = take_child_stdout();
        if (!out.open()) return 4;
        limit_child();
        for (size_t i = 0; i < files.size(); ++i) {
            send(out, kStart, i, {});
            limit_child_cpu();
            try {
                const ShardIndex index = h5_describe(files[i], foreign);
                check_index(index);
                send(out, kIndex, i, encode_index(index));
            } catch (const Error& e) {
                send(out, kRefusal, i, Refusal{e.message(), e.hint()}.encode());
            } catch (const std::bad_alloc&) {
                send(out, kRefusal, i,
                     Refusal{"indexing asks for more memory than it may have",
                             "the file is damaged, or has too many samples for one shard"}
                         .encode());
            }
        }
        return 0;
    } catch (const std::exception&) {
        return 4;
    }
}

// --- the parent ---------------------------------------------------------------------------------

namespace {

constexpr const char* kWhat = "the index child";

// One child over files [begin, end). Returns the first file without an outcome.
class Session {
  public:
    Session(const std::vector<fs::path>& files, size_t begin, size_t end,
            const IndexOptions& options, const std::function<void(size_t, Indexed)>& done)
        : files_(files), begin_(begin), next_(begin), end_(end), options_(options), done_(done) {
        std::vector<std::string> words{"vtrain", "data", "index-child"};
        if (!options.foreign.empty()) {
            words.insert(words.end(), {"--foreign", foreign_json(options.foreign)});
        }
        words.emplace_back("--");
        for (size_t i = begin; i < end; ++i) words.push_back(files[i].string());
        spawn_child(child_, kWhat, options.program, words);
    }

    size_t run() {
        const auto patience =
            std::chrono::milliseconds(static_cast<int64_t>(options_.timeout_s * 1000));
        ChildClock::time_point deadline = ChildClock::now() + patience;
        std::array<char, 65536> buffer{};
        while (next_ < end_) {
            const int64_t n = read_child(child_, buffer.data(), buffer.size(), deadline);
            if (n < 0)
                return bad(fmt::format("indexing took longer than {} s", options_.timeout_s));
            if (n == 0) return died();
            pending_.append(buffer.data(), static_cast<size_t>(n));
            const size_t before = next_;
            if (!take_frames()) return bad("the index child sent garbage");
            if (next_ != before) deadline = ChildClock::now() + patience;
        }
        child_.wait();
        return next_;
    }

  private:
    // False if the bytes are not what a sane child would send.
    bool take_frames() {
        for (;;) {
            if (pending_.size() < sizeof(Frame)) return true;
            Frame f;
            std::memcpy(&f, pending_.data(), sizeof f);
            // tables are as long as in the file; empty_text may double
            const auto most = 2 * static_cast<uint64_t>(stamp_of(files_[next_]).size) + (1U << 20);
            if (f.magic != Frame::kMagic || f.kind > kRefusal || f.file != next_ - begin_ ||
                f.bytes > most) {
                return false;
            }
            if (pending_.size() - sizeof f < f.bytes) return true;
            const std::string_view body(pending_.data() + sizeof f, f.bytes);
            if (f.kind == kStart) {
                started_ = true;
            } else if (f.kind == kIndex) {
                Indexed result{
                    .index = decode_index(body), .reason = {}, .hint = {}, .fault = Fault::kData};
                if (!result.index) return false;
                done_(next_++, std::move(result));
            } else {
                Refusal r = Refusal::decode(body);
                done_(next_++, {.index = std::nullopt,
                                .reason = std::move(r.reason),
                                .hint = std::move(r.hint),
                                .fault = Fault::kData});
            }
            pending_.erase(0, sizeof f + f.bytes);
            if (next_ == end_) return true;
        }
    }

    size_t died() {
        const int status = child_.wait();
        if (!started_) refuse_child(kWhat, options_.program, status);
        return bad(
            fmt::format("the HDF5 library {} while reading it", describe_wait_status(status)));
    }

    size_t bad(std::string reason) {
        done_(next_, {.index = std::nullopt,
                      .reason = std::move(reason),
                      .hint = "the file is damaged: copy or encode it again",
                      .fault = Fault::kData});
        return next_ + 1;
    }

    const std::vector<fs::path>& files_;
    size_t begin_, next_, end_;
    const IndexOptions& options_;
    const std::function<void(size_t, Indexed)>& done_;
    Child child_;
    std::string pending_;
    bool started_ = false;
};

constexpr size_t kFilesPerChild = 256;              // start-up of a process spread over these
constexpr size_t kMostChildren = 8;                 // at once, at most one for each core
constexpr size_t kArgumentBytes = size_t{1} << 19;  // well under ARG_MAX

}  // namespace

void run_index_children(const std::vector<fs::path>& files, const IndexOptions& options,
                        const std::function<void(size_t, Indexed)>& done) {
    const size_t cores = std::max<size_t>(1, std::thread::hardware_concurrency());
    const size_t children = std::min({kMostChildren, cores, files.size()});
    // short portions, so that children end together
    const size_t most =
        std::clamp<size_t>(files.size() / (4 * std::max<size_t>(1, children)), 1, kFilesPerChild);
    std::mutex mutex;
    size_t next = 0;
    std::exception_ptr error;
    const auto take = [&] {  // [begin, end), empty at the end
        const std::lock_guard lock(mutex);
        const size_t begin = error ? files.size() : next;
        size_t end = begin, bytes = 0;
        while (end < files.size() && end - begin < most &&
               (end == begin || bytes + files[end].native().size() < kArgumentBytes)) {
            bytes += files[end++].native().size() + 1;
        }
        next = end;
        return std::pair{begin, end};
    };
    const auto work = [&] {
        try {
            for (auto [begin, end] = take(); begin < end; std::tie(begin, end) = take()) {
                while (begin < end) begin = Session(files, begin, end, options, done).run();
            }
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (!error) error = std::current_exception();
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < children; ++i) threads.emplace_back(work);
    work();  // the thread that starts a child outlives it, as PR_SET_PDEATHSIG asks
    for (std::thread& t : threads) t.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace vt
