// SPDX-License-Identifier: MIT
// The promises of a training run, on tiny models and data in memory.
#include <cmath>
#include <csignal>

#include <doctest/doctest.h>

#include "model/registry.h"
#include "tests/train/rig.h"

using namespace vt;
using namespace vt::test;

namespace {

ParamTable table_of(const RunConfig& c, const Dataset& data) {
    return make_model(c.model, data.facts(), make_precision(c.run.precision, c.model))->params();
}

const std::vector<std::array<int64_t, 4>> kTwoShapes = {{4, 2, 4, 6}, {4, 1, 6, 4}};

}  // namespace

TEST_CASE("train: 2N steps == N + resume + N, bit for bit, moments, EMA and cursor included") {
    for (const char* precision : {"fp32", "bf16"}) {
        CAPTURE(precision);
        const FakeData data(10, kTwoShapes);
        const TempDir dir;
        RunConfig whole = tiny_config(dir / "whole");
        whole.run.precision = precision;
        whole.run.train_iters = 6;
        const RunOutcome a = train(whole, data);
        REQUIRE(a.code == 0);

        RunConfig half = whole;
        half.run.out = (dir / "half").string();
        half.run.train_iters = 3;
        REQUIRE(train(half, data).code == 0);
        half.run.train_iters = 6;
        const RunOutcome b = train(half, data);
        REQUIRE(b.code == 0);
        REQUIRE(read_info(b.last).step == 6);
        CHECK(read_info(a.last).cursor == read_info(b.last).cursor);
        CHECK(read_info(a.last).cursor == 24);
        const ParamTable table = table_of(whole, data);
        CHECK(differing(read_state(a.last, table, 1), read_state(b.last, table, 1)).empty());
        CHECK(a.loss == b.loss);
        CHECK(a.loss.size() == 6);
        CHECK(a.loss.front() != a.loss.back());
    }
}

TEST_CASE("train: 1, 2 and 3 threads give the same bits") {
    for (const char* precision : {"fp32", "bf16"}) {
        CAPTURE(precision);
        const FakeData data(10, kTwoShapes);
        const TempDir dir;
        std::vector<std::vector<std::pair<std::string, std::vector<float>>>> states;
        for (const int threads : {1, 2, 3}) {
            RunConfig c = tiny_config(dir / std::to_string(threads));
            c.run.precision = precision;
            const RunOutcome r = train(c, data, threads);
            REQUIRE(r.code == 0);
            states.push_back(read_state(r.last, table_of(c, data), 1));
        }
        CHECK(differing(states[0], states[1]).empty());
        CHECK(differing(states[0], states[2]).empty());
    }
}

TEST_CASE("train: recompute none, selective and full give the same bits") {
    for (const char* precision : {"fp32", "bf16"}) {
        CAPTURE(precision);
        const FakeData data(10, kTwoShapes);
        const TempDir dir;
        std::vector<std::vector<std::pair<std::string, std::vector<float>>>> states;
        for (const char* recompute : {"none", "selective", "full"}) {
            RunConfig c = tiny_config(dir / recompute);
            c.run.precision = precision;
            c.model.recompute = recompute;
            const RunOutcome r = train(c, data);
            REQUIRE(r.code == 0);
            states.push_back(read_state(r.last, table_of(c, data), 1));
        }
        CHECK(differing(states[0], states[1]).empty());
        CHECK(differing(states[0], states[2]).empty());
    }
}

TEST_CASE("train: micro-batch 4 x 1 and 1 x 4 agree to rounding") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    std::vector<RunOutcome> runs;
    for (const int64_t micro : {4, 1}) {
        RunConfig c = tiny_config(dir / std::to_string(micro));
        c.data.micro_batch_size = micro;
        c.run.train_iters = 1;
        runs.push_back(train(c, data));
    }
    // One step from equal weights. A forward of each sample is the same computation; sums over
    // samples differ in order: sqrt(terms) u with terms ~ 200 tokens x 4 samples, times 8.
    const double tol = 8 * std::sqrt(800.0) * unit_roundoff(DType::kF32);
    CHECK(std::abs(runs[0].loss[0] / runs[1].loss[0] - 1) < tol);
    CHECK(std::abs(runs[0].norm[0] / runs[1].norm[0] - 1) < tol);
}

