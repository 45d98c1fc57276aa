// SPDX-License-Identifier: MIT
// Weights out of a run, into another one: ckpt export, import, and training from what came in.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "ckpt/load.h"
#include "ckpt/run_dir.h"
#include "data/facts.h"
#include "model/diffusers.h"
#include "model/registry.h"
#include "model/wan_params.h"
#include "tests/e2e/job.h"

using namespace vt;
using namespace vt::test;

namespace {

// The tensors of one kind ("model", "adam_m", "ema0"), one after another in table order.
std::vector<float> values(const fs::path& checkpoint, const std::string& kind,
                          const ParamTable& table) {
    std::vector<float> all(static_cast<size_t>(count_elements(table)));
    std::vector<StateTensor> wanted;
    float* at = all.data();
    for (const ParamRow& row : table) {
        wanted.push_back({.name = kind + "/" + row.name,
                          .global = row.shape,
                          .local = Tensor(at, row.shape, DType::kF32)});
        at += row.shape.numel();
    }
    (void)load(checkpoint, wanted);
    return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

bool all_zero(const std::vector<float>& a) {
    return std::all_of(a.begin(), a.end(), [](float x) { return x == 0; });
}

// A run of five steps, and one of its averages as a diffusers folder and as a checkpoint again.
struct Moved {
    Job job;
    fs::path run = job.dir / "first", folder = job.dir / "folder", imported = job.dir / "imported";
    fs::path start = imported / step_name(0);
    ParamTable table;

    Moved() {
        Ran ran = job.train("first", "--set run.train_iters=5");
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        ran = Job::vtrain(fmt::format("ckpt export --checkpoint {} --out {} --ema 0", run.string(),
                                      folder.string()));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        ran = Job::vtrain(
            fmt::format("ckpt import --weights {} --out {}", folder.string(), imported.string()));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        table = wan::param_table(read_wan_config(folder));
    }
    [[nodiscard]] std::string resume() const {
        return "--set checkpoint.resume=" + start.string() + " ";
    }
};

// Nothing moves but the moments.
constexpr const char* kStill =
    "--set optim.lr=0 --set optim.min_lr=0 --set optim.lr_warmup_iters=0 ";

}  // namespace

TEST_CASE("weights: the exported config.json has the preset's sizes and the data's widths") {
    const Moved m;
    const LatentFacts facts = facts_from_json(read_info(m.run / step_name(5)).facts_json, "");
    const WanConfig wan = read_wan_config(m.folder);
    ModelOptions model;
    model.preset = "tiny";
    model.num_layers = 2;
    CHECK(wan == wan_config(model, facts));
    CHECK(wan.in_channels == facts.channels);
    CHECK(wan.text_dim == 16);
    CHECK(wan_config_from_json(wan_config_json(wan), "text") == wan);
    // the average of step 5, bit for bit
    CHECK(same_bits(values(m.start, "model", m.table),
                    values(m.run / step_name(5), "ema0", m.table)));
    CHECK(!same_bits(values(m.start, "model", m.table),
                     values(m.run / step_name(5), "model", m.table)));
}

TEST_CASE("weights: training from an import starts at exactly these weights") {
    const Moved m;
    // With no learning rate the weights and their averages stay, and the one step's moments are
    // (1 - beta) of its gradient, as they only are when they were zero before.
    Ran ran = m.job.train("still", m.resume() + kStill + "--set run.train_iters=1");
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    CHECK(ran.output.find("weights from " + m.start.string()) != std::string::npos);
    const fs::path still = m.job.dir / "still" / step_name(1);
    const std::vector<float> w = values(m.start, "model", m.table);
    CHECK(same_bits(values(still, "model", m.table), w));
    CHECK(same_bits(values(still, "ema0", m.table), w));
    CHECK(!all_zero(values(still, "adam_m", m.table)));

    // With gradients scaled to nothing the moments stay where they began.
    ran = m.job.train("zero",
                      m.resume() + kStill + "--set run.train_iters=1 --set optim.clip_grad=1e-30");
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    const fs::path zero = m.job.dir / "zero" / step_name(1);
    CHECK(all_zero(values(zero, "adam_v", m.table)));
    for (const float x : values(zero, "adam_m", m.table)) {
        if (std::abs(x) <= 1e-30F) continue;
        FAIL_CHECK("moment " << x);
        break;
    }
    CHECK(read_info(zero).cursor == 4);  // one batch: it began at draw 0
    CHECK(read_info(zero).extra.count("weights_only") == 0);
}

TEST_CASE("weights: the same command goes on after a stop, and imports resume in place") {
    const Moved m;
    REQUIRE(m.job.train("whole", m.resume()).code == 0);
    const std::string decay = "--set optim.lr_decay_iters=20 ";
    REQUIRE(m.job.train("parts", m.resume() + decay + "--set run.train_iters=10").code == 0);
    const Ran again = m.job.train("parts", m.resume() + decay);
    INFO(again.output);
    REQUIRE(again.code == 0);
    CHECK(again.output.find("resumed from") != std::string::npos);
    CHECK(again.output.find("set aside") == std::string::npos);
    const fs::path whole = m.job.dir / "whole" / step_name(20);
    const fs::path parts = m.job.dir / "parts" / step_name(20);
    for (const char* kind : {"model", "adam_m", "adam_v", "ema0"}) {
        CHECK(same_bits(values(whole, kind, m.table), values(parts, kind, m.table)));
    }
    // Another path means back: what came after is set aside, once.
    const std::string to_ten = decay + "--set run.train_iters=15 --set checkpoint.resume=" +
                               (m.job.dir / "parts/step-00000010").string();
    Ran back = m.job.train("parts", to_ten);
    INFO(back.output);
    CHECK(back.code == 0);
    CHECK(back.output.find("resumed from") != std::string::npos);
    CHECK(!fs::exists(parts));
    CHECK(find_latest(m.job.dir / "parts")->filename() == step_name(15));
    back = m.job.train("parts", to_ten);
    CHECK(back.output.find("nothing to do") != std::string::npos);

    // run.out is the folder of the import itself: auto finds it there
    const Ran place = m.job.train("imported");
    INFO(place.output);
    REQUIRE(place.code == 0);
    CHECK(place.output.find("weights from") != std::string::npos);
    const fs::path here = m.imported / step_name(20);
    CHECK(same_bits(values(whole, "model", m.table), values(here, "model", m.table)));
    CHECK(read_info(here).run_id != read_info(m.start).run_id);
}

TEST_CASE("weights: sizes that contradict [model] end with 2 and the keys' names") {
    const Moved m;
    const struct {
        const char *set, *key;
    } kWrong[] = {{"--set model.num_layers=3", "model.num_layers: 2 there, 3 here"},
                  {"--set model.ffn_dim=64", "model.ffn_dim: "},
                  {"--set model.patch_size=[1,1,1]", "model.patch_size: [1, 2, 2] there, "}};
    for (const auto& wrong : kWrong) {
        const Ran ran = m.job.train("bad", m.resume() + wrong.set);
        INFO(ran.output);
        CHECK(ran.code == 2);
        CHECK(ran.output.find(wrong.key) != std::string::npos);
        CHECK(!fs::exists(m.job.dir / "bad"));
    }
    const Ran none = m.job.train("bad", "--set checkpoint.resume=" + (m.job.dir / "no").string());
    CHECK(none.code == 2);
    CHECK(!fs::exists(m.job.dir / "bad"));
    const Ran full = Job::vtrain(
        fmt::format("ckpt import --weights {} --out {}", m.folder.string(), m.run.string()));
    CHECK(full.code == 2);
    CHECK(full.output.find("holds checkpoints already") != std::string::npos);
}

TEST_CASE("weights: sampling from an import says what is missing") {
    const Moved m;
    const Ran ran = Job::vtrain(fmt::format("sample --checkpoint {} --out {} --prompt x",
                                            m.imported.string(), (m.job.dir / "s").string()));
    INFO(ran.output);
    CHECK(ran.code == 2);
    CHECK(ran.output.find("imported weights") != std::string::npos);
    CHECK(!fs::exists(m.job.dir / "s"));
}
