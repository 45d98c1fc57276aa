// SPDX-License-Identifier: MIT
// The loss by timestep, bucket and data set, and samples consumed by data set.
#include <cmath>
#include <map>

#include <doctest/doctest.h>

#include "data/order.h"
#include "tests/train/rig.h"
#include "train/breakdown.h"

namespace vt {

namespace {

// Two data sets of unequal shares.
class Mixture : public test::FakeData {
  public:
    Mixture() : FakeData(5, {{2, 1, 2, 2}, {2, 1, 4, 2}}) {}
    int num_sources() const override { return 2; }
    double source_weight(int s) const override { return s == 0 ? 3 : 1; }
    std::string source_name(int s) const override {
        return s == 0 ? "/data/clips hd/*.h5" : "other/clips_hd-*.h5";
    }
};

std::map<std::string, double> as_map(const std::vector<std::pair<std::string, double>>& v) {
    return {v.begin(), v.end()};
}

}  // namespace

TEST_CASE("breakdown: means by what a sample was") {
    const Mixture data;
    CHECK(source_labels(data) == std::vector<std::string>{"clips_hd", "clips_hd-2"});
    Breakdown b(data);
    b.add({.draw = {.source = 0}, .loss = 1.0, .shape = {2, 1, 2, 2}, .tau = 0});
    b.add({.draw = {.source = 1}, .loss = 3.0, .shape = {2, 1, 2, 2}, .tau = 99.9F});
    b.add({.draw = {.source = 1}, .loss = 5.0, .shape = {2, 1, 4, 2}, .tau = 1000});
    b.add({.draw = {.source = 1}, .loss = 7.0, .shape = {2, 1, 4, 2}, .tau = 250});
    std::vector<std::pair<std::string, double>> out;
    b.report(out);
    CHECK(as_map(out) == std::map<std::string, double>{{"loss/t_0.0-0.1", 2},
                                                       {"loss/t_0.2-0.3", 7},
                                                       {"loss/t_0.9-1.0", 5},
                                                       {"loss/bucket/2x1x2x2", 2},
                                                       {"loss/bucket/2x1x4x2", 6},
                                                       {"loss/data/clips_hd", 1},
                                                       {"loss/data/clips_hd-2", 5}});
    b.restart();
    out.clear();
    b.report(out);
    CHECK(out.empty());
}

TEST_CASE("breakdown: samples consumed are a pure function of the cursor") {
    const Mixture data;
    constexpr uint64_t kSeed = 3;
    Consumed step_by_step(data, kSeed);
    std::vector<int64_t> counted(2, 0);
    for (uint64_t i = 0; i < 40; ++i) {
        CHECK(step_by_step.at(i) == counted);
        ++counted[static_cast<size_t>(draw_at(data, kSeed, i).source)];
    }
    // blocks are exact shares; forward, backward and from scratch agree
    const std::vector<int64_t> block = {49152, 16384};
    CHECK(Consumed(data, kSeed).at(kBlockDraws) == block);
    CHECK(step_by_step.at(kBlockDraws * 3) == std::vector<int64_t>{3 * block[0], 3 * block[1]});
    CHECK(step_by_step.at(40) == counted);
    const uint64_t far = kBlockDraws * 2 + 777;
    CHECK(step_by_step.at(far) == Consumed(data, kSeed).at(far));
    CHECK(step_by_step.at(far)[0] + step_by_step.at(far)[1] == static_cast<int64_t>(far));
}

TEST_CASE("breakdown: a run's rows add up, and its events are on record") {
    const test::TempDir dir;
    RunConfig config = test::tiny_config(dir / "run");
    config.run.train_iters = 3;
    config.log.log_interval = 2;
    const test::FakeData data(6, {{4, 2, 4, 4}});
    CHECK(test::train(config, data).code == 0);
    const auto rows = read_metrics(dir / "run/metrics.jsonl");
    REQUIRE(rows.size() == 3);  // steps 1, 2, 3
    for (const MetricRow& row : rows) {
        const auto extra = as_map(row.extra);
        // one shape and one source: each mean is the interval's loss, summed in another order
        const double loss = extra.at("loss mean");
        CHECK(std::fabs(extra.at("loss/bucket/4x2x4x4") / loss - 1) < 1e-14);
        CHECK(std::fabs(extra.at("loss/data/source_0") / loss - 1) < 1e-14);
        CHECK(extra.at("consumed/data/source_0") == static_cast<double>(*row.consumed_samples));
        CHECK(console_line(row).find('_') == std::string::npos);
    }
    const auto events = read_events(dir / "run/events.jsonl");
    REQUIRE(events.size() >= 3);
    CHECK(events.front().kind == EventKind::kStart);
    CHECK_FALSE(events.front().facts.empty());
    CHECK(events.back().kind == EventKind::kEnd);
    CHECK(events.back().step == 3);
}

}  // namespace vt
