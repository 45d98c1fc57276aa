// SPDX-License-Identifier: MIT
#include "app/commands.h"

namespace vt {

// void add_x_command(CLI::App& app, Work& work);  one declaration and one entry per subcommand
void add_train_command(CLI::App& app, Work& work);
void add_sample_command(CLI::App& app, Work& work);
void add_ckpt_command(CLI::App& app, Work& work);
void add_config_command(CLI::App& app, Work& work);
void add_forward_command(CLI::App& app, Work& work);
void add_plot_command(CLI::App& app, Work& work);
void add_report_command(CLI::App& app, Work& work);
void add_data_command(CLI::App& app, Work& work);

void add_all_commands(CLI::App& app, Work& work) {
    constexpr AddCommand kCommands[] = {
        add_train_command,   add_sample_command, add_ckpt_command,   add_config_command,
        add_forward_command, add_plot_command,   add_report_command, add_data_command,
    };
    for (const AddCommand add : kCommands) add(app, work);
}

}  // namespace vt
