// SPDX-License-Identifier: MIT
// The configuration of a whole run: the canonical file, rules that join keys, the program's exit
// code, configs/README.md.
#include <fstream>
#include <set>

#include <doctest/doctest.h>

#include "app/run_config.h"
#include "core/file.h"
#include "core/rng.h"
#include "tests/paths.h"

namespace vt {

namespace {

const char* const kLeast =
    "[run]\nout = \"runs/x\"\ntrain_iters = 10\n[data]\ntrain = [\"d/*.h5\"]\n"
    "global_batch_size = 4\n";

RunConfig read(const std::string& text, const std::vector<std::string>& sets = {}) {
    const test::TempDir dir;
    std::ofstream(dir / "run.toml") << text;
    return load_run_config(dir / "run.toml", sets);
}

std::string mistake(const std::string& text, const std::vector<std::string>& sets = {}) {
    try {
        (void)read(text, sets);
    } catch (const Error& e) {
        CHECK(e.exit_code() == 2);
        return e.message();
    }
    return "no error";
}

bool has(const std::string& text, const std::string& part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE("'" << part << "' is not in: " << text);
    return found;
}

}  // namespace

TEST_CASE("run config: a canonical file") {
    const RunConfig c = read(R"(
[run]
name = "smoke"
out = "runs/smoke"
seed = 1
device = "auto"
precision = "bf16"
train_iters = 400
[model]
family = "wan"
preset = "tiny"
recompute = "none"
[objective]
kind = "rectified_flow"
timestep_sampling = "logit_normal"
flow_shift = 1.0
cfg_dropout_prob = 0.1
loss_reduction = "sample"
[data]
train = [{ path = "/data/moving-shapes/*.h5", weight = 1.0 }]
valid = ["valid/*.h5"]
global_batch_size = 16
micro_batch_size = 4
[optim]
lr = 1e-3
lr_decay_style = "cosine"
lr_warmup_iters = 20
weight_decay = 1e-3
clip_grad = 1.0
ema_decay = [0.999]
[parallel]
tensor_model_parallel_size = 1
cp = 1
pp = 1
ep = 1
zero_stage = 1
[checkpoint]
save_interval = 100
keep_last = 3
resume = "auto"
[log]
log_interval = 10
eval_interval = 100
sample_interval = 200
)");
    CHECK(c.run.train_iters == 400);
    CHECK(c.data.train.at(0).path == "/data/moving-shapes/*.h5");
    CHECK(c.data.valid.at(0).front() == '/');
    CHECK(c.optim.ema_decay == std::vector<double>{0.999});
    CHECK(c.checkpoint.save_interval == 100);

    const std::string text = dump(c);
    const RunConfig back = parse_run_config(text, "copy", "/elsewhere");
    CHECK(dump(back) == text);
    CHECK(back.data.valid == c.data.valid);
}

TEST_CASE("run config: the files of configs/ are accepted") {
    int files = 0;
    for (const auto& entry : fs::directory_iterator(test::source_dir() / "configs")) {
        if (entry.path().extension() != ".toml") continue;
        CAPTURE(entry.path().string());
        ++files;
        const RunConfig c = load_run_config(entry.path(), {});
        CHECK(c.run.name == entry.path().stem().string());
        (void)make_mesh(c.parallel, 1, 0);
    }
    CHECK(files >= 2);
}

TEST_CASE("run config: required keys") {
    const std::string none = mistake("");
    CHECK(has(none, "run.out is required"));
    CHECK(has(none, "run.train_iters is required"));
    CHECK(has(none, "data.train is required"));
    CHECK(has(mistake("[run]\nout = \"x\"\ntrain_iters = 1\n[data]\ntrain = []\n"),
              "run.toml:5: data.train = [] is empty"));
    CHECK(has(mistake("[run]\nout = \"\"\ntrain_iters = 1\n[data]\ntrain = \"x\"\n"), "is empty"));
    CHECK(load_run_config({}, {"run.out=x", "run.train_iters=1", "data.train=/d.h5"}).run.out ==
          "x");
}

TEST_CASE("run config: ranges of single keys") {
    const std::vector<std::string> refused = {
        "run.train_iters=0",
        "run.seed=-1",
        "run.precision=fp16",
        "optim.adam_beta1=1.0",
        "optim.adam_beta2=-0.1",
        "optim.adam_eps=0",
        "optim.ema_decay=[1.0]",
        "optim.ema_decay=[0.9, 0]",
        "optim.lr=-1",
        "optim.lr=nan",
        "checkpoint.keep_last=1",
        "parallel.tp=0",
        "parallel.zero_stage=4",
        "data.global_batch_size=0",
        "data.micro_batch_size=0",
        "objective.flow_shift=0",
        "objective.cfg_dropout_prob=1.5",
        "log.log_interval=0",
        "optim.lr_decay_style=step",
        "model.family=unet",
    };
    for (const std::string& set : refused) {
        CAPTURE(set);
        CHECK(has(mistake(kLeast, {set}), "allowed: "));
    }
}

TEST_CASE("run config: rules that join keys name both and the place") {
    CHECK(has(mistake(std::string(kLeast) + "micro_batch_size = 8\n"),
              "run.toml:7: [data] micro_batch_size = 8 is larger than global_batch_size = 4"));
    CHECK(has(mistake(std::string(kLeast) + "rampup_batch_size = [1, 1]\n"),
              "run.toml:7: data.rampup_batch_size has 2 numbers"));
    CHECK(has(mistake(std::string(kLeast) + "rampup_batch_size = [1, 2, 100]\n"),
              "run.toml:7: [data] rampup_batch_size starts at 1 and rises by 2, which does not "
              "reach global_batch_size = 4"));
    CHECK(has(mistake(std::string(kLeast) + "rampup_batch_size = [8, 1, 100]\n"), "does not"));
    CHECK(has(mistake(kLeast, {"optim.lr_warmup_iters=11"}),
              "--set optim.lr_warmup_iters: optim.lr_warmup_iters = 11 is larger than "
              "run.train_iters = 10"));
    CHECK(has(mistake(kLeast, {"optim.lr_warmup_iters=5", "optim.lr_decay_iters=5"}),
              "must be larger than"));
    CHECK(has(mistake(kLeast, {"optim.min_lr=1", "optim.lr=0.1"}), "min_lr = 1 is larger"));
    CHECK(has(mistake(kLeast, {"model.patch_size=[1, 2]"}), "allowed: [t, h, w]"));
    CHECK(has(mistake(kLeast, {"log.eval_interval=5"}), "data.valid is empty"));
    CHECK(has(mistake(kLeast, {"optim.ema_decay=[0.9, 0.9]"}), "holds 0.9 twice"));
    const std::vector<std::string> ddpm = {"objective.kind=ddpm", "log.sample_interval=5"};
    const auto with = [&](const std::string& set) {
        std::vector<std::string> sets = ddpm;
        sets.push_back(set);
        return mistake(kLeast, sets);
    };
    CHECK(mistake(kLeast, ddpm) == "no error");
    CHECK(with("log.sample_solver=ddpm") == "no error");
    CHECK(has(with("log.sample_solver=unipc"),
              "--set log.sample_solver: log.sample_solver = \"unipc\" with objective.kind = "));
    CHECK(has(with("log.sample_shift=3"), "--set log.sample_shift: log.sample_shift = 3 with"));
    CHECK(has(mistake(kLeast, {"log.sample_interval=5", "log.sample_solver=ddim"}),
              "log.sample_solver = \"ddim\" with objective.kind = \"rectified_flow\""));
    CHECK(mistake(kLeast, {"optim.lr_warmup_iters=10", "data.micro_batch_size=4"}) == "no error");
}

TEST_CASE("run config: damaged files give a configuration or the user's error, never another") {
    const std::string whole = read_file(test::source_dir() / "configs/smoke.toml");
    int refused = 0;
    for (uint64_t i = 0; i < 3000; ++i) {
        std::string text = whole;
        const auto r = philox::block(1, Purpose::kTest, 8, i);
        const size_t at = r[0] % text.size(), from = r[1] % text.size(), n = r[2] % 24;
        switch (r[3] % 4) {
            case 0:
                text[at] = static_cast<char>(r[2]);
                break;
            case 1:
                text.erase(at, n);
                break;
            case 2:
                text.insert(at, text.substr(from, n));
                break;
            default:
                text.resize(at);
                break;
        }
        CAPTURE(i);
        try {
            (void)parse_run_config(text, "t.toml", "/base");
        } catch (const Error& e) {
            ++refused;
            REQUIRE(e.exit_code() == 2);
        }
    }
    CHECK(refused > 1000);
    CHECK(refused < 3000);
}

TEST_CASE("run config: degrees of parallelism are validated with the equation") {
    const auto message = [](ParallelOptions o, int world) -> std::string {
        try {
            return make_mesh(o, world, 0).str();
        } catch (const Error& e) {
            CHECK(e.exit_code() == 2);
            return e.message();
        }
    };
    CHECK(message({}, 1) == "dp 1 x tp 1 x cp 1 x pp 1 (ep 1), 1 rank");
    CHECK(has(message({.tp = 2, .pp = 3}, 1), "tp*cp*pp = 2*1*3 = 6 does not divide the job's 1 "));
    CHECK(has(message({.tp = 1 << 20, .cp = 1 << 20, .pp = 1 << 20}, 1), "does not divide"));
    CHECK(has(message({.ep = 2}, 1), "ep = 2 does not divide dp*cp = 1*1 = 1"));
    CHECK(has(message({}, 4), "not available in this build"));
    CHECK(has(message({.tp = 2}, 4), "dp*tp*cp*pp = 2*2*1*1 = 4 ranks"));
}

TEST_CASE("run config: every key is written once, with help") {
    RunConfig c;
    std::set<std::string> names;
    for (const Field& row : fields(c)) {
        CAPTURE(row.key);
        CHECK(row.key.find('.') != std::string::npos);
        CHECK(row.help.size() > 10);
        CHECK(row.help.back() == '.');
        CHECK(names.insert(row.key).second);
        for (const std::string& alias : row.aliases) CHECK(names.insert(alias).second);
        CHECK(help_table().find(row.key.substr(row.key.find('.') + 1)) != std::string::npos);
    }
}

TEST_CASE("run config: configs/README.md is what the rows say") {
    // after a change: build/release/vtrain config docs > configs/README.md
    CHECK(read_file(test::source_dir() / "configs/README.md") == config_readme());
}

TEST_CASE("run config: the program answers with exit code 2 and the mistake") {
    const test::TempDir dir;
    std::ofstream(dir / "run.toml") << kLeast << "micro_batch_szie = 2\n";
    const std::string program = test::program().string();
    const std::string file = (dir / "run.toml").string();
    test::Ran bad = test::run(program + " config show --config " + file);
    CHECK(bad.code == 2);
    CHECK(has(bad.output,
              "run.toml:7: unknown key 'data.micro_batch_szie'; the nearest valid one is "
              "'data.micro_batch_size'"));
    std::ofstream(dir / "run.toml") << kLeast;
    test::Ran good = test::run(program + " config show --config " + file + " --set optim.lr=0.25");
    CHECK(good.code == 0);
    CHECK(has(good.output, "\nlr = 0.25\n"));
    CHECK(test::run(program + " config show --config " + (dir / "no.toml").string()).code == 2);
    CHECK(test::run(program + " config docs").output == config_readme());
}

}  // namespace vt
