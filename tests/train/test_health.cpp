// SPDX-License-Identifier: MIT
// What a run does about steps that go wrong: skip, name, roll back, end.
#include <cmath>
#include <csignal>
#include <limits>

#include <doctest/doctest.h>

#include "meta/meta.h"
#include "model/registry.h"
#include "tests/fault/plant.h"
#include "tests/train/rig.h"
#include "train/events.h"

using namespace vt;
using namespace vt::test;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr StepStart kSecond{2, 1, {}};

// Steps alone, without a run around them.
struct StepRig {
    FakeData data{10, {{4, 2, 4, 6}}};
    TempDir dir;
    RunConfig config = tiny_config(dir / "none");
    Memory memory;
    Pool pool{2};
    std::unique_ptr<Group> world = self_group();
    std::unique_ptr<Model> model;
    std::unique_ptr<ParamStore> store;
    std::unique_ptr<OptimState> optim;
    std::unique_ptr<Step> step;
    std::unique_ptr<Loader> loader;
    Plant plant{cpu_ops()};
    Ctx ctx;

    explicit StepRig(const char* precision) {
        config.run.precision = precision;
        config.model.num_layers = 1;
        const Precision p = make_precision(config.run.precision, config.model);
        model = make_model(config.model, data.facts(), p);
        store = std::make_unique<ParamStore>(model->params(), p, true);
        optim = std::make_unique<OptimState>(model->params(), config.optim, p.stat);
        step = std::make_unique<Step>(config, *model, *store, *optim, memory, *world);
        ctx.pool = &pool;
        const Ops meta = meta_ops(cpu_ops());
        declare();
        ctx.ops = &meta;
        StepBatch batch;
        MicroBatch m;
        m.shape = {4, 2, 4, 6};
        m.draws.resize(2);
        m.x0 = Tensor(nullptr, {2, 4, 2, 4, 6}, DType::kF32);
        m.text = Tensor(nullptr, {2, 5, 8}, DType::kF32);
        m.ordinals = Tensor(nullptr, {2}, DType::kI64);
        batch.micros.assign(1, m);
        (void)step->run(ctx, batch, {});
        make_loader();
        loader.reset();
        store->reserve();
        memory.reserve();
        declare();
        ctx.ops = &plant;
        fill_store(*store);
        optim->init(ctx, *store);
        store->refresh_operands(ctx);
        make_loader();
    }
    void declare() {
        optim->declare(memory.moments, memory.ema);
        step->declare();
        ScratchNeed need = model->scratch_need({2, {4, 2, 4, 6}, 5});
        need.threads = pool.threads();
        ctx.scratch =
            memory.scratch.alloc("op scratch", {cpu_ops().scratch_bytes(need)}, DType::kU8);
    }
    void make_loader() {
        loader = std::make_unique<Loader>(
            data, LoaderOptions{.seed = 5, .global_batch_size = 4, .micro_batch_size = 2}, 0,
            memory.data);
    }
    // Every number a skipped step must leave alone.
    [[nodiscard]] std::string bits() const {
        std::string out;
        const auto add = [&](const Tensor& t) {
            if (t.present()) out.append(static_cast<const char*>(t.data), size_t(t.bytes()));
        };
        for (size_t i = 0; i < model->params().size(); ++i) {
            add(store->master()[i]);
            add(store->operand_copy(int64_t(i)));
            add(optim->m()[i]);
            add(optim->v()[i]);
            add(optim->ema(0)[i]);
        }
        return out;
    }
};

// Attempted steps, counted over rollbacks: attempt k consumes the draws [4k - 4, 4k).
struct Attempts : StepObserver {
    std::function<void(int64_t attempt)> before, after;
    int64_t n = 0;
    void before_step(int64_t) override {
        ++n;
        if (before) before(n);
    }
    void after_step(int64_t) override {
        if (after) after(n);
    }
};

