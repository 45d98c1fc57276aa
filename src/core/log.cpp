// SPDX-License-Identifier: MIT
#include "core/log.h"

#include <cerrno>
#include <cstdio>
#include <string>
#include <unistd.h>

namespace vt {

static void emit(int fd, std::string text) {
    text += '\n';
    const char* p = text.data();
    auto left = static_cast<ssize_t>(text.size());
    while (left > 0) {
        const ssize_t n = ::write(fd, p, static_cast<size_t>(left));
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) {
            // A closed pipe or a full disk must not end a training run, but whoever's answer is
            // lost must be able to know: stdio tries what is left, and its stream keeps the error.
            if (fd != STDOUT_FILENO) return;
            std::fwrite(p, 1, static_cast<size_t>(left), stdout);
            std::fflush(stdout);
            return;
        }
        p += n;
        left -= n;
    }
}

void print_line(std::string_view line) {
    emit(STDOUT_FILENO, std::string(line));
}
void warn_line(std::string_view line) {
    emit(STDERR_FILENO, "vtrain: warning: " + std::string(line));
}

}  // namespace vt
