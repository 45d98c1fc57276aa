// SPDX-License-Identifier: MIT
#include "ckpt/run_dir.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "core/log.h"

namespace vt {

namespace {

constexpr const char* kPruned = ".pruned";

// Entries of a directory; none where it does not exist.
std::vector<fs::path> entries(const fs::path& dir) {
    std::vector<fs::path> out;
    std::error_code error;
    fs::directory_iterator it(dir, error);
    if (error == std::errc::no_such_file_or_directory) return out;
    while (!error && it != fs::directory_iterator()) {
        out.push_back(it->path());
        it.increment(error);
    }
    if (error) {
        raise(Fault::kSystem, fmt::format("cannot list {}: {}", dir.string(), error.message()));
    }
    std::sort(out.begin(), out.end());
    return out;
}

// "step-00001000" -> 1000; -1 for anything that step_name would not write.
int64_t step_of(const std::string& name) {
    constexpr std::string_view kPrefix = "step-";
    if (name.rfind(kPrefix, 0) != 0) return -1;
    int64_t step = -1;
    const char* end = name.data() + name.size();
    const auto got = std::from_chars(name.data() + kPrefix.size(), end, step);
    if (got.ec != std::errc() || got.ptr != end || step < 0 || step_name(step) != name) return -1;
    return step;
}

void remove_tree(const fs::path& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) {
        raise(Fault::kSystem, fmt::format("cannot remove {}: {}", path.string(), error.message()));
    }
}

}  // namespace

std::string step_name(int64_t step) {
    return fmt::format("step-{:08}", step);
}

std::vector<StepDir> step_dirs(const fs::path& run_dir) {
    std::vector<StepDir> out;
    for (const fs::path& p : entries(run_dir)) {
        const int64_t step = step_of(p.filename().string());
        std::error_code ignored;
        if (step >= 0 && fs::is_directory(p, ignored)) out.push_back({step, p});
    }
    std::sort(out.begin(), out.end(),
              [](const StepDir& a, const StepDir& b) { return a.step > b.step; });
    return out;
}

RunLock::RunLock(const fs::path& run_dir) {
    std::error_code error;
    fs::create_directories(run_dir, error);
    if (error) {
        raise(Fault::kSystem,
              fmt::format("cannot create {}: {}", run_dir.string(), error.message()));
    }
    const fs::path path = run_dir / ".lock";
    fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
    if (!fd_.open()) raise_errno("open", path);
    if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK) raise_errno("lock", path);
        std::array<char, 300> who{};
        const ssize_t n = ::pread(fd_.get(), who.data(), who.size() - 1, 0);
        std::string holder(who.data(), n > 0 ? static_cast<size_t>(n) : 0);
        while (!holder.empty() && holder.back() == '\n') holder.pop_back();
        raise(Fault::kUser,
              fmt::format("{} is being written by another run ({})", run_dir.string(), holder),
              "wait for it, stop it, or choose another run.out");
    }
    std::array<char, 256> host{};
    ::gethostname(host.data(), host.size() - 1);
    const std::string text = fmt::format("pid {} on {}\n", ::getpid(), host.data());
    if (::ftruncate(fd_.get(), 0) != 0) raise_errno("truncate", path);
    pwrite_all(fd_, text.data(), narrow<int64_t>(text.size()), 0, path);
}

void clean_stale(const fs::path& run_dir) {
    for (const fs::path& p : entries(run_dir)) {
        const std::string end = p.extension().string();
        // ".tmp" alone is how builds before the attempts had ids named them
        const bool save = end == ".tmp" || end.rfind(kTempMark, 0) == 0;
        if ((!save && end != kPruned) || step_of(p.stem().string()) < 0) continue;
        say("checkpoint: removing what an interrupted {} left: {}", save ? "save" : "removal",
            p.string());
        remove_tree(p);
    }
}

std::vector<int64_t> prune(const fs::path& run_dir, const Retention& keep,
                           const std::string& run_id, std::set<int64_t>& verified,
                           int64_t just_written) {
    VT_CHECK(keep.keep_last >= 2, "keep_last {}", keep.keep_last);
    int64_t newest = 0, safe = 0;  // kept as the newest; of those that stay, verified
    std::vector<StepDir> doomed;
    for (const StepDir& d : step_dirs(run_dir)) {
        try {
            if (read_manifest(d.path).info.run_id != run_id) continue;
            if (newest < 2 && verified.count(d.step) == 0) verify(d.path);
        } catch (const Error& e) {
            // It counts for nothing and stays: an older one takes its place. One that cannot be
            // read is no better than a damaged one.
            if (e.fault() != Fault::kData && e.fault() != Fault::kSystem) throw;
            warn("checkpoint of step {} is not usable, an older one is kept for it: {}", d.step,
                 e.message());
            continue;
        }
        if (newest < 2) {
            verified.insert(d.step);
            ++safe;
        }
        const bool stays = keep.keep_every > 0 && d.step % keep.keep_every == 0;
        if (newest++ < keep.keep_last || stays || d.step == just_written) continue;
        doomed.push_back(d);
    }
    std::vector<int64_t> removed;
    if (safe < 2) return removed;
    // Oldest first: a crash in between leaves the newest ones, without a hole.
    for (auto d = doomed.rbegin(); d != doomed.rend(); ++d) {
        const fs::path aside = d->path.string() + kPruned;
        remove_tree(aside);
        if (::rename(d->path.c_str(), aside.c_str()) != 0) raise_errno("rename into", aside);
        fsync_dir(run_dir);
        remove_tree(aside);
        verified.erase(d->step);
        removed.push_back(d->step);
    }
    return removed;
}

fs::path abandon(const fs::path& dir) {
    for (int k = 1;; ++k) {
        const fs::path to = fmt::format("{}.abandoned-{}", dir.string(), k);
        struct stat st {};
        if (::lstat(to.c_str(), &st) == 0) continue;
        if (errno != ENOENT) raise_errno("stat", to);
        if (::rename(dir.c_str(), to.c_str()) != 0) raise_errno("rename into", to);
        return to;
    }
}

std::vector<fs::path> abandon_later(const fs::path& run_dir, int64_t step) {
    std::vector<fs::path> out;
    // Highest first: a crash in between leaves a prefix of the old lineage, never a hole in it.
    for (const StepDir& d : step_dirs(run_dir)) {
        if (d.step > step) out.push_back(abandon(d.path));
    }
    if (!out.empty()) fsync_dir(run_dir);
    return out;
}

}  // namespace vt
