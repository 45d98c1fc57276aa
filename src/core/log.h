// SPDX-License-Identifier: MIT
// Console messages of one process: stdout for what the user asked to see, stderr for warnings.
// One write() per line, so lines of threads and of the shell do not mix.
// Floor 0.
#pragma once

#include <fmt/core.h>
#include <string_view>
#include <utility>

namespace vt {

void print_line(std::string_view line);  // stdout, newline added
void warn_line(std::string_view line);   // stderr, "vtrain: warning: " in front, newline added

template <typename... Args>
void say(fmt::format_string<Args...> f, Args&&... args) {
    print_line(fmt::format(f, std::forward<Args>(args)...));
}
template <typename... Args>
void warn(fmt::format_string<Args...> f, Args&&... args) {
    warn_line(fmt::format(f, std::forward<Args>(args)...));
}

}  // namespace vt
