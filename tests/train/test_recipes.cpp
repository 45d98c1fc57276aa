// SPDX-License-Identifier: MIT
// Whole runs with groups, frozen parameters, learning rates by samples, and averages of all kinds.
#include <cmath>
#include <limits>
#include <set>

#include <doctest/doctest.h>

#include "model/registry.h"
#include "optim/groups.h"
#include "tests/fault/plant.h"
#include "tests/support/alloc_watch.h"
#include "tests/train/rig.h"

using namespace vt;
using namespace vt::test;

namespace {

const std::vector<std::array<int64_t, 4>> kTwoShapes = {{4, 2, 4, 6}, {4, 1, 6, 4}};

ParamTable table_of(const RunConfig& c, const Dataset& data) {
    return make_model(c.model, data.facts(), make_precision(c.run.precision, c.model))->params();
}

using State = std::vector<std::pair<std::string, std::vector<float>>>;

// The tensors of some kinds, in table order, kind after kind; those that the checkpoint lacks
// empty.
State read_kinds(const fs::path& dir, const ParamTable& table,
                 const std::vector<std::string>& kinds) {
    const std::vector<std::string> names = tensor_names(dir);
    const std::set<std::string> stored(names.begin(), names.end());
    State out;
    std::vector<StateTensor> wanted;
    for (const std::string& kind : kinds) {
        for (const ParamRow& row : table) {
            const std::string name = kind + "/" + row.name;
            const bool has = stored.count(name) != 0;
            out.emplace_back(name, std::vector<float>(has ? size_t(row.shape.numel()) : 0));
        }
    }
    for (size_t i = 0; i < out.size(); ++i) {
        auto& [name, values] = out[i];
        const Shape& shape = table[i % table.size()].shape;
        if (values.empty()) continue;
        wanted.push_back({.name = name,
                          .global = shape,
                          .local = Tensor(values.data(), shape, DType::kF32),
                          .rect = {}});
    }
    (void)load(dir, wanted);
    return out;
}

State initial(const ParamTable& table) {
    ParamStore store(table, {}, false);
    store.reserve();
    fill_store(store);
    State out;
    for (size_t i = 0; i < table.size(); ++i) {
        const float* p = store.master()[i].as<float>();
        out.emplace_back("model/" + table[i].name,
                         std::vector<float>(p, p + table[i].shape.numel()));
    }
    return out;
}

struct LoggedLr {
    std::vector<double> lr;
    std::vector<int64_t> samples;
};

LoggedLr logged(const RunConfig& c) {
    LoggedLr out;
    for (const MetricRow& row : read_metrics(fs::path(c.run.out) / "metrics.jsonl")) {
        if (row.eval) continue;
        out.lr.push_back(row.lr.value_or(-1));
        out.samples.push_back(row.consumed_samples.value_or(-1));
    }
    return out;
}

// Everything at once: groups, frozen rows, wsd, averages of every kind.
RunConfig everything(const fs::path& out) {
    RunConfig c = tiny_config(out);
    c.optim.lr_decay_style = "wsd";
    c.optim.lr_wsd_decay_iters = 2;
    c.optim.lr_decay_iters = 6;
    c.optim.lr_wsd_decay_style = "minus_sqrt";
    c.optim.freeze = {"blocks.0.*", "!blocks.0.attn1.*"};
    c.optim.groups = {{.params = {"proj_out.*"}, .lr_scale = 2},
                      {.params = {"condition_embedder.*"}, .lr = 1e-3, .weight_decay = 0.1},
                      {.params = {"blocks.1.ffn.*"}, .lr_scale = 0.5, .decay_all = true}};
    c.optim.ema = {{.decay = 0.99, .warmup = "diffusers"},
                   {.decay = 0.8, .warmup = "power", .update_after_step = 2, .adopt_step = 4},
                   {.decay = 0.5, .every = 2, .switch_step = 4, .switch_decay = 0.25}};
    return c;
}
const std::vector<std::string> kEverything = {"model", "adam_m", "adam_v", "ema0",
                                              "ema1",  "ema2",   "ema3"};

}  // namespace

