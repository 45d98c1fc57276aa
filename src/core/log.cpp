// SPDX-License-Identifier: MIT
#include "core/log.h"

#include <string>
#include <unistd.h>

namespace vt {

static void emit(int fd, std::string text) {
    text += '\n';
    const char* p = text.data();
    auto left = static_cast<ssize_t>(text.size());
    while (left > 0) {
        const ssize_t n = ::write(fd, p, static_cast<size_t>(left));
        if (n <= 0) return;  // a closed pipe must not end a training run
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
