// SPDX-License-Identifier: MIT
// Mistakes on the command line: one form, with the place, the nearest valid word and what is
// allowed.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/paths.h"

using namespace vt::test;

TEST_CASE("command line: mistakes are errors of one form") {
    struct Case {
        const char* arguments;
        const char* error;  // behind "vtrain: error: "
        const char* hint;   // part of the hint
    };
    const std::vector<Case> cases = {
        {"tarin", "vtrain: unknown subcommand 'tarin'; the nearest valid one is 'train'",
         "`vtrain --help`"},
        {"--cofnig x", "vtrain: unknown option '--cofnig'; the nearest valid one is '--config'",
         "`vtrain --help`"},
        {"train --confg=x",
         "vtrain train: unknown option '--confg'; the nearest valid one is '--config'",
         "`vtrain train --help`"},
        {"data stat x", "vtrain data: unknown subcommand 'stat'; the nearest valid one is 'stats'",
         "`vtrain data --help`"},
        {"data", "vtrain data: a subcommand is missing", "info, verify"},
        {"config shwo", "vtrain config: unknown subcommand 'shwo'; the nearest valid one is 'show'",
         ""},
        {"config show extra", "vtrain config show: unexpected argument 'extra'", ""},
        {"data stats x --sampels 3",
         "vtrain data stats: unknown option '--sampels'; the nearest valid one is '--samples'", ""},
        {"-x", "vtrain: unknown option '-x'", ""},
        {"--bogus data stats x", "vtrain: unknown option '--bogus'", "`vtrain --help`"},
        {"--config", "vtrain: --config lacks its value", "TOML file"},
        {"train --set", "vtrain train: --set lacks its value", "optim.lr=2e-4"},
        {"data import --out x --scale 1,2", "vtrain data import: --scale: At least 3 required but",
         "4,8,8"},
        {"train", "vtrain train: --config is required", "TOML file"},
        {"plot", "vtrain plot: runs is required", "Folders of runs"},
        {"sample --out x", "vtrain sample: --checkpoint is required", "step-N"},
        {"sample --checkpoint a --out x --steps 2000",
         "vtrain sample: --steps = 2000 is out of range; allowed: integer >= 1 and <= 1000", ""},
        {"sample --checkpoint a --out x --steps abc",
         "vtrain sample: --steps = abc has the wrong type; allowed: integer >= 1 and <= 1000", ""},
        {"sample --checkpoint a --out x --seed -1",
         "vtrain sample: --seed = -1 is out of range; allowed: integer >= 0", ""},
        {"data stats x --samples -3",
         "vtrain data stats: --samples = -3 is out of range; allowed: integer > 0", ""},
        {"data stats x --samples 2.5",
         "vtrain data stats: --samples = 2.5 has the wrong type; allowed: integer > 0", ""},
        {"data stats x --samples 99999999999999999999",
         "vtrain data stats: --samples = 99999999999999999999 is out of range; allowed: integer > "
         "0",
         ""},
        {"data stats x --samples 1e30",
         "vtrain data stats: --samples = 1e30 is out of range; allowed: integer > 0", ""},
        {"data stats x --fps nan",
         "vtrain data stats: --fps = nan is not a finite number; allowed: ", ""},
        {"data stats x --fps inf",
         "vtrain data stats: --fps = inf is not a finite number; allowed: ", ""},
        {"data synth --out x --dtype f23",
         "vtrain data synth: --dtype = f23 is not one of the choices; allowed: bf16, f32", ""},
        {"--set optim.lr", "--set optim.lr: not of the form section.key=value", "optim.lr=1e-3"},
        {"--set =3", "--set =3: not of the form section.key=value", ""},
        {"config show --set optim.lrr=3",
         "--set optim.lrr: unknown key 'optim.lrr'; the nearest valid one is 'optim.lr'", ""},
    };
    for (const Case& c : cases) {
        CAPTURE(std::string(c.arguments));
        const Ran r = run(program().string() + " " + c.arguments);
        INFO(r.output);
        CHECK(r.code == 2);
        const std::string error = std::string("vtrain: error: ") + c.error;
        CHECK(r.output.find(error) != std::string::npos);
        const size_t hint = r.output.find("  hint: ");
        CHECK(hint != std::string::npos);
        if (hint == std::string::npos) continue;
        CHECK(r.output.find(c.hint, hint) != std::string::npos);
        CHECK(r.output.find("\nvtrain: ended: configuration: ") != std::string::npos);
        CHECK(r.output.find("Run with --help") == std::string::npos);
    }
    const Ran none = run(program().string());
    CHECK(none.code == 2);
    CHECK(none.output.find("vtrain: error: no command was given") != std::string::npos);
    CHECK(run(program().string() + " --help").code == 0);
    CHECK(run(program().string() + " data stats --help").code == 0);
    CHECK(run(program().string() + " --version").code == 0);
}
