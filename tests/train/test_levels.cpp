// SPDX-License-Identifier: MIT
// What `vtrain data timesteps` counts: the run's own draws, by shape, against their density.
#include <cmath>
#include <numeric>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "data/video.h"
#include "tests/train/rig.h"
#include "train/levels.h"

using namespace vt;
using namespace vt::test;

namespace {

// A first source of small clips and a second of large ones, three to one.
class TwoSources final : public FakeData {
  public:
    TwoSources() : FakeData(30, {kSmall, kLarge}) {}
    static constexpr std::array<int64_t, 4> kSmall{4, 1, 16, 16}, kLarge{4, 9, 64, 64};
    int num_sources() const override { return 2; }
    int64_t source_size(int source) const override { return source == 0 ? 20 : 10; }
    double source_weight(int source) const override { return source == 0 ? 3 : 1; }
    Sample sample(int source, int64_t index) const override {
        return {source, source, index, source == 0 ? kSmall : kLarge};
    }
};

RunConfig levels_config() {
    RunConfig c;
    c.run.seed = 3;
    c.data.global_batch_size = 64;
    return c;
}

// Chi-square over its degrees of freedom, bins of fewer than ten left out.
double chi_square(const LevelCount& c) {
    double sum = 0;
    int bins = 0;
    for (size_t i = 0; i < c.count.size(); ++i) {
        const double want = c.expected[i] * double(c.draws);
        if (want < 10) continue;
        sum += std::pow(double(c.count[i]) - want, 2) / want;
        ++bins;
    }
    REQUIRE(bins > 3);
    return sum / (bins - 1);
}

double sum_of(const std::vector<double>& v) {
    return std::accumulate(v.begin(), v.end(), 0.0);
}

}  // namespace

TEST_CASE("levels: counts are those of the density, by shape and together") {
    RunConfig c = levels_config();
    c.objective.shift_by = "open_sora";
    c.objective.flow_shift = 2;
    const TwoSources data;
    const LevelReport r = draw_levels(c, data, 60000, 20);
    CHECK(r.steps == 938);  // the last is not whole
    CHECK(r.all.draws == 60000);
    REQUIRE(r.buckets.size() == 2);
    const LevelBucket &small = r.buckets[0], &large = r.buckets[1];
    CHECK(small.shape == TwoSources::kSmall);
    CHECK(large.shape == TwoSources::kLarge);
    CHECK(std::abs(double(small.seen.draws) / 60000 - 0.75) < 0.01);
    CHECK(std::abs(small.shift - 2 * (1 + 2 * (64.0 - 256) / 3840)) < 1e-12);
    CHECK(std::abs(large.shift - 2 * (1 + 2 * (1024.0 - 256) / 3840) * 3) < 1e-12);
    // the shift is to be seen: an unshifted level has mean 1/2
    CHECK(small.seen.mean > 0.6);
    CHECK(large.seen.mean > small.seen.mean + 0.15);
    // chi-square over k degrees of freedom has mean 1 and deviation sqrt(2 / k) ~ 0.35; seeds are
    // fixed
    CHECK(chi_square(r.all) < 2.5);
    CHECK(chi_square(small.seen) < 2.5);
    CHECK(chi_square(large.seen) < 2.5);
    CHECK(sum_of(r.all.expected) == doctest::Approx(1).epsilon(1e-9));
    CHECK(sum_of(r.all.weight) == doctest::Approx(1).epsilon(1e-9));
    CHECK(std::accumulate(r.all.count.begin(), r.all.count.end(), int64_t{0}) == 60000);
    CHECK(r.step_deviation == doctest::Approx(r.independent_deviation).epsilon(0.1));
    // what is counted against another density is found out
    LevelCount wrong = small.seen;
    wrong.expected = large.seen.expected;
    CHECK(chi_square(wrong) > 100);
    // the quantiles are the draws' own
    const double quarter = r.quantile(0.25);
    double below = 0;
    for (const LevelDraw& d : r.draws) below += d.x < quarter ? 1 : 0;
    CHECK(std::abs(below / 60000 - 0.25) < 1e-4);
}

