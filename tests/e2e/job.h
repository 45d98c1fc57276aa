// SPDX-License-Identifier: MIT
// A small job for tests of the whole program: shards of moving shapes and a run.toml beside them.
#pragma once

#include <fmt/format.h>
#include <fstream>
#include <string>

#include <doctest/doctest.h>

#include "tests/paths.h"

namespace vt::test {

struct Job {
    TempDir dir;
    std::filesystem::path data = dir / "data", config = dir / "run.toml";

    explicit Job(int clips = 12, const std::string& synth = "--size 16x16 --frames 5") {
        const Ran made = vtrain(fmt::format(
            "data synth --out {} --count {} --valid 4 {} --temporal-levels 1 --spatial-levels 2 "
            "--text-dim 16 --text-len 8 --seed 3",
            data.string(), clips, synth));
        INFO(made.output);
        REQUIRE(made.code == 0);
        std::ofstream(config) << R"(
[run]
out = "runs/none"
seed = 1
train_iters = 20
[model]
preset = "tiny"
num_layers = 2
[data]
train = ["data/*.h5"]
valid = ["data/valid/*.h5"]
global_batch_size = 4
micro_batch_size = 2
[optim]
lr = 2e-3
lr_warmup_iters = 3
lr_decay_style = "cosine"
ema_decay = [0.9]
[checkpoint]
save_interval = 5
[log]
log_interval = 1
eval_interval = 10
eval_samples = 4
)";
    }

    static Ran vtrain(const std::string& args) { return run(program().string() + " " + args); }

    // `vtrain --config run.toml` into dir/<out>.
    [[nodiscard]] Ran train(const std::string& out, const std::string& more = "") const {
        return vtrain(fmt::format("--config {} --set run.out={} {}", config.string(),
                                  (dir / out).string(), more));
    }
};

}  // namespace vt::test
