// SPDX-License-Identifier: MIT
// Files: read whole, write atomically, POSIX errors as Error with path and reason.
// Floor 0.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace vt {

namespace fs = std::filesystem;

/// Throws kSystem "cannot <doing> <path>: <strerror(errno)>".
[[noreturn]] void raise_errno(std::string_view doing, const fs::path& path, std::string hint = {});

// An open file descriptor that closes itself. close() reports what the destructor cannot.
class Fd {
  public:
    Fd() = default;
    explicit Fd(int fd) : fd_(fd) {}
    ~Fd();
    Fd(Fd&& other) noexcept : fd_(other.release()) {}
    Fd& operator=(Fd&& other) noexcept;
    [[nodiscard]] int get() const { return fd_; }
    [[nodiscard]] bool open() const { return fd_ >= 0; }
    int release() {
        const int fd = fd_;
        fd_ = -1;
        return fd;
    }
    /// Closes and throws kSystem if the kernel reports an error.
    void close(const fs::path& path);

  private:
    int fd_ = -1;
};

[[nodiscard]] Fd open_read(const fs::path& path);
[[nodiscard]] Fd create_write(const fs::path& path);  // O_CREAT | O_TRUNC | O_CLOEXEC, 0666

[[nodiscard]] std::string read_file(const fs::path& path);
[[nodiscard]] Fd open_append(const fs::path& path);  // O_CREAT | O_APPEND, readable too, 0666
/// `line` at the end of a file of open_append, whole or not at all: kSystem if it cannot be
/// written, the file then ends as before (where even that fails, a warning says so).
void append_whole(const Fd& fd, std::string_view line, const fs::path& path);
/// All bytes or kSystem; retries EINTR and short writes.
void write_all(const Fd& fd, const void* data, int64_t bytes, const fs::path& path);
/// The same at `offset`, leaving the file position alone.
void pwrite_all(const Fd& fd, const void* data, int64_t bytes, int64_t offset,
                const fs::path& path);
/// Takes `bytes` of disk for the file at once, so that a full disk shows before anything is
/// written. File systems that cannot do that are left as they are.
void reserve_space(const Fd& fd, int64_t bytes, const fs::path& path);
/// Exactly `bytes` at `offset`; kData if the file ends before, kSystem on an I/O error.
void pread_all(const Fd& fd, void* data, int64_t bytes, int64_t offset, const fs::path& path);
void fsync_file(const Fd& fd, const fs::path& path);
void fsync_dir(const fs::path& dir);
/// Temp file beside `path`, written, synced, renamed over it, directory synced.
void write_atomic(const fs::path& path, std::string_view content);

}  // namespace vt