struct Happened {
    std::vector<std::string> of(EventKind kind) const {
        std::vector<std::string> out;
        for (const RunEvent& e : events) {
            if (e.kind == kind) out.push_back(fmt::format("{}: {}", e.step, e.text));
        }
        return out;
    }
    explicit Happened(const RunConfig& c)
        : events(read_events(fs::path(c.run.out) / "events.jsonl")) {}
    std::vector<RunEvent> events;
};

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

RunConfig recovering(const fs::path& out) {
    RunConfig c = tiny_config(out);
    c.run.train_iters = 10;
    c.checkpoint.save_interval = 2;
    c.health.max_consecutive = 2;
    c.health.settle_iters = 1;
    return c;
}

ParamTable table_of(const RunConfig& c, const Dataset& data) {
    return make_model(c.model, data.facts(), make_precision(c.run.precision, c.model))->params();
}

}  // namespace

TEST_CASE("health: a value planted in any op's output is skipped and traced to it") {
    for (const char* precision : {"fp32", "bf16"}) {
        StepRig rig(precision);
        const StepBatch& batch = rig.loader->next(nullptr);
        rig.plant.calls.clear();
        REQUIRE(rig.step->run(rig.ctx, batch, {}).verdict == Verdict::kGood);
        const std::map<std::string, int> used = rig.plant.calls;
        CHECK(used.size() >= 25);  // nearly every op there is
        // a tensor's middle element is the second sample's first
        const std::string second = fmt::format("draw {}", batch.micros[0].draws[1].ordinal);
        const std::string before = rig.bits();
        int traced = 0, named = 0;
        for (const auto& [op, calls] : used) {
            if (op == "adamw" || op == "ema_update") continue;  // not in the gradient: see below
            const int outputs = rig.plant.outputs[op];
            for (int output = 0; output < outputs; ++output) {
                CAPTURE(precision);
                CAPTURE(op);
                CAPTURE(output);
                const double value = output % 2 == 0 ? kNan : -kInf;
                rig.plant.output = output;
                rig.plant.arm(op, value);
                const StepResult r = rig.step->run(rig.ctx, batch, kSecond);
                const std::string where = rig.step->explain(rig.ctx, batch, rig.data);
                rig.plant.armed = false;
                CAPTURE(where);
                CHECK(r.verdict == Verdict::kNotFinite);
                CHECK(r.each.size() == 4);
                CHECK((has(where, "from " + op + " ") || has(where, "from " + op + ",")));
                CHECK(has(where, value == kNan ? "-inf" : "inf") != std::isnan(value));
                ++traced;
                if (has(where, second)) ++named;
                CHECK((has(where, second) || has(where, "the gradient of ") || op == "sumsq" ||
                       op == "fill" || op == "cast"));
            }
        }
        CHECK(traced >= 30);
        CHECK(named >= 20);
        const bool untouched = rig.bits() == before;
        CHECK(untouched);

        // once, and gone in the replay
        rig.plant.output = 0;
        rig.plant.arm("attention_fwd", kNan, 1);
        CHECK(rig.step->run(rig.ctx, batch, kSecond).verdict == Verdict::kNotFinite);
        CHECK(
            has(rig.step->explain(rig.ctx, batch, rig.data), "finite when the step is run again"));
        rig.plant.armed = false;

        // the batch itself
        const MicroBatch& m = batch.micros[1];
        float& x = m.x0.as<float>()[m.x0.numel() / 2];
        const float was = x;
        x = static_cast<float>(kNan);
        CHECK(rig.step->run(rig.ctx, batch, kSecond).verdict == Verdict::kNotFinite);
        const std::string data = rig.step->explain(rig.ctx, batch, rig.data);
        INFO(data);
        CHECK(has(data, "the input latent has the value nan"));
        CHECK(has(data, fmt::format("draw {}", m.draws[1].ordinal)));
        x = was;

        // a weight
        float& w = rig.store->master()[3].as<float>()[1];
        const float right = w;
        w = static_cast<float>(kInf);
        rig.store->refresh_operands(rig.ctx);
        CHECK(rig.step->run(rig.ctx, batch, kSecond).verdict == Verdict::kNotFinite);
        CHECK(has(rig.step->explain(rig.ctx, batch, rig.data),
                  "the weight " + rig.model->params()[3].name + " has the value inf"));
        w = right;
        rig.store->refresh_operands(rig.ctx);
        const bool still = rig.bits() == before;
        CHECK(still);
        CHECK(rig.step->run(rig.ctx, batch, kSecond).verdict == Verdict::kGood);
    }
}

