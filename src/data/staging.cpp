// SPDX-License-Identifier: MIT
#include "data/staging.h"

#include <algorithm>
#include <cerrno>
#include <sys/file.h>
#include <system_error>

#include "core/check.h"
#include "data/encode.h"

namespace vt {
namespace {

// What the user can mend, as opposed to a full disk or a failing one.
bool users_fault(int code) {
    constexpr int kTheirs[] = {ENOTDIR, EEXIST, EACCES, EPERM, EROFS, ENAMETOOLONG, ENOENT, ELOOP};
    return std::find(std::begin(kTheirs), std::end(kTheirs), code) != std::end(kTheirs);
}

constexpr const char* kComplete = "complete";  // its presence: all shards are there, being moved

}  // namespace

bool holds_shards(const fs::path& dir) {
    std::error_code ec;
    for (const auto& e : fs::directory_iterator(dir, ec)) {
        if (e.path().extension() == ".h5") return true;
    }
    return false;
}

void make_folder(const fs::path& dir, const std::string& option) {
    std::error_code ec;
    if (fs::exists(dir, ec) && !fs::is_directory(dir, ec)) {
        raise(Fault::kUser, fmt::format("{} {}: is a file, not a folder", option, dir.string()));
    }
    fs::create_directories(dir, ec);
    if (ec) {
        raise(
            users_fault(ec.value()) ? Fault::kUser : Fault::kSystem,
            fmt::format("{} {}: cannot be made a folder: {}", option, dir.string(), ec.message()));
    }
}

void check_space(const fs::path& dir, int64_t bytes, const std::string& what) {
    std::error_code ec;
    fs::path there = fs::absolute(dir, ec);
    while (!fs::exists(there, ec) && there.has_relative_path()) there = there.parent_path();
    const fs::space_info space = fs::space(there, ec);
    if (ec || space.available > static_cast<uint64_t>(bytes)) return;
    const auto gb = [](auto b) { return static_cast<double>(b) / 1e9; };
    raise(Fault::kSystem,
          fmt::format("{}: {} needs {:.2f} GB, the disk has {:.2f} GB free", dir.string(), what,
                      gb(bytes), gb(space.available)),
          "make room, give another folder, or take fewer or smaller clips");
}

Staging::Staging(const fs::path& out)
    : made_out_(!fs::exists(out)), out_(out), dir_(out / ".encoding") {
    make_folder(out, "--out");
    try {
        make_folder(dir_, "--out");
        lock_ = create_write(dir_ / "lock");
        if (flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
            busy_ = true;
            raise(Fault::kUser, fmt::format("{} is being written by another run", out.string()));
        }
        if (fs::exists(dir_ / kComplete)) {
            (void)move_all();
            fs::remove(dir_ / kComplete);
        }
        for (const char* part : {"train", "valid"}) {
            fs::remove_all(dir_ / part);
            fs::create_directories(dir_ / part);
        }
    } catch (const fs::filesystem_error& e) {
        cleanup();
        raise(Fault::kSystem,
              fmt::format("cannot prepare {}: {}", out.string(), e.code().message()));
    } catch (...) {
        cleanup();
        throw;
    }
}

Staging::~Staging() {
    cleanup();
}

std::vector<fs::path> Staging::move_all() {
    std::vector<fs::path> moved;
    for (const bool valid : {false, true}) {
        std::vector<fs::path> files;
        for (const auto& e : fs::directory_iterator(part(valid))) files.push_back(e.path());
        std::sort(files.begin(), files.end());
        const fs::path to = valid ? out_ / "valid" : out_;
        if (!files.empty()) fs::create_directories(to);
        for (const fs::path& f : files) {
            fs::rename(f, to / f.filename());
            moved.push_back(to / f.filename());
        }
        if (!files.empty()) fsync_dir(to);
    }
    return moved;
}

std::vector<fs::path> Staging::publish() {
    try {
        for (const bool valid : {false, true}) fsync_dir(part(valid));
        write_atomic(dir_ / kComplete, "");
        moving_ = true;
        auto moved = move_all();
        moving_ = false;
        return moved;
    } catch (const fs::filesystem_error& e) {
        raise(Fault::kSystem,
              fmt::format("cannot move shards into {}: {}", out_.string(), e.code().message()),
              "started again, vtrain completes the move");
    }
}

void Staging::cleanup() noexcept {
    if (busy_ || moving_) return;
    std::error_code ec;
    fs::remove_all(dir_, ec);
    if (made_out_) fs::remove(out_, ec);  // only if nothing is in it
}

}  // namespace vt