TEST_CASE("recipe: all of it resumes bit for bit, with one thread or three") {
    for (const char* precision : {"fp32", "bf16"}) {
        CAPTURE(precision);
        const FakeData data(10, kTwoShapes);
        const TempDir dir;
        RunConfig c = everything(dir / "whole");
        c.run.precision = precision;
        c.run.train_iters = 6;
        const RunOutcome whole = train(c, data, 3);
        REQUIRE(whole.code == 0);
        const ParamTable table = table_of(c, data);
        const State want = read_kinds(whole.last, table, kEverything);
        // once cut before the average is adopted, once after
        for (const int64_t cut : {3, 4}) {
            CAPTURE(cut);
            RunConfig h = c;
            h.run.out = (dir / ("cut" + std::to_string(cut))).string();
            h.run.train_iters = cut;
            REQUIRE(train(h, data, 1).code == 0);
            h.run.train_iters = 6;
            // listed in another order: averages are matched by what they are
            std::swap(h.optim.ema[0], h.optim.ema[2]);
            const RunOutcome half = train(h, data, 1);
            CHECK(whole.loss == half.loss);
            CHECK(logged(c).lr == logged(h).lr);
            State got = read_kinds(half.last, table,
                                   {"model", "adam_m", "adam_v", "ema0", "ema3", "ema2", "ema1"});
            CHECK(differing(want, got).empty());
        }
        const std::vector<double> lr = logged(c).lr;
        REQUIRE(lr.size() == 6);
        for (const size_t i : {1, 2, 3}) CHECK(lr[i] == 1e-2);
        CHECK(lr[0] == 0.5e-2);
        CHECK(std::abs(lr[4] - 1e-2 * (1 - std::sqrt(0.5))) < 1e-17);
        CHECK(lr[5] == 0);
    }
}

TEST_CASE("recipe: frozen parameters keep their bits, the others move as if all were trained") {
    const FakeData data(10, kTwoShapes);
    for (const char* precision : {"fp32", "bf16"}) {
        CAPTURE(precision);
        const TempDir dir;
        RunConfig c = tiny_config(dir / "frozen");
        c.run.precision = precision;
        c.optim.freeze = {"blocks.0.*", "patch_embedding.*", "!blocks.0.attn1.to_q.bias"};
        c.optim.clip_grad = 0;  // the norm is not the same, so clipping would differ
        c.run.train_iters = 1;
        const RunOutcome f = train(c, data);
        REQUIRE(f.code == 0);
        RunConfig a = c;
        a.run.out = (dir / "all").string();
        a.optim.freeze = {};
        const RunOutcome all = train(a, data);
        CHECK(f.loss == all.loss);
        const ParamTable table = table_of(c, data);
        const ParamTable frozen = with_frozen(table, c.optim.freeze);
        const State got = read_kinds(f.last, table, {"model", "ema0"}), start = initial(table),
                    free = read_kinds(all.last, table, {"model", "ema0"}),
                    m = read_kinds(f.last, table, {"adam_m"}),
                    v = read_kinds(f.last, table, {"adam_v"}),
                    m_all = read_kinds(all.last, table, {"adam_m"});
        const size_t n = table.size();
        int64_t kept = 0;
        double squares = 0;
        for (size_t i = 0; i < n; ++i) {
            CAPTURE(table[i].name);
            const bool trained = frozen[i].trainable;
            CHECK(got[i].second == (trained ? free[i] : start[i]).second);
            CHECK(got[n + i].second == (trained ? free[n + i] : start[i]).second);  // its average
            CHECK(m[i].second.empty() == !trained);
            CHECK(v[i].second.empty() == !trained);
            kept += trained ? 0 : 1;
            // m = 0.1 g after one step
            for (const float x : m[i].second) squares += 100 * double(x) * double(x);
        }
        CHECK(kept == 28);
        // the norm is of what is trained alone; moments round once
        CHECK(std::abs(std::sqrt(squares) / f.norm[0] - 1) < 1e-6);
        CHECK(f.norm[0] < all.norm[0]);
    }
}

