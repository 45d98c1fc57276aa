// SPDX-License-Identifier: MIT
#include "core/file.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "core/io_error.h"
#include "core/log.h"

namespace vt {

void raise_errno(std::string_view doing, const fs::path& path, std::string hint) {
    const int err = errno;
    throw IoError(err, fmt::format("cannot {} {}: {}", doing, path.string(), std::strerror(err)),
                  std::move(hint), Where::here());
}

Fd::~Fd() {
    if (fd_ >= 0) ::close(fd_);
}

Fd& Fd::operator=(Fd&& other) noexcept {
    if (this != &other) {
        if (fd_ >= 0) ::close(fd_);
        fd_ = other.release();
    }
    return *this;
}

void Fd::close(const fs::path& path) {
    // Linux frees the descriptor even when close() fails, so it is never tried twice.
    if (::close(release()) != 0 && errno != EINTR) raise_errno("close", path);
}

Fd open_read(const fs::path& path) {
    Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.open()) raise_errno("open", path);
    return fd;
}

Fd create_write(const fs::path& path) {
    Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
    if (!fd.open()) raise_errno("create", path);
    return fd;
}

std::string read_file(const fs::path& path) {
    const Fd fd = open_read(path);
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) raise_errno("stat", path);
    if (!S_ISREG(st.st_mode)) {
        raise(Fault::kUser, fmt::format("{} is not a regular file", path.string()));
    }
    std::string out(narrow<size_t>(st.st_size), '\0');
    pread_all(fd, out.data(), narrow<int64_t>(out.size()), 0, path);
    return out;
}

Fd open_append(const fs::path& path) {
    Fd fd(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
    if (!fd.open()) raise_errno("open", path);
    return fd;
}

void append_whole(const Fd& fd, std::string_view line, const fs::path& path) {
    const off_t before = ::lseek(fd.get(), 0, SEEK_END);
    try {
        write_all(fd, line.data(), narrow<int64_t>(line.size()), path);
    } catch (...) {
        // half a line would spoil the next one too
        if (before >= 0 && ::ftruncate(fd.get(), before) != 0) {
            warn("{} may hold a torn line", path.string());
        }
        throw;
    }
}

void write_all(const Fd& fd, const void* data, int64_t bytes, const fs::path& path) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
        // 1 GiB at a time: Linux writes at most 2^31 - 4096 bytes a call anyway
        const auto want =
            static_cast<size_t>(bytes < (int64_t{1} << 30) ? bytes : int64_t{1} << 30);
        const ssize_t n = ::write(fd.get(), p, want);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) raise_errno("write", path, "is the disk full?");
        p += n;
        bytes -= n;
    }
}

void pwrite_all(const Fd& fd, const void* data, int64_t bytes, int64_t offset,
                const fs::path& path) {
    const char* p = static_cast<const char*>(data);
    while (bytes > 0) {
        const auto want =
            static_cast<size_t>(bytes < (int64_t{1} << 30) ? bytes : int64_t{1} << 30);
        const ssize_t n = ::pwrite(fd.get(), p, want, offset);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) raise_errno("write", path, "is the disk full?");
        p += n;
        bytes -= n;
        offset += n;
    }
}

void reserve_space(const Fd& fd, int64_t bytes, const fs::path& path) {
    if (bytes <= 0) return;
    int err = 0;
    do {
        err = ::posix_fallocate(fd.get(), 0, bytes);  // returns the error, leaves errno alone
    } while (err == EINTR);
    if (err == 0 || err == EOPNOTSUPP || err == EINVAL || err == ENOSYS) return;
    errno = err;
    raise_errno(fmt::format("reserve {} bytes for", bytes), path, "is the disk full?");
}

void pread_all(const Fd& fd, void* data, int64_t bytes, int64_t offset, const fs::path& path) {
    char* p = static_cast<char*>(data);
    while (bytes > 0) {
        const ssize_t n = ::pread(fd.get(), p, static_cast<size_t>(bytes), offset);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) raise_errno("read", path);
        if (n == 0) {
            raise(Fault::kData,
                  fmt::format("{} ends at byte {}, {} bytes early", path.string(), offset, bytes));
        }
        p += n;
        bytes -= n;
        offset += n;
    }
}

void fsync_file(const Fd& fd, const fs::path& path) {
    if (::fsync(fd.get()) != 0) raise_errno("sync", path);
}

void fsync_dir(const fs::path& dir) {
    const Fd fd(::open(dir.empty() ? "." : dir.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd.open()) raise_errno("open directory", dir);
    fsync_file(fd, dir);
}

void write_atomic(const fs::path& path, std::string_view content) {
    fs::path temp = path;
    temp += fmt::format(".tmp{}", ::getpid());
    try {
        Fd fd = create_write(temp);
        write_all(fd, content.data(), narrow<int64_t>(content.size()), temp);
        fsync_file(fd, temp);
        fd.close(temp);
        if (::rename(temp.c_str(), path.c_str()) != 0) raise_errno("rename into", path);
    } catch (...) {
        ::unlink(temp.c_str());
        throw;
    }
    fsync_dir(path.parent_path());
}

}  // namespace vt