TEST_CASE("health: where in the model a value went wrong") {
    StepRig rig("fp32");
    const StepBatch& batch = rig.loader->next(nullptr);
    rig.plant.arm("attention_bwd", kNan);
    REQUIRE(rig.step->run(rig.ctx, batch, {}).verdict == Verdict::kNotFinite);
    CHECK(has(rig.step->explain(rig.ctx, batch, rig.data), "attention_bwd (backward, block 0)"));
    rig.plant.arm("sinusoid", kInf);
    REQUIRE(rig.step->run(rig.ctx, batch, {}).verdict == Verdict::kNotFinite);
    CHECK(has(rig.step->explain(rig.ctx, batch, rig.data), "sinusoid (forward, time)"));
}

TEST_CASE("health: a bad step is skipped, named, counted, and training goes on") {
    for (const double value : {kNan, kInf}) {
        const FakeData data(10, {{4, 2, 4, 6}});
        const TempDir dir;
        RunConfig c = recovering(dir / "run");
        c.run.train_iters = 5;
        Plant plant(cpu_ops());
        Attempts watch;
        watch.before = [&](int64_t n) {
            if (n == 3) plant.arm("layernorm_fwd", value);
            plant.armed = n == 3;
        };
        const RunOutcome r = train(c, data, 2, nullptr, &watch, &plant);
        CHECK(r.code == 0);
        CHECK(watch.n == 5);
        CHECK(read_info(r.last).cursor == 20);
        CHECK(std::isnan(r.loss[2]));  // null in the file
        CHECK(std::isfinite(r.loss[4]));
        const std::vector<std::string> skips = Happened(c).of(EventKind::kSkip);
        REQUIRE(skips.size() == 1);
        CHECK(skips[0].rfind("3: step 3: loss nan is not finite", 0) == 0);
        // the four samples, and no others
        for (uint64_t draw = 8; draw < 12; ++draw) {
            const Draw d = draw_at(data, 5, draw);
            CHECK(has(skips[0], fmt::format("{} (draw {})", data.sample_id(0, d.index), draw)));
        }
        CHECK(!has(skips[0], "draw 7)"));
        const std::vector<std::string> where = Happened(c).of(EventKind::kWarning);
        REQUIRE(where.size() == 1);
        CHECK(has(where[0], "layernorm_fwd (forward, block 0)"));
        int64_t skipped = 0, not_finite = 0;
        for (const MetricRow& row : read_metrics(dir / "run" / "metrics.jsonl")) {
            skipped += row.skipped_iters.value_or(0);
            not_finite += row.nan_iters.value_or(0);
        }
        CHECK(skipped == 1);
        CHECK(not_finite == 1);
    }
}