TEST_CASE("levels: the draws are those a run trains on") {
    // Each sample's timestep of a run is not on record, but the means by tenths of it are: those
    // tenths have a value that have a draw.
    const FakeData data(10, {{4, 2, 4, 6}, {4, 1, 6, 4}});
    const TempDir dir;
    for (const bool stratified : {false, true}) {
        RunConfig c = tiny_config(dir / (stratified ? "s" : "i"));
        c.run.train_iters = 8;
        c.objective.shift_by = "open_sora";
        c.objective.flow_shift = 3;
        c.objective.stratified = stratified;
        c.data.rampup_batch_size = {2, 1, 8};
        REQUIRE(train(c, data).code == 0);
        const LevelReport r = draw_levels(c, data, 1000, 10);
        uint64_t at = 0;
        int compared = 0;
        for (const MetricRow& row : read_metrics(fs::path(c.run.out) / "metrics.jsonl")) {
            if (row.eval) continue;
            std::vector<bool> want(10, false), got(10, false);
            for (; at < uint64_t(row.consumed_samples.value_or(0)); ++at) {
                want[size_t(r.draws[at].x * 10)] = true;
            }
            for (const auto& [name, value] : row.extra) {
                for (size_t b = 0; b < 10; ++b) {
                    if (name.starts_with(fmt::format("loss/t_{:.1f}", double(b) / 10)))
                        got[b] = true;
                }
            }
            CAPTURE(row.step);
            CHECK(want == got);
            ++compared;
        }
        CHECK(compared == 8);
        CHECK(at >= 20);
    }
}

TEST_CASE("levels: strata even out a step, weights fall where the loss says") {
    RunConfig c = levels_config();
    c.objective.timestep_sampling = "uniform";
    const std::vector<std::array<int64_t, 4>> shapes = {TwoSources::kSmall, TwoSources::kLarge};
    const LevelReport independent = draw_levels(c, shapes, 6400, 10);
    c.objective.stratified = true;
    const LevelReport even = draw_levels(c, shapes, 6400, 10);
    CHECK(independent.step_deviation > 0.02);
    CHECK(even.step_deviation < 0.2 * independent.step_deviation);
    CHECK(even.buckets[0].seen.draws == 3200);  // as often each

    // ddpm, epsilon, min-SNR 5: the weight of t is min(snr, 5) / snr
    c.objective = {};
    c.objective.kind = "ddpm";
    c.objective.timestep_sampling = "uniform";
    c.objective.prediction = "epsilon";
    c.objective.loss_weighting = "min_snr";
    const LevelReport r = draw_levels(c, shapes, 50000, 10);
    std::vector<double> want(10, 0.0);
    double product = 1, total = 0;
    for (int t = 0; t < 1000; ++t) {
        product *= 1 - (1e-4 + (0.02 - 1e-4) * t / 999);
        const double snr = product / (1 - product), w = std::min(snr, 5.0) / snr;
        want[size_t(t / 100)] += w;
        total += w;
    }
    // a share of 50,000 draws whose weights lie in [0, 1]: deviation below 1 / sqrt(50000)
    for (size_t b = 0; b < 10; ++b) CHECK(std::abs(r.all.weight[b] - want[b] / total) < 0.01);
    CHECK(r.all.weight[0] < 0.5 * r.all.weight[9]);
    CHECK(r.all.mean_weight == doctest::Approx(total / 1000).epsilon(0.01));

    CHECK(independent.half_weight() == 0.5);
    c.objective = {};
    c.objective.timestep_sampling = "uniform";
    c.objective.loss_weighting = "sigma_sqrt";  // a few draws near 0 rule
    CHECK(draw_levels(c, shapes, 10000, 10).half_weight() < 0.001);

    // per element a large clip weighs more
    c.objective = {};
    c.objective.loss_reduction = "element";
    const LevelReport by_element = draw_levels(c, shapes, 1000, 10);
    CHECK(by_element.buckets[1].seen.mean_weight ==
          doctest::Approx(144 * by_element.buckets[0].seen.mean_weight));
}

TEST_CASE("levels: in words and as a picture") {
    ObjectiveOptions o;
    CHECK(sampler_text(o) == "logit_normal (mean 0, std 1)");
    o.timestep_sampling = "mix";
    o.timestep_mix = {{.sampling = "uniform", .weight = 1}, {.sampling = "mode", .weight = 3}};
    o.flow_shift = 2.5;
    o.shift_by = "flux";
    o.sigma_range = {0, 0.875};
    o.stratified = true;
    CHECK(sampler_text(o) ==
          "25 % uniform + 75 % mode (scale 1.29), shift 2.5, shift by flux, only [0, 0.875], "
          "stratified");

    const TempDir dir;
    RunConfig c = levels_config();
    c.objective = o;
    plot_levels(dir / "p.png", c, draw_levels(c, TwoSources(), 2000, 20));
    CHECK(read_file(dir / "p.png").substr(1, 3) == "PNG");
    if (!have_video()) return;
    int frames = 0;
    (void)read_video(dir / "p.png", {}, [&](const VideoFrame& f) {
        CHECK(f.H == 750);
        CHECK(f.W == 1200);
        int64_t inked = 0;
        for (int64_t i = 0; i < f.H * f.W * 3; ++i) inked += f.rgb[i] < 200 ? 1 : 0;
        CHECK(inked > 20000);
        ++frames;
        return true;
    });
    CHECK(frames == 1);
}
