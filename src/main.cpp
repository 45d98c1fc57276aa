// SPDX-License-Identifier: MIT
// vtrain: reads the command line, runs one subcommand, turns errors into exit codes.
// Floor 7.
#include <exception>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/ending.h"
#include "core/check.h"

int main(int argc, char** argv) {
    vt::end_orderly_on_terminate();
    CLI::App app{"vtrain: pre-trains video diffusion transformers"};
    app.set_version_flag("--version", "vtrain " VTRAIN_VERSION " (" VTRAIN_BUILD ")");
    vt::Work work;
    constexpr int kUser = static_cast<int>(vt::Fault::kUser);
    try {
        vt::add_all_commands(app, work);
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& e) {
            if (app.exit(e) == 0) return 0;  // printed help or version; else the mistake
            vt::print_ending("configuration", e.what(), kUser);
            return kUser;
        }
        if (!work) {
            fmt::print("{}", app.help());
            vt::print_ending("configuration", "no command was given", kUser);
            return kUser;
        }
        return work();
    } catch (const std::exception& e) {
        return vt::end_with(e);
    }
}
