// SPDX-License-Identifier: MIT
// A program's own definition of a C library function comes before the library's.
#include "tests/data/read_shim.h"

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <memory>
#include <mutex>
#include <string_view>
#include <sys/mman.h>
#include <unistd.h>

namespace vt::test {

namespace {

struct Rule {
    std::string suffix;
    BadReads::Kind kind;
    int64_t left;
    int error_number;
    std::mutex mutex;
    std::condition_variable released_cv;
    bool released = false;
    int64_t calls = 0, hanging = 0;
};
std::mutex rule_mutex;
std::shared_ptr<Rule> rule;  // a reader that hangs keeps its own hold
std::atomic<bool> any{false};

std::string path_of(int fd) {
    std::array<char, 4096> buffer{};
    const std::string link = "/proc/self/fd/" + std::to_string(fd);
    const ssize_t n = ::readlink(link.c_str(), buffer.data(), buffer.size());
    return n > 0 ? std::string(buffer.data(), static_cast<size_t>(n)) : std::string();
}

}  // namespace

BadReads::BadReads(std::string suffix, Kind kind, int64_t calls, int error_number) {
    const std::lock_guard lock(rule_mutex);
    rule = std::make_shared<Rule>();
    rule->suffix = std::move(suffix);
    rule->kind = kind;
    rule->left = calls;
    rule->error_number = error_number;
    any = true;
}

void BadReads::release() {
    const std::lock_guard lock(rule->mutex);
    rule->released = true;
    rule->released_cv.notify_all();
}

BadReads::~BadReads() {
    release();
    const std::lock_guard lock(rule_mutex);
    any = false;
    rule.reset();
}

int64_t BadReads::calls() const {
    const std::lock_guard lock(rule->mutex);
    return rule->calls;
}

int64_t BadReads::hanging() const {
    const std::lock_guard lock(rule->mutex);
    return rule->hanging;
}

Stderr::Stderr() : saved_(::dup(2)), file_(::memfd_create("stderr", MFD_CLOEXEC)) {
    ::dup2(file_, 2);
}

Stderr::~Stderr() {
    ::dup2(saved_, 2);
    ::close(saved_);
    ::close(file_);
}

std::string Stderr::text() const {
    const off_t n = ::lseek(file_, 0, SEEK_END);
    std::string out(static_cast<size_t>(n), '\0');
    return ::pread(file_, out.data(), out.size(), 0) == n ? out : std::string();
}

}  // namespace vt::test

using namespace vt::test;

extern "C" ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
    using Pread = ssize_t (*)(int, void*, size_t, off_t);
    static const auto real = reinterpret_cast<Pread>(::dlsym(RTLD_NEXT, "pread"));
    if (!any) return real(fd, data, bytes, offset);
    std::shared_ptr<Rule> r;
    {
        const std::lock_guard lock(rule_mutex);
        r = rule;
    }
    if (!r || !path_of(fd).ends_with(r->suffix)) return real(fd, data, bytes, offset);
    BadReads::Kind kind{};
    {
        std::unique_lock lock(r->mutex);
        ++r->calls;
        if (r->left == 0) return real(fd, data, bytes, offset);
        if (r->left > 0) --r->left;
        kind = r->kind;
        if (kind == BadReads::Kind::kHang) {
            ++r->hanging;
            r->released_cv.wait(lock, [&] { return r->released; });
            --r->hanging;
        }
    }
    if (kind == BadReads::Kind::kError) {
        errno = r->error_number;
        return -1;
    }
    const ssize_t n = real(fd, data, bytes, offset);
    if (kind == BadReads::Kind::kWrong && n > 0) static_cast<uint8_t*>(data)[0] ^= uint8_t{1};
    return n;
}
