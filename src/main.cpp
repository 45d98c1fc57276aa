// SPDX-License-Identifier: MIT
// vtrain: reads the command line, runs one subcommand, turns errors into exit codes.
// Floor 7.
#include <exception>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "core/check.h"

namespace {

void complain(const std::string& text) {
    fmt::print(stderr, "vtrain: error: {}\n", text);
}

}  // namespace

int main(int argc, char** argv) {
    CLI::App app{"vtrain: pre-trains video diffusion transformers"};
    app.set_version_flag("--version", "vtrain " VTRAIN_VERSION " (" VTRAIN_BUILD ")");
    vt::Work work;
    try {
        vt::add_all_commands(app, work);
        try {
            app.parse(argc, argv);
        } catch (const CLI::ParseError& e) {
            const int code = app.exit(e);  // prints help, version or the mistake
            return code == 0 ? 0 : static_cast<int>(vt::Fault::kUser);
        }
        if (!work) {
            fmt::print("{}", app.help());
            return static_cast<int>(vt::Fault::kUser);
        }
        return work();
    } catch (const vt::Error& e) {
        complain(e.what());
        return e.exit_code();
    } catch (const std::bad_alloc&) {
        complain("out of memory");
        return static_cast<int>(vt::Fault::kSystem);
    } catch (const std::exception& e) {
        complain(fmt::format("unexpected: {}", e.what()));
        return static_cast<int>(vt::Fault::kBug);
    }
}
