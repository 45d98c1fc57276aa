// SPDX-License-Identifier: MIT
#include "app/commands.h"

namespace vt {

// void add_x_command(CLI::App& app, Work& work);  one declaration and one entry per subcommand

void add_all_commands(CLI::App& app, Work& work) {
    constexpr AddCommand kCommands[] = {nullptr};
    for (const AddCommand add : kCommands) {
        if (add != nullptr) add(app, work);
    }
}

}  // namespace vt
