// SPDX-License-Identifier: MIT
// A program's own definition of a C library function comes before the library's, for the program
// and for every library it loads; RTLD_NEXT finds the library's.
#include "tests/ckpt/fault_shim.h"

#include <array>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>

namespace vt::test {

namespace {

struct State {
    Mischief mischief = Mischief::kNone;
    int64_t at = -1;
    int error_number = 0;
    bool can_exchange = true;
    bool said = false;
    bool disk_full = false;  // after a short write
    std::vector<Call> calls;
};
thread_local State* armed = nullptr;
thread_local bool inside = false;  // the shim's own bookkeeping is not counted

template <typename F>
F next(const char* name) {
    return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

std::string path_of(int fd) {
    std::array<char, 4096> buffer{};
    const auto link = fmt::format("/proc/self/fd/{}", fd);
    const ssize_t n = ::readlink(link.c_str(), buffer.data(), buffer.size());
    return n > 0 ? std::string(buffer.data(), static_cast<size_t>(n)) : std::string();
}

enum class Do : uint8_t { kPass, kFail, kHalf, kHalfThenExit };

// Records the call and says what becomes of it. Not for calls while nothing is armed.
Do next_call(const char* what, std::string path) {
    inside = true;
    const auto n = static_cast<int64_t>(armed->calls.size());
    armed->calls.push_back({what, std::move(path)});
    inside = false;
    const bool write = armed->calls.back().what == "write";
    if (armed->disk_full && write) {
        errno = ENOSPC;
        return Do::kFail;
    }
    if (n != armed->at) return Do::kPass;
    switch (armed->mischief) {
        case Mischief::kNone:
            return Do::kPass;
        case Mischief::kExit:
            if (write) return Do::kHalfThenExit;
            ::_exit(armed->said ? kExitSaid : kExitQuiet);
        case Mischief::kErrno:
            errno = armed->error_number;
            return Do::kFail;
        case Mischief::kShort:
            if (!write) return Do::kPass;
            armed->disk_full = true;
            return Do::kHalf;
    }
    return Do::kPass;
}

bool active() {
    return armed != nullptr && !inside;
}

template <typename Write>
ssize_t on_write(int fd, size_t bytes, const Write& write) {
    if (!active()) return write(bytes);
    const bool console = fd <= STDERR_FILENO;
    const Do d = next_call("write", console ? "stdout" : path_of(fd));
    if (d == Do::kFail) return -1;
    if (console) {
        if (d == Do::kHalfThenExit) ::_exit(armed->said ? kExitSaid : kExitQuiet);
        armed->said = true;
        return static_cast<ssize_t>(bytes);
    }
    if (d == Do::kPass) return write(bytes);
    const ssize_t n = write(bytes / 2);
    if (d == Do::kHalfThenExit) ::_exit(armed->said ? kExitSaid : kExitQuiet);
    return n;
}

template <typename Call>
int on_call(const char* what, std::string path, const Call& call) {
    if (active() && next_call(what, std::move(path)) == Do::kFail) return -1;
    return call();
}

}  // namespace

Armed::Armed(Mischief mischief, int64_t at, int error_number, bool can_exchange) {
    armed = new State{mischief, at, error_number, can_exchange, false, false, {}};
}
Armed::~Armed() {
    delete armed;
    armed = nullptr;
}
const std::vector<Call>& Armed::calls() {
    return armed->calls;
}

}  // namespace vt::test

using namespace vt::test;

extern "C" {

ssize_t write(int fd, const void* data, size_t bytes) {
    static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
    return on_write(fd, bytes, [&](size_t n) { return real(fd, data, n); });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
    static const auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
    return on_write(fd, bytes, [&](size_t n) { return real(fd, data, n, offset); });
}

int fsync(int fd) {
    static const auto real = next<int (*)(int)>("fsync");
    // armed: the page cache survives everything these tests do, so the disk need not turn
    return on_call("fsync", active() ? path_of(fd) : "", [&] { return active() ? 0 : real(fd); });
}

int close(int fd) {
    static const auto real = next<int (*)(int)>("close");
    if (!active()) return real(fd);
    const int result = on_call("close", path_of(fd), [] { return 0; });
    const int error_number = errno;
    const int closed = real(fd);  // Linux frees the descriptor even when it reports an error
    errno = error_number;
    return result != 0 ? result : closed;
}

int open(const char* path, int flags, ...) {
    static const auto real = next<int (*)(const char*, int, ...)>("open");
    mode_t mode = 0;
    if ((flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE) {
        va_list args;
        va_start(args, flags);
        mode = va_arg(args, mode_t);
        va_end(args);
    }
    return on_call("open", active() ? path : "", [&] { return real(path, flags, mode); });
}

int posix_fallocate(int fd, off_t offset, off_t bytes) {
    static const auto real = next<int (*)(int, off_t, off_t)>("posix_fallocate");
    if (!active()) return real(fd, offset, bytes);
    return next_call("reserve", path_of(fd)) == Do::kFail ? errno : 0;
}

int mkdir(const char* path, mode_t mode) noexcept {
    static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
    return on_call("mkdir", active() ? path : "", [&] { return real(path, mode); });
}

int rename(const char* from, const char* to) noexcept {
    static const auto real = next<int (*)(const char*, const char*)>("rename");
    return on_call("rename", active() ? from : "", [&] { return real(from, to); });
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
    static const auto real =
        next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
    return on_call("exchange", active() ? from : "", [&] {
        if (active() && !armed->can_exchange) {
            errno = EINVAL;
            return -1;
        }
        return real(from_dir, from, to_dir, to, flags);
    });
}

int unlink(const char* path) noexcept {
    static const auto real = next<int (*)(const char*)>("unlink");
    return on_call("unlink", active() ? path : "", [&] { return real(path); });
}

int unlinkat(int dir, const char* path, int flags) noexcept {
    static const auto real = next<int (*)(int, const char*, int)>("unlinkat");
    return on_call("unlink", active() ? path : "", [&] { return real(dir, path, flags); });
}

}  // extern "C"
