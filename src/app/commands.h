// SPDX-License-Identifier: MIT
// The subcommands. Each lives in one file of this folder and adds itself to the parser: its
// options, and a callback that stores the work to do. main runs that after parsing and turns Errors
// into exit codes. Floor 7.
#pragma once

#include <functional>

namespace CLI {
class App;
}

namespace vt {

using Work = std::function<int()>;  // returns the exit code

using AddCommand = void (*)(CLI::App& app, Work& work);

/// Every subcommand, in the order of --help. One line each, in commands.cpp.
void add_all_commands(CLI::App& app, Work& work);

}  // namespace vt