TEST_CASE("recipe: freezing takes less memory, and the plan says who is trained how") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    const auto plan_of = [&](const std::vector<std::string>& freeze) {
        RunConfig c = everything(dir / "none");
        c.optim.freeze = freeze;
        Pool pool(1);
        const auto world = self_group();
        Trainer t({.config = c,
                   .config_text = "",
                   .mesh = "test",
                   .backend = cpu_ops(),
                   .pool = pool,
                   .world = *world,
                   .train = data,
                   .check_resume = {},
                   .init_weights = {}});
        return t.plan();
    };
    const RunPlan all = plan_of({}), some = plan_of({"blocks.0.*"});
    const auto bytes = [](const RunPlan& p, MemCategory c) { return p.bytes.at(size_t(c)); };
    const int64_t frozen = 4 * some.groups.back().parameters;
    CHECK(some.groups.back().name == "frozen");
    CHECK(frozen > 10000);
    const int64_t saved = bytes(all, MemCategory::kMoments) - bytes(some, MemCategory::kMoments);
    CHECK(std::abs(double(saved - 2 * frozen)) < 8192);  // each piece is padded to 64 bytes
    // all but two spare pieces
    CHECK(bytes(all, MemCategory::kGradients) - bytes(some, MemCategory::kGradients) >
          frozen * 8 / 10);
    CHECK(bytes(all, MemCategory::kMaster) == bytes(some, MemCategory::kMaster));
    CHECK(some.executed_flop_per_step < all.executed_flop_per_step);

    REQUIRE(some.groups.size() == 5);
    CHECK(some.groups[0].name == "proj_out.*");
    CHECK(some.groups[0].tensors == 2);
    CHECK(some.groups[0].decayed == 1);
    CHECK(some.groups[0].lr == 2e-2);
    CHECK(some.groups[1].lr == 1e-3);
    CHECK(some.groups[1].weight_decay == 0.1);
    CHECK(some.groups[2].decayed == some.groups[2].tensors);
    int64_t parameters = 0, tensors = 0;
    for (const auto& g : some.groups) {
        parameters += g.parameters;
        tensors += g.tensors;
    }
    CHECK(parameters == some.parameters);
    CHECK(tensors == some.tensors);
}

TEST_CASE("recipe: what is thawed on resume begins as a new parameter, what is frozen stops") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.optim.weight_decay = 0;
    c.optim.clip_grad = 0;
    c.optim.lr_decay_style = "constant";
    c.optim.lr_warmup_iters = 0;
    c.optim.freeze = {"blocks.0.*"};
    c.run.train_iters = 30;
    const RunOutcome first = train(c, data);
    const ParamTable table = table_of(c, data);
    c.optim.freeze = {"blocks.1.*"};
    c.run.train_iters = 31;
    const RunOutcome next = train(c, data);
    REQUIRE(next.code == 0);
    const std::vector<std::string> kinds = {"model", "adam_m", "adam_v"};
    const State before = read_kinds(first.last, table, kinds),
                after = read_kinds(next.last, table, kinds);
    const size_t n = table.size();
    int64_t checked = 0;
    for (size_t i = 0; i < n; ++i) {
        CAPTURE(table[i].name);
        if (glob_matches("blocks.1.*", table[i].name)) {
            CHECK(after[i].second == before[i].second);
            CHECK(after[n + i].second.empty());
        }
        if (!glob_matches("blocks.0.*.weight", table[i].name)) continue;
        // the first step of AdamW is one of lr, whatever the gradient: with the bias corrections
        // of step 31 it would be lr (1 - 0.9) / sqrt(1 - 0.95) = 0.45 lr
        double largest = 0;
        for (size_t j = 0; j < after[i].second.size(); ++j) {
            largest = std::max(largest,
                               std::abs(double(after[i].second[j]) - double(before[i].second[j])));
        }
        CHECK(std::abs(largest / c.optim.lr - 1) < 1e-3);
        ++checked;
    }
    CHECK(checked > 8);
    // and that is kept: 33 steps in one go from here are 31 -> 32 -> 33
    c.run.train_iters = 33;
    RunConfig other = c;
    other.run.out = (dir / "other").string();
    fs::copy(dir / "run", dir / "other", fs::copy_options::recursive);
    const RunOutcome whole = train(c, data);
    other.run.train_iters = 32;
    (void)train(other, data);
    other.run.train_iters = 33;
    const RunOutcome parts = train(other, data);
    CHECK(differing(read_kinds(whole.last, table, kinds), read_kinds(parts.last, table, kinds))
              .empty());
    CHECK(read_info(whole.last).extra.at("moments_from").find("30x") != std::string::npos);
}

