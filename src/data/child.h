// SPDX-License-Identifier: MIT
// The process in which the HDF5 library meets files of unknown origin: its start, its limits, its
// end.
// Floor 3.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include "core/file.h"

namespace vt {

// A running child and the end of the pipe that is its stdout. Killed and reaped when it goes.
struct Child {
    pid_t pid = -1;
    Fd out;
    Child() = default;
    Child(Child&&) = delete;
    ~Child();
    /// The wait status, or 0 where somebody else reaped it.
    int wait();
};

/// Starts `program` with the words (the first is its own name), nothing on stdin, stderr dropped.
/// kSystem if it cannot be started, saying `what` it is: "the index child".
void spawn_child(Child& child, std::string_view what, const fs::path& program,
                 const std::vector<std::string>& words);
/// kSystem: `what` ended as `status` says before it did anything, so that no file is to blame.
[[noreturn]] void refuse_child(std::string_view what, const fs::path& program, int status);
/// "died of signal 11 (Segmentation fault)", "ended with status 1"
[[nodiscard]] std::string describe_wait_status(int status);

using ChildClock = std::chrono::steady_clock;
/// Waits for bytes of the child's stdout and takes up to `bytes` of them: how many, 0 at the end of
/// the stream, -1 if none came before `deadline`.
[[nodiscard]] int64_t read_child(const Child& child, void* to, size_t bytes,
                                 ChildClock::time_point deadline);

// Why a child refuses a file, as the body of a frame.
struct Refusal {
    std::string reason, hint;
    [[nodiscard]] std::string encode() const { return reason + '\0' + hint; }
    [[nodiscard]] static Refusal decode(std::string_view body);
};

/// In the child: its stdout, for frames; what a library prints there goes to /dev/null from then
/// on. Not open if that cannot be done.
[[nodiscard]] Fd take_child_stdout();
/// In the child: limits on address space, files and core, and it dies with its parent.
void limit_child();
/// In the child: so many CPU seconds from now on.
void limit_child_cpu();

}  // namespace vt