TEST_CASE("health: after several bad steps the run goes back, past the samples that did it") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    const auto faulty = [&](const RunConfig& c, Attempts& watch) {
        Plant plant(cpu_ops());
        const auto more = watch.before;
        watch.before = [&plant, more](int64_t n) {
            // a window of draws, whatever the step's number: 20 to 28
            if (n == 6) plant.arm("linear_fwd", kNan);
            plant.armed = n == 6 || n == 7;
            if (more) more(n);
        };
        return train(c, data, 2, nullptr, &watch, &plant);
    };
    RunConfig c = recovering(dir / "a");
    Attempts once;
    const RunOutcome a = faulty(c, once);
    REQUIRE(a.code == 0);
    CHECK(once.n == 13);  // 7, then steps 5 to 10 again
    CHECK(read_info(a.last).step == 10);
    CHECK(read_info(a.last).cursor == 52);
    CHECK(fs::exists(dir / "a" / "step-00000004.abandoned-1"));
    CHECK(Happened(c).of(EventKind::kSkip).size() == 2);
    const std::vector<std::string> back = Happened(c).of(EventKind::kRollback);
    REQUIRE(back.size() == 1);
    CHECK(has(back[0], "4: from step 7 to 4, going on with draw 28"));
    std::vector<int64_t> steps;
    for (const MetricRow& row : read_metrics(dir / "a" / "metrics.jsonl"))
        steps.push_back(row.step);
    CHECK(steps == std::vector<int64_t>{1, 2, 3, 4, 5, 6, 7, 8, 9, 10});
    const ParamTable table = table_of(c, data);
    const auto state = read_state(a.last, table, 1);

    // the same fault, the same bits
    c.run.out = (dir / "b").string();
    Attempts again;
    const RunOutcome b = faulty(c, again);
    CHECK(differing(state, read_state(b.last, table, 1)).empty());
    CHECK(a.loss == b.loss);

    // stopped by a signal some steps after the rollback
    c.run.out = (dir / "stopped").string();
    Attempts stopping;
    stopping.after = [](int64_t n) {
        if (n == 9) std::raise(SIGTERM);
    };
    CHECK(faulty(c, stopping).code == kExitRequeue);
    const RunOutcome on = train(c, data);
    CHECK(differing(state, read_state(on.last, table, 1)).empty());

    // dead right after the rollback
    struct Dead {};
    c.run.out = (dir / "dead").string();
    Attempts dying;
    dying.before = [](int64_t n) {
        if (n == 8) throw Dead{};
    };
    CHECK_THROWS_AS((void)faulty(c, dying), Dead);
    const RunOutcome after = train(c, data);
    CHECK(after.code == 0);
    CHECK(differing(state, read_state(after.last, table, 1)).empty());
}

TEST_CASE("health: what never heals ends with 6, and says what to do") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    Plant plant(cpu_ops());
    const auto ends = [&](const RunConfig& c, int64_t from) {
        Attempts watch;
        watch.before = [&](int64_t n) {
            if (n == from) plant.arm("silu_fwd", kInf);
            plant.armed = n >= from;
        };
        std::string said;
        try {
            (void)train(c, data, 2, nullptr, &watch, &plant);
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kDiverged);
            CHECK(e.exit_code() == 6);
            CHECK(has(e.hint(), "optim.lr"));
            said = e.message() + e.hint();
        }
        plant.armed = false;
        CHECK(has(said, "samples, worst first: "));
        CHECK(has(said, "silu_fwd (forward, time)"));
        return said;
    };
    RunConfig c = recovering(dir / "run");
    c.health.max_rollbacks = 2;
    CHECK(has(ends(c, 6), "2 rollbacks did not help"));
    CHECK(Happened(c).of(EventKind::kRollback).size() == 2);
    const std::optional<fs::path> left = find_latest(c.run.out);
    REQUIRE(left);
    CHECK(read_info(*left).step <= 4);
    for (const auto& [name, values] : read_state(*left, table_of(c, data), 1)) {
        for (const float v : values) CHECK_MESSAGE(std::isfinite(v), name);
    }

    RunConfig none = recovering(dir / "none");
    none.checkpoint.save_interval = 0;
    CHECK(has(ends(none, 3), "set checkpoint.save_interval"));
    CHECK(!find_latest(none.run.out));

    RunConfig off = recovering(dir / "off");
    off.health.rollback = false;
    CHECK(has(ends(off, 5), "2 bad steps in a row"));
    CHECK(Happened(off).of(EventKind::kRollback).empty());

    RunConfig strict = recovering(dir / "strict");
    strict.health.enabled = false;
    CHECK(has(ends(strict, 5), "step 5: "));
}

