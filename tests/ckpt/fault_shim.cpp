// SPDX-License-Identifier: MIT
// A program's own definition of a C library function comes before the library's, for the program
// and for every library it loads; RTLD_NEXT finds the library's.
#include "tests/ckpt/fault_shim.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <ctime>
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <memory>
#include <mutex>
#include <sys/stat.h>
#include <sys/time.h>
#include <thread>
#include <unistd.h>

namespace vt::test {

namespace {

struct State {
    Mischief mischief = Mischief::kNone;
    int64_t at = -1;
    int error_number = 0;
    bool can_exchange = true;
    std::atomic<bool> said{false}, reached{false}, released{false};
    bool disk_full = false;  // after a short write
    std::mutex lock;
    std::vector<Call> calls;
};
// Kept alive by threads that wait in a call while it is disarmed.
thread_local std::shared_ptr<State> own;
std::shared_ptr<State> everyone;
std::mutex everyone_lock;
std::atomic<bool> everyone_armed{false};
thread_local bool inside = false;  // the shim's own bookkeeping is not counted
std::atomic<int64_t> clock_moved{0};

std::shared_ptr<State> armed() {
    if (inside) return nullptr;
    if (own) return own;
    if (!everyone_armed.load(std::memory_order_acquire)) return nullptr;
    const std::lock_guard hold(everyone_lock);
    return everyone;
}

template <typename F>
F next(const char* name) {
    return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

struct Inside {
    Inside() { inside = true; }
    ~Inside() { inside = false; }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;
};

std::string path_of(int fd) {
    const Inside quiet;
    std::array<char, 4096> buffer{};
    const auto link = fmt::format("/proc/self/fd/{}", fd);
    const ssize_t n = ::readlink(link.c_str(), buffer.data(), buffer.size());
    return n > 0 ? std::string(buffer.data(), static_cast<size_t>(n)) : std::string();
}

enum class Do : uint8_t { kPass, kFail, kHalf, kHalfThenExit };

[[noreturn]] void leave(const State& s) {
    ::_exit(s.said ? kExitSaid : kExitQuiet);
}

// Records the call and says what becomes of it.
Do next_call(State& s, Call call) {
    const Inside quiet;
    const bool write = call.what == "write";
    int64_t n = 0;
    {
        const std::lock_guard hold(s.lock);
        n = static_cast<int64_t>(s.calls.size());
        s.calls.push_back(std::move(call));
        if (s.disk_full && write) {
            errno = ENOSPC;
            return Do::kFail;
        }
    }
    if (s.mischief == Mischief::kAlways ? n < s.at : n != s.at) return Do::kPass;
    s.reached = true;
    switch (s.mischief) {
        case Mischief::kNone:
            return Do::kPass;
        case Mischief::kExit:
            if (write) return Do::kHalfThenExit;
            leave(s);
        case Mischief::kErrno:
        case Mischief::kAlways:
            errno = s.error_number;
            return Do::kFail;
        case Mischief::kShort:
            if (!write) return Do::kPass;
            s.disk_full = true;
            return Do::kHalf;
        case Mischief::kStall:
            while (!s.released) std::this_thread::sleep_for(std::chrono::milliseconds(1));
            return Do::kPass;
    }
    return Do::kPass;
}

template <typename Write>
ssize_t on_write(int fd, const void* data, size_t bytes, int64_t offset, const Write& write) {
    const std::shared_ptr<State> s = armed();
    if (!s) return write(bytes);
    const bool console = fd <= STDERR_FILENO;
    const Do d = next_call(*s, {.what = "write",
                                .path = console ? "stdout" : path_of(fd),
                                .data = std::string(static_cast<const char*>(data), bytes),
                                .offset = offset});
    if (d == Do::kFail) return -1;
    if (console) {
        if (d == Do::kHalfThenExit) leave(*s);
        if (fd == STDOUT_FILENO) s->said = true;
        return static_cast<ssize_t>(bytes);
    }
    if (d == Do::kPass) return write(bytes);
    const ssize_t n = write(bytes / 2);
    if (d == Do::kHalfThenExit) leave(*s);
    return n;
}

// `call` with nothing armed, or when it is let through.
template <typename Real>
int on_call(const std::shared_ptr<State>& s, Call call, const Real& real) {
    if (s && next_call(*s, std::move(call)) == Do::kFail) return -1;
    return real();
}

}  // namespace

Armed::Armed(Mischief mischief, int64_t at, int error_number, bool can_exchange, Who who) {
    const auto s = std::make_shared<State>();
    s->mischief = mischief;
    s->at = at;
    s->error_number = error_number;
    s->can_exchange = can_exchange;
    if (who == Who::kThisThread) {
        own = s;
        return;
    }
    const std::lock_guard hold(everyone_lock);
    everyone = s;
    everyone_armed.store(true, std::memory_order_release);
}
Armed::~Armed() {
    if (own) {
        own.reset();
        return;
    }
    const std::lock_guard hold(everyone_lock);
    everyone->released = true;
    everyone_armed = false;
    everyone.reset();
}
std::vector<Call> Armed::calls() {
    const std::shared_ptr<State> s = armed();
    const std::lock_guard hold(s->lock);
    return s->calls;
}
bool Armed::reached() {
    return armed()->reached;
}
void Armed::release() {
    armed()->released = true;
}

MovedClock::MovedClock(int64_t seconds) {
    clock_moved = seconds;
}
MovedClock::~MovedClock() {
    clock_moved = 0;
}

}  // namespace vt::test

using namespace vt::test;

extern "C" {

ssize_t write(int fd, const void* data, size_t bytes) {
    static const auto real = next<ssize_t (*)(int, const void*, size_t)>("write");
    const int64_t at = armed() ? ::lseek(fd, 0, SEEK_CUR) : 0;
    return on_write(fd, data, bytes, at, [&](size_t n) { return real(fd, data, n); });
}

ssize_t pwrite(int fd, const void* data, size_t bytes, off_t offset) {
    static const auto real = next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite");
    return on_write(fd, data, bytes, offset, [&](size_t n) { return real(fd, data, n, offset); });
}

int fsync(int fd) {
    static const auto real = next<int (*)(int)>("fsync");
    const auto s = armed();
    // armed: the page cache survives everything these tests do, so the disk need not turn
    return on_call(s, {.what = "fsync", .path = s ? path_of(fd) : ""},
                   [&] { return s ? 0 : real(fd); });
}

int close(int fd) {
    static const auto real = next<int (*)(int)>("close");
    const auto s = armed();
    if (!s) return real(fd);
    const int result = on_call(s, {.what = "close", .path = path_of(fd)}, [] { return 0; });
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
    const auto s = armed();
    return on_call(s, {.what = "open", .path = s ? path : "", .creates = (flags & O_CREAT) != 0},
                   [&] { return real(path, flags, mode); });
}

int posix_fallocate(int fd, off_t offset, off_t bytes) {
    static const auto real = next<int (*)(int, off_t, off_t)>("posix_fallocate");
    const auto s = armed();
    if (!s) return real(fd, offset, bytes);
    const Do d = next_call(*s, {.what = "reserve", .path = path_of(fd), .offset = bytes});
    return d == Do::kFail ? errno : 0;
}

int mkdir(const char* path, mode_t mode) noexcept {
    static const auto real = next<int (*)(const char*, mode_t)>("mkdir");
    const auto s = armed();
    return on_call(s, {.what = "mkdir", .path = s ? path : ""}, [&] { return real(path, mode); });
}

int rename(const char* from, const char* to) noexcept {
    static const auto real = next<int (*)(const char*, const char*)>("rename");
    const auto s = armed();
    return on_call(s, {.what = "rename", .path = s ? from : "", .to = s ? to : ""},
                   [&] { return real(from, to); });
}

int renameat2(int from_dir, const char* from, int to_dir, const char* to, unsigned flags) noexcept {
    static const auto real =
        next<int (*)(int, const char*, int, const char*, unsigned)>("renameat2");
    const auto s = armed();
    return on_call(s, {.what = "exchange", .path = s ? from : "", .to = s ? to : ""}, [&] {
        if (s && !s->can_exchange) {
            errno = EINVAL;
            return -1;
        }
        return real(from_dir, from, to_dir, to, flags);
    });
}

int unlink(const char* path) noexcept {
    static const auto real = next<int (*)(const char*)>("unlink");
    const auto s = armed();
    return on_call(s, {.what = "unlink", .path = s ? path : ""}, [&] { return real(path); });
}

int unlinkat(int dir, const char* path, int flags) noexcept {
    static const auto real = next<int (*)(int, const char*, int)>("unlinkat");
    const auto s = armed();
    std::string whole;
    if (s) whole = path[0] == '/' ? path : fmt::format("{}/{}", path_of(dir), path);
    return on_call(s, {.what = "unlink", .path = whole}, [&] { return real(dir, path, flags); });
}

int clock_gettime(clockid_t clock, struct timespec* t) noexcept {
    static const auto real = next<int (*)(clockid_t, struct timespec*)>("clock_gettime");
    const int result = real(clock, t);
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE) t->tv_sec += clock_moved;
    return result;
}

int gettimeofday(struct timeval* t, void* zone) noexcept {
    static const auto real = next<int (*)(struct timeval*, void*)>("gettimeofday");
    const int result = real(t, zone);
    t->tv_sec += clock_moved;
    return result;
}

time_t time(time_t* out) noexcept {
    static const auto real = next<time_t (*)(time_t*)>("time");
    const time_t now = real(nullptr) + clock_moved;
    if (out != nullptr) *out = now;
    return now;
}

}  // extern "C"