TEST_CASE("train: two shapes in one step have the declared loss") {
    // The loss of a step is (1/N) sum of per-sample means whatever the shapes; with "element" it is
    // the sum of squares over the sum of elements. Computed here from runs with one sample a step.
    const FakeData data(8, kTwoShapes);
    const TempDir dir;
    const int64_t n = 4;
    RunConfig c = tiny_config(dir / "both");
    c.run.train_iters = 1;
    c.data.global_batch_size = n;
    c.objective.cfg_dropout_prob = 0.5;
    const RunOutcome sample = train(c, data);
    c.run.out = (dir / "element").string();
    c.objective.loss_reduction = "element";
    const RunOutcome element = train(c, data);

    // one sample per step with a learning rate of zero: step i is the loss of draw i
    RunConfig one = c;
    one.run.out = (dir / "one").string();
    one.data.global_batch_size = one.data.micro_batch_size = 1;
    one.run.train_iters = n;
    one.optim.lr = 0;
    one.optim.min_lr = 0;
    const RunOutcome each = train(one, data);
    REQUIRE(each.loss.size() == size_t(n));
    double by_sample = 0, squares = 0, elements = 0;
    std::vector<int64_t> sizes;
    for (int64_t i = 0; i < n; ++i) {
        const Draw d = draw_at(data, 5, uint64_t(i));
        const auto s = data.sample(0, d.index).shape;
        const double e = double(s[0] * s[1] * s[2] * s[3]);
        sizes.push_back(s[1]);
        by_sample += each.loss[size_t(i)] / double(n);
        squares += each.loss[size_t(i)] * e;
        elements += e;
    }
    std::sort(sizes.begin(), sizes.end());
    REQUIRE(sizes.front() != sizes.back());  // the seed draws both shapes
    // the forward of a sample does not depend on its neighbours; sums in float64, coefficients f32
    const double tol = 16 * unit_roundoff(DType::kF32);
    CHECK(std::abs(sample.loss[0] / by_sample - 1) < tol);
    CHECK(std::abs(element.loss[0] / (squares / elements) - 1) < tol);
    CHECK(std::abs(sample.loss[0] / element.loss[0] - 1) > 1e-3);
}

TEST_CASE("train: validation changes nothing, and is the same number for the same weights") {
    const FakeData data(10, kTwoShapes), valid(6, kTwoShapes, 12);
    const TempDir dir;
    RunConfig c = tiny_config(dir / "with");
    c.log.eval_interval = 1;
    c.log.eval_samples = 5;
    const RunOutcome a = train(c, data, 2, &valid);
    c.run.out = (dir / "without").string();
    c.log.eval_interval = 0;
    const RunOutcome b = train(c, data);
    const ParamTable table = table_of(c, data);
    CHECK(differing(read_state(a.last, table, 1), read_state(b.last, table, 1)).empty());
    const auto losses = [](const RunConfig& config) {
        std::vector<double> out;
        for (const MetricRow& r : read_metrics(fs::path(config.run.out) / "metrics.jsonl")) {
            if (r.eval) out.push_back(r.loss.value_or(-1));
        }
        return out;
    };
    c.run.out = (dir / "with").string();
    const std::vector<double> moving = losses(c);
    REQUIRE(moving.size() == 5);  // before the first step and after each
    CHECK(moving[0] != moving[1]);
    CHECK(std::isfinite(moving[4]));

    // weights that stay give one number, in any cut into micro-batches to rounding of f32 sums
    c.log.eval_interval = 1;
    c.optim.lr = c.optim.min_lr = 0;
    for (const int64_t micro : {1, 2, 4}) {
        c.run.out = (dir / ("still" + std::to_string(micro))).string();
        c.data.micro_batch_size = micro;
        (void)train(c, data, 2, &valid);
        const std::vector<double> still = losses(c);
        REQUIRE(still.size() == 5);
        for (const double l : still) CHECK(l == still[0]);
        CHECK(std::abs(still[0] / moving[0] - 1) < 64 * unit_roundoff(DType::kF32));
    }
}