TEST_CASE("recipe: by samples the learning rate follows those consumed, through a batch ramp") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = tiny_config(dir / "whole");
    c.data.global_batch_size = 6;
    c.data.rampup_batch_size = {2, 2, 8};
    c.data.micro_batch_size = 2;
    c.optim.lr_warmup_iters = 0;
    c.optim.lr_decay_iters = 0;
    c.optim.lr_decay_style = "linear";
    c.optim.lr_warmup_samples = 8;
    c.optim.lr_decay_samples = 24;
    c.run.train_iters = 8;
    REQUIRE(train(c, data).code == 0);
    const LoggedLr whole = logged(c);
    REQUIRE(whole.lr.size() == 8);
    std::set<int64_t> batches;
    for (size_t i = 0; i < 8; ++i) {
        const double n = double(whole.samples[i]);
        const double want = n <= 8 ? n / 8 : std::max(0.0, (24 - n) / 16);
        CHECK(std::abs(whole.lr[i] - want * 1e-2) < 1e-17);
        batches.insert(whole.samples[i] - (i > 0 ? whole.samples[i - 1] : 0));
    }
    CHECK(batches == std::set<int64_t>{2, 4, 6});
    // in another cut, and resumed
    c.run.out = (dir / "parts").string();
    c.data.micro_batch_size = 1;
    c.run.train_iters = 3;
    (void)train(c, data);
    c.run.train_iters = 8;
    (void)train(c, data);
    CHECK(logged(c).lr == whole.lr);
    CHECK(logged(c).samples == whole.samples);
}

TEST_CASE("recipe: averages that copy, rest and are adopted") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.optim.freeze = {"blocks.0.*"};
    c.optim.ema = {{.decay = 0.5, .update_after_step = 4},
                   {.decay = 0.5, .every = 8},
                   {.decay = 0.99, .warmup = "diffusers"}};
    const RunOutcome r = train(c, data);
    REQUIRE(r.code == 0);
    const ParamTable table = table_of(c, data);
    const auto kind = [&](const RunOutcome& run, const char* name) {
        State s = read_kinds(run.last, table, {name});
        for (auto& [key, values] : s) key.erase(0, key.find('/'));
        return s;
    };
    CHECK(kind(r, "ema1") == kind(r, "model"));
    State start = initial(table);
    for (auto& [key, values] : start) key.erase(0, key.find('/'));
    CHECK(kind(r, "ema2") == start);
    CHECK(kind(r, "ema3") != kind(r, "model"));
    CHECK(kind(r, "ema3") != kind(r, "ema0"));

    // adopted after the last step: the weights are the average
    c.run.out = (dir / "adopt").string();
    c.optim.ema[2].adopt_step = 4;
    const RunOutcome adopted = train(c, data);
    CHECK(kind(adopted, "model") == kind(r, "ema3"));
    CHECK(kind(adopted, "adam_m") == kind(r, "adam_m"));
    CHECK(adopted.loss == r.loss);
}

