// SPDX-License-Identifier: MIT
// Contract checks that stay on in release builds, and the one exception type.
// Floor 0.
#pragma once

#include <cstdint>
#include <fmt/core.h>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

namespace vt {

// Whose fault an error is decides the exit code and whether a restart can help.
//   kUser      a config, flag or file name the user gave       exit 2, do not restart
//   kData      a data or checkpoint file is bad                exit 3, do not restart
//   kSystem    the machine failed (disk, memory, network)      exit 4, restart may help
//   kBug       a contract inside vtrain was broken             exit 5, do not restart
//   kDiverged  training diverged past its policy               exit 6, do not restart
enum class Fault : int { kUser = 2, kData = 3, kSystem = 4, kBug = 5, kDiverged = 6 };

// Saved on a signal or a time limit; whoever started the job should start it again.
inline constexpr int kExitRequeue = 75;

// Where a check was written. std::source_location is not used because clang 14 (clang-tidy)
// cannot see it with this libstdc++.
struct Where {
    const char* file = "";
    int line = 0;
    static constexpr Where here(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
        return {file, line};
    }
};

class Error : public std::runtime_error {
  public:
    Error(Fault fault, std::string message, std::string hint, Where at);
    [[nodiscard]] Fault fault() const noexcept { return fault_; }
    [[nodiscard]] int exit_code() const noexcept { return static_cast<int>(fault_); }
    [[nodiscard]] const std::string& message() const noexcept { return message_; }
    [[nodiscard]] const std::string& hint() const noexcept { return hint_; }

  private:
    Fault fault_;
    std::string message_;  // rule, values, place
    std::string hint_;     // what to do; may be empty
};

/// Throws Error. The source line is part of what() only for kBug: users act on the message,
/// developers on the line.
[[noreturn]] void raise(Fault fault, std::string message, std::string hint = {},
                        Where at = Where::here());

[[noreturn]] void check_failed(const char* expr, const std::string& message, Where at);

/// Integer conversion that may not change the value; kBug if it would.
template <typename To, typename From>
[[nodiscard]] constexpr To narrow(From from) {
    const To to = static_cast<To>(from);
    if (static_cast<From>(to) != from || ((to < To{}) != (from < From{}))) {
        raise(Fault::kBug, fmt::format("narrow: {} does not fit the target type", from));
    }
    return to;
}

/// a / b where b must divide a; kBug otherwise.
[[nodiscard]] int64_t div_exact(int64_t a, int64_t b);
[[nodiscard]] constexpr int64_t div_up(int64_t a, int64_t b) {
    return (a + b - 1) / b;
}
[[nodiscard]] constexpr int64_t round_up(int64_t a, int64_t b) {
    return div_up(a, b) * b;
}

}  // namespace vt

// Never compiled out. The message (fmt syntax) states the values, the expression states the rule.
#define VT_CHECK(cond, ...)                                                             \
    do {                                                                                \
        if (!(cond)) [[unlikely]]                                                       \
            ::vt::check_failed(#cond, ::fmt::format(__VA_ARGS__), ::vt::Where::here()); \
    } while (0)