TEST_CASE("health: a checkpoint of an ailing run is not gone back to") {
    // An update writes a NaN into a weight at step 5: that step looked good and was saved.
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = recovering(dir / "run");
    c.checkpoint.save_interval = 1;
    c.checkpoint.keep_last = 8;
    c.health.settle_iters = 2;
    Plant plant(cpu_ops());
    Attempts watch;
    watch.before = [&](int64_t n) {
        if (n == 5) plant.arm("adamw", kNan, 1);
        plant.armed = n == 5;
    };
    const RunOutcome r = train(c, data, 2, nullptr, &watch, &plant);
    CHECK(r.code == 0);
    const Happened h(c);
    REQUIRE(h.of(EventKind::kRollback).size() == 1);
    CHECK(has(h.of(EventKind::kRollback)[0], "from step 7 to 3"));
    REQUIRE(h.of(EventKind::kWarning).size() == 1);
    CHECK(has(h.of(EventKind::kWarning)[0], "the weight "));
    CHECK(fs::exists(dir / "run" / "step-00000005.abandoned-1"));
    for (const auto& [name, values] : read_state(r.last, table_of(c, data), 1)) {
        for (const float v : values) CHECK_MESSAGE(std::isfinite(v), name);
    }

    // nothing proved good: the oldest there is
    RunConfig young = c;
    young.run.out = (dir / "young").string();
    young.health.settle_iters = 100;
    Attempts other;
    other.before = watch.before;
    CHECK(train(young, data, 2, nullptr, &other, &plant).code == 0);
    const std::vector<std::string> back = Happened(young).of(EventKind::kRollback);
    REQUIRE(back.size() == 1);
    CHECK(has(back[0], "from step 7 to 1"));
}

TEST_CASE("health: a spike is skipped too, and a resumed run decides as the whole one") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = tiny_config(dir / "whole");
    c.run.train_iters = 16;
    c.health.window = 16;
    c.health.min_history = 10;
    Plant plant(cpu_ops());
    int64_t done = 0;
    const auto go = [&](const RunConfig& config) {
        Attempts watch;
        watch.before = [&](int64_t n) {
            plant.arm("flow_loss", 1e12);  // a huge, finite squared error
            plant.output = 1;
            plant.armed = done + n == 14;
        };
        const RunOutcome r = train(config, data, 2, nullptr, &watch, &plant);
        done += watch.n;
        return r;
    };
    const RunOutcome a = go(c);
    CHECK(a.code == 0);
    const std::vector<std::string> skips = Happened(c).of(EventKind::kSkip);
    REQUIRE(skips.size() == 1);
    CHECK(has(skips[0], "14: step 14: loss "));
    CHECK(has(skips[0], "is a spike, over "));

    done = 0;
    RunConfig half = c;
    half.run.out = (dir / "half").string();
    half.run.train_iters = 12;
    REQUIRE(go(half).code == 0);
    half.run.train_iters = 16;
    const RunOutcome b = go(half);
    CHECK(Happened(half).of(EventKind::kSkip) == skips);
    const ParamTable table = table_of(c, data);
    CHECK(differing(read_state(a.last, table, 1), read_state(b.last, table, 1)).empty());
}

TEST_CASE("health: a real divergence is caught, and a lower learning rate goes on from before it") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.run.train_iters = 40;
    c.checkpoint.save_interval = 10;
    c.checkpoint.keep_last = 6;
    c.health.window = 32;
    c.health.min_history = 16;
    c.health.settle_iters = 4;
    c.health.max_rollbacks = 2;
    const RunOutcome good = train(c, data);
    REQUIRE(good.code == 0);
    CHECK(Happened(c).of(EventKind::kSkip).empty());

    RunConfig wild = c;
    wild.run.train_iters = 80;
    wild.optim.lr = 100 * c.optim.lr;
    CHECK_THROWS_AS((void)train(wild, data), Error);
    const Happened h(wild);
    CHECK(h.of(EventKind::kRollback).size() == 2);
    CHECK(h.of(EventKind::kSkip).size() == 9);

    c.run.train_iters = 60;
    const RunOutcome on = train(c, data);
    CHECK(on.code == 0);
    REQUIRE(!on.loss.empty());
    CHECK(on.loss.back() < good.loss.front() / 2);
}
