// SPDX-License-Identifier: MIT
// Loaded into vtrain with LD_PRELOAD: from the VT_STALL_AFTER-th read on, reads of files whose name
// ends in VT_STALL_FILE never come back, as on a file server that died.
#include <array>
#include <atomic>
#include <cstdlib>
#include <dlfcn.h>
#include <string>
#include <unistd.h>

extern "C" ssize_t pread(int fd, void* data, size_t bytes, off_t offset) {
    using Pread = ssize_t (*)(int, void*, size_t, off_t);
    static const auto real = reinterpret_cast<Pread>(::dlsym(RTLD_NEXT, "pread"));
    static std::atomic<long> reads{0};
    const char* suffix = std::getenv("VT_STALL_FILE");
    const char* after = std::getenv("VT_STALL_AFTER");
    if (suffix != nullptr && after != nullptr) {
        std::array<char, 4096> path{};
        const std::string link = "/proc/self/fd/" + std::to_string(fd);
        const ssize_t n = ::readlink(link.c_str(), path.data(), path.size());
        if (n > 0 && std::string(path.data(), static_cast<size_t>(n)).ends_with(suffix) &&
            ++reads > std::atol(after)) {
            for (;;) ::pause();
        }
    }
    return real(fd, data, bytes, offset);
}
