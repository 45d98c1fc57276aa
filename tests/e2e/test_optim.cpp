// SPDX-License-Identifier: MIT
// A run.toml with groups, frozen parameters, a learning rate of its own and a table of averages.
#include <cmath>
#include <fstream>

#include "ckpt/load.h"
#include "tests/e2e/job.h"
#include "train/metrics.h"

using namespace vt;
using namespace vt::test;

namespace {

// Beside the job's own file: what it says of [optim] replaced.
fs::path with_optim(const Job& job, const std::string& optim) {
    std::string text = read_file(job.config);
    const size_t begin = text.find("[optim]"), end = text.find("[checkpoint]");
    text.replace(begin, end - begin, "[optim]\n" + optim);
    const fs::path file = job.dir / "optim.toml";
    std::ofstream(file) << text;
    return file;
}

int line_of(const fs::path& file, const std::string& part) {
    const std::string text = read_file(file);
    const auto at = static_cast<std::ptrdiff_t>(text.find(part));
    return 1 + static_cast<int>(std::count(text.begin(), text.begin() + at, '\n'));
}

const char* const kOptim = R"(lr = 2e-3
min_lr = 2e-4
lr_decay_style = "wsd"
lr_warmup_iters = 4
lr_wsd_decay_iters = 8
freeze = ["patch_embedding.*", "blocks.0.*", "!blocks.0.attn1.*"]
ema_decay = [0.9]
[[optim.groups]]
params = ["condition_embedder.*"]
lr_scale = 0.1
[[optim.groups]]
params = ["proj_out.*", "scale_shift_table"]
lr = 4e-3
weight_decay = 0.0
[[optim.ema]]
decay = 0.99
warmup = "power"
update_after_step = 2
)";

}  // namespace

TEST_CASE("program: groups, frozen parameters, wsd and a table of averages") {
    const Job job;
    const fs::path file = with_optim(job, kOptim), out = job.dir / "run";
    const std::string args =
        fmt::format("--config {} --set run.out={} ", file.string(), out.string());
    const Ran dry = Job::vtrain(args + "--dry-run");
    INFO(dry.output);
    REQUIRE(dry.code == 0);
    for (const char* part : {"condition_embedder.*  ", "proj_out.* scale_shift_table", "others  ",
                             "frozen  ", "peak lr 0.004"}) {
        CAPTURE(part);
        CHECK(dry.output.find(part) != std::string::npos);
    }
    const Ran ran = Job::vtrain(args);
    INFO(ran.output);
    REQUIRE(ran.code == 0);
    std::vector<double> lr;
    bool seen = false;
    for (const MetricRow& row : read_metrics(out / "metrics.jsonl")) {
        if (!row.eval) lr.push_back(row.lr.value_or(-1));
        for (const auto& [name, loss] : row.extra) {
            seen = seen || (row.eval && name.find("loss ema 0.99 power") == 0 && loss > 0);
        }
    }
    CHECK(seen);
    REQUIRE(lr.size() == 20);
    for (size_t i = 0; i < 20; ++i) {
        const double n = double(i) + 1;
        const double want = n <= 4 ? 2e-3 * n / 4 : n <= 12 ? 2e-3 : 2e-3 - 1.8e-3 * (n - 12) / 8;
        CHECK(std::abs(lr[i] - want) < 1e-17);
    }
    const std::vector<std::string> names = tensor_names(*find_latest(out));
    const auto has = [&](const std::string& name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    };
    CHECK(has("ema1/proj_out.weight"));
    CHECK(has("adam_m/blocks.0.attn1.to_q.weight"));
    CHECK(has("model/patch_embedding.weight"));
    CHECK(!has("adam_m/patch_embedding.weight"));
    CHECK(!has("adam_v/blocks.0.ffn.net.2.weight"));

    // thawed on resume: allowed, and said
    const Ran more = Job::vtrain(args + "--set run.train_iters=22 --set 'optim.freeze=[]'");
    INFO(more.output);
    CHECK(more.code == 0);
    CHECK(more.output.find("were frozen in the checkpoint and are trained") != std::string::npos);
    CHECK(Job::vtrain(fmt::format("ckpt export --checkpoint {} --ema 0.99 --out {}", out.string(),
                                  (job.dir / "weights").string()))
              .code == 0);
}

TEST_CASE("program: what [optim] cannot mean is refused with its line") {
    const Job job;
    const struct {
        const char *optim, *line, *says;
    } wrong[] = {
        {"lr_decay_style = \"wsd\"\n", "lr_decay_style", "allowed: 1 to 20"},
        {"lr = 1e-3\nfreeze = [\"blocks.0.atn1.*\"]\n", "freeze",
         "the nearest is \"blocks.0.attn1."},
        {"freeze = [\"*\"]\n", "freeze", "no parameter is left to train"},
        {"[[optim.groups]]\nparams = [\"hd.*\"]\n", "[[optim.groups]]",
         "no parameter is named like \"hd.*\""},
        {"[[optim.ema]]\ndecay = 0.9\nmin_decay = 0.95\nwarmup = \"power\"\n", "[[optim.ema]]",
         "min_decay = 0.95 is larger than decay 0.9"},
        {"lr_decay_style = \"step\"\n", "lr_decay_style", "inverse_sqrt"},
    };
    for (const auto& w : wrong) {
        CAPTURE(w.optim);
        const fs::path file = with_optim(job, w.optim);
        const Ran ran = Job::vtrain(
            fmt::format("--config {} --set run.out={}", file.string(), (job.dir / "bad").string()));
        INFO(ran.output);
        CHECK(ran.code == 2);
        CHECK(ran.output.find(fmt::format("optim.toml:{}: ", line_of(file, w.line))) !=
              std::string::npos);
        CHECK(ran.output.find(w.says) != std::string::npos);
        CHECK(!fs::exists(job.dir / "bad"));
    }
}
