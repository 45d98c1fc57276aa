// SPDX-License-Identifier: MIT
// Mistakes on the command line, worded as those of a configuration are: the place, what is wrong,
// what is allowed or the nearest valid word, and a hint. Floor 7.
#pragma once

#include "core/check.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace vt {

/// "vtrain data: unknown subcommand 'stat'; the nearest valid one is 'stats'" (kUser), of what
/// parsing `app` threw.
[[nodiscard]] Error command_line_error(const CLI::App& app, const CLI::ParseError& mistake);

/// What the parser lets pass: kUser for an integer beyond 64 bits, which would be cut, and for a
/// number that is not finite.
void check_numbers(const CLI::App& app);

}  // namespace vt
