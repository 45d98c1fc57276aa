// SPDX-License-Identifier: MIT
// Signals ask for a save; they never interrupt one. Floor 5.
#pragma once

#include <array>
#include <csignal>

namespace vt {

// While it lives: SIGTERM, SIGINT, SIGUSR1 and SIGHUP are remembered; SIGXFSZ is ignored (a write
// past the file size limit then fails with EFBIG like any other full disk), and SIGPIPE (a reader
// of the log that goes away does not end the run). A second SIGTERM or SIGINT ends the process by
// that signal, without saving; one that comes within kEcho of the first is the same request sent
// twice (a launcher and a terminal both deliver it) and is not counted. The destructor puts the
// handlers back that were there before. One at a time (kBug).
class SignalGuard {
  public:
    static constexpr double kEcho = 0.2;  // seconds

    SignalGuard();
    ~SignalGuard();
    SignalGuard(const SignalGuard&) = delete;
    SignalGuard& operator=(const SignalGuard&) = delete;

  private:
    std::array<struct sigaction, 6> before_{};
};

/// True after SIGTERM, SIGINT, SIGUSR1 or SIGHUP since the guard was made. This process only: ranks
/// agree with an all_reduce(kMax). Cheap enough for every loop that may take long.
[[nodiscard]] bool stop_requested();

/// The first such signal, or 0.
[[nodiscard]] int stop_signal();

/// While true, such a signal ends the process at once with kExitRequeue: what is under way (opening
/// data, loading a checkpoint) is merely done again by the next start. False in a new guard.
void nothing_to_save(bool yes);

}  // namespace vt