TEST_CASE("train: a bad validation sample is named and left out") {
    struct OneBad final : FakeData {
        using FakeData::FakeData;
        void read(int s, int64_t i, Tensor l, Tensor t) const override {
            if (i == 2) vt::raise(Fault::kData, "sample 2 does not match its checksum");
            FakeData::read(s, i, l, t);
        }
    };
    const FakeData data(10, kTwoShapes);
    const OneBad valid(6, kTwoShapes, 12);
    const TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.run.train_iters = 1;
    c.log.eval_interval = 1;
    CHECK(train(c, data, 2, &valid).code == 0);
    const auto rows = read_metrics(dir / "run" / "metrics.jsonl");
    REQUIRE(!rows.empty());
    CHECK(rows.back().eval);
    CHECK(rows.back().eval_samples.value_or(-1) == 5);
    CHECK(std::isfinite(rows.back().loss.value_or(NAN)));
}

TEST_CASE("train: an average that is added on resume starts from the weights") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.run.train_iters = 3;
    const RunOutcome a = train(c, data);
    REQUIRE(a.code == 0);
    const ParamTable table = table_of(c, data);
    const auto before = read_state(a.last, table, 1);
    c.run.train_iters = 4;
    c.optim.lr = c.optim.min_lr = c.optim.weight_decay = 0;  // the weights stay
    c.optim.ema_decay = {0.5, 0.9};  // in another order: averages are matched by decay
    const RunOutcome b = train(c, data);
    REQUIRE(b.code == 0);
    const auto after = read_state(b.last, table, 2);
    const size_t n = table.size();
    for (size_t i = 0; i < n; ++i) {
        CAPTURE(table[i].name);
        CHECK(after[i].second == before[i].second);
        CHECK(after[3 * n + i].second == after[i].second);  // decay 0.5: the weights themselves
    }
    // decay 0.9 went on from what it was: e - 0.1 (e - p), to 4 u of the larger of the two
    const std::vector<float>& was = before[3 * n].second;
    const std::vector<float>& p = before[0].second;
    CHECK(was != p);
    for (size_t i = 0; i < p.size(); ++i) {
        const double want = double(was[i]) - 0.1 * (double(was[i]) - double(p[i]));
        const double size = std::max(std::abs(double(was[i])), std::abs(double(p[i])));
        CHECK(std::abs(double(after[4 * n].second[i]) - want) <=
              4 * unit_roundoff(DType::kF32) * size);
    }
}

TEST_CASE("train: a signal saves at the step boundary and asks for a restart") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    RunConfig whole = tiny_config(dir / "whole");
    whole.run.train_iters = 8;
    const RunOutcome a = train(whole, data);

    RunConfig c = whole;
    c.run.out = (dir / "stopped").string();
    // The handler is installed by run(); a signal before it would end the test program. While the
    // first step's data is not there a signal would end the run with nothing to save.
    struct Raising final : StepObserver {
        void before_step(int64_t) override {}
        void after_step(int64_t step) override {
            if (step == 1) ::raise(SIGUSR1);
        }
    };
    Raising raising;
    CHECK(train(c, data, 2, nullptr, &raising).code == kExitRequeue);
    REQUIRE(find_latest(c.run.out).has_value());
    CHECK(read_info(*find_latest(c.run.out)).step == 1);
    const RunOutcome b = train(c, data);
    CHECK(b.code == 0);
    const ParamTable table = table_of(c, data);
    CHECK(differing(read_state(a.last, table, 1), read_state(b.last, table, 1)).empty());
}
