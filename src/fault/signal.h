// SPDX-License-Identifier: MIT
// Signals ask for a save; they never interrupt one. Floor 5.
#pragma once

#include <array>
#include <csignal>

namespace vt {

// While it lives: SIGTERM, SIGINT and SIGUSR1 are remembered, SIGXFSZ is ignored (a write past the
// file size limit then fails with EFBIG like any other full disk). A second SIGTERM or SIGINT ends
// the process by that signal, without saving; one that comes within kEcho of the first is the same
// request sent twice (a launcher and a terminal both deliver it) and is not counted.
// The destructor puts the handlers back that were there before. One at a time (kBug).
class SignalGuard {
  public:
    static constexpr double kEcho = 0.2;  // seconds

    SignalGuard();
    ~SignalGuard();
    SignalGuard(const SignalGuard&) = delete;
    SignalGuard& operator=(const SignalGuard&) = delete;

  private:
    std::array<struct sigaction, 4> before_{};
};

/// True after SIGTERM, SIGINT or SIGUSR1 since the guard was made. This process only: ranks agree
/// with an all_reduce(kMax). Cheap enough for every loop that may take long.
[[nodiscard]] bool stop_requested();

/// The first such signal, or 0.
[[nodiscard]] int stop_signal();

}  // namespace vt
