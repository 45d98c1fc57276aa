// SPDX-License-Identifier: MIT
// How a process ends: one last line on stderr that says whose matter it is and whether starting
// again helps, in a form that scripts can read. Floor 7.
#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace vt {

/// "vtrain: ended: <kind>: <why>; exit <code>; restart helps: yes|no"; line ends in `why` become
/// "; ". Kinds:
///   done           0    all that was asked for
///   configuration  2    the command line or the configuration
///   data           3    a data or checkpoint file
///   system         4    storage, memory or network; `why` says which
///   code           5    a bug in vtrain
///   numerical      6    training diverged
///   requeue       75    saved on a signal or a time limit
///   signal             a second signal, nothing saved (printed by fault/signal.cpp)
[[nodiscard]] std::string ending_line(std::string_view kind, std::string_view why, int code);
void print_ending(std::string_view kind, std::string_view why, int code);

/// Prints an exception with its hint, then the ending; returns the exit code.
int end_with(const std::exception& error);

/// Raises kSystem where what was printed could not be written, say on a full disk: a command whose
/// answer is lost has not done its work.
void expect_output_written();

/// From here on an exception that nothing catches ends the process with such a line and code 5.
void end_orderly_on_terminate();

}  // namespace vt