namespace {

// Spoils the forward passes of some attempted steps, counted over rollbacks.
struct BadSteps : StepObserver {
    explicit BadSteps(std::set<int64_t> which) : bad(std::move(which)) {
        plant.arm("linear_fwd", std::numeric_limits<double>::quiet_NaN());
        plant.armed = false;
    }
    void before_step(int64_t /*step*/) override { plant.armed = bad.count(++n) != 0; }
    void after_step(int64_t /*step*/) override {}
    Plant plant{cpu_ops()};
    std::set<int64_t> bad;
    int64_t n = 0;
};

}  // namespace

TEST_CASE("recipe: a step that is left out moves no average, copies and pauses included") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    RunConfig c = everything(dir / "two");
    c.optim.ema[2] = {.decay = 0.5, .update_after_step = 6, .every = 3};  // a copy at step 3
    c.run.train_iters = 2;
    const RunOutcome two = train(c, data);
    c.run.out = (dir / "three").string();
    c.run.train_iters = 3;
    BadSteps third({3});
    const RunOutcome three = train(c, data, 2, nullptr, &third, &third.plant);
    REQUIRE(three.code == 0);
    CHECK(std::isnan(three.loss.back()));
    const ParamTable table = table_of(c, data);
    CHECK(differing(read_kinds(two.last, table, kEverything),
                    read_kinds(three.last, table, kEverything))
              .empty());
    // the rate of a later step is that of its number
    c.run.out = (dir / "four").string();
    c.run.train_iters = 4;
    BadSteps again({3});
    (void)train(c, data, 2, nullptr, &again, &again.plant);
    for (size_t i = 0; i < 4; ++i) {
        CHECK(logged(c).lr.at(i) == learning_rate(c.optim, {int64_t(i) + 1, 0}, 4));
    }
}

TEST_CASE("recipe: after a rollback the rate is that of the step, or of the samples consumed") {
    const FakeData data(10, {{4, 2, 4, 6}});
    for (const bool by_samples : {false, true}) {
        CAPTURE(by_samples);
        const TempDir dir;
        RunConfig c = everything(dir / "run");
        c.optim.lr_decay_style = "linear";
        c.optim.lr_wsd_decay_style = "linear";
        c.optim.lr_wsd_decay_iters = 0;
        c.optim.lr_decay_iters = by_samples ? 0 : 10;
        c.optim.lr_warmup_iters = by_samples ? 0 : 2;
        c.optim.lr_warmup_samples = by_samples ? 8 : 0;
        c.optim.lr_decay_samples = by_samples ? 60 : 0;
        c.run.train_iters = 9;
        c.checkpoint.save_interval = 2;
        c.health.max_consecutive = 2;
        c.health.settle_iters = 1;
        BadSteps bad({6, 7});
        REQUIRE(train(c, data, 2, nullptr, &bad, &bad.plant).code == 0);
        CHECK(bad.n == 12);  // 7, then steps 5 to 9
        const LoggedLr got = logged(c);
        REQUIRE(got.lr.size() == 9);
        CHECK(got.samples[3] == 16);
        CHECK(got.samples[4] == 32);
        for (size_t i = 0; i < 9; ++i) {
            const Progress at{int64_t(i) + 1, uint64_t(got.samples[i])};
            CHECK(got.lr[i] == learning_rate(c.optim, at, 9));
        }
    }
}

TEST_CASE("recipe: no step allocates anything of 4 KiB, moments of two ages included") {
    if (!can_watch_allocations()) return;
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = everything(dir / "run");
    c.model.attention_head_dim = 32;
    c.model.ffn_dim = 256;
    c.optim.lr_decay_iters = 20;
    c.run.train_iters = 2;
    REQUIRE(train(c, data).code == 0);
    c.optim.freeze = {"blocks.1.*"};  // others are thawed
    c.run.train_iters = 14;
    struct Watch final : StepObserver {
        void before_step(int64_t step) override {
            if (step == 7) watch_allocations(true);
        }
        void after_step(int64_t step) override {
            if (step == 13) watch_allocations(false);
        }
    } watch;
    CHECK(train(c, data, 2, nullptr, &watch).code == 0);
    CHECK(large_allocations() == 0);
    CHECK(largest_allocation() == 0);
}
