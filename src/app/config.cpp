// SPDX-License-Identifier: MIT
// vtrain config: shows the resolved configuration of a run, and every key there is. Floor 7.
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/run_config.h"
#include "core/log.h"

namespace vt {

void add_config_command(CLI::App& app, Work& work) {
    CLI::App* config = app.add_subcommand("config", "Show a run's configuration, or every key");
    config->require_subcommand(1);

    struct ShowArgs {
        std::string file;
        std::vector<std::string> sets;
    };
    const auto args = std::make_shared<ShowArgs>();
    CLI::App* show = config->add_subcommand("show", "Print every key as the run would use it");
    show->add_option("--config", args->file, "TOML file of the run");
    show->add_option("--set", args->sets, "section.key=value, overrides the file")
        ->allow_extra_args(false);
    show->callback([args, &work] {
        work = [args] {
            fmt::print("{}", dump(load_run_config(args->file, args->sets)));
            return 0;
        };
    });

    CLI::App* keys = config->add_subcommand("keys", "List every key with its type and default");
    keys->callback([&work] {
        work = [] {
            fmt::print("{}", help_table());
            return 0;
        };
    });

    CLI::App* docs = config->add_subcommand("docs", "Print configs/README.md");
    docs->group("");  // for those who change keys; not in --help
    docs->callback([&work] {
        work = [] {
            fmt::print("{}", config_readme());
            return 0;
        };
    });
}

}  // namespace vt
