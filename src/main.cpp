// SPDX-License-Identifier: MIT
// vtrain: reads the command line, runs one subcommand, turns errors into exit codes.
// Floor 7.
#include <exception>

#include <CLI/CLI.hpp>

#include "app/command_line.h"
#include "app/commands.h"
#include "app/ending.h"
#include "core/check.h"

int main(int argc, char** argv) {
    vt::end_orderly_on_terminate();
    CLI::App app{"vtrain: pre-trains video diffusion transformers"};
    app.set_version_flag("--version", "vtrain " VTRAIN_VERSION " (" VTRAIN_BUILD ")");
    vt::Work work;
    try {
        vt::add_all_commands(app, work);
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& e) {
            if (e.get_exit_code() == 0) {
                const int code = app.exit(e);  // prints help or version
                vt::expect_output_written();
                return code;
            }
            throw vt::command_line_error(app, e);
        }
        vt::check_numbers(app);
        if (!work) {
            fmt::print("{}", app.help());
            vt::raise(vt::Fault::kUser, "no command was given", "`vtrain --help` lists them");
        }
        const int code = work();
        // of a training run the folder holds all that matters
        if (!app.get_subcommands().empty() && !app.got_subcommand("train")) {
            vt::expect_output_written();
        }
        return code;
    } catch (const std::exception& e) {
        return vt::end_with(e);
    }
}
