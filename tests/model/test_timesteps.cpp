// SPDX-License-Identifier: MIT
// The distributions of the noise level: each against its closed form, quantile against
// distribution function against density, and what a run draws by chi-square.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
#include "model/objective.h"

using namespace vt;

namespace {

constexpr LatentShape kShape{16, 3, 20, 26};

// 100,000 draws a distribution; a million where the full tests are asked for.
int64_t draws() {
    return std::getenv("VTRAIN_TEST_FULL") != nullptr ? 1000000 : 100000;
}

using Cdf = std::function<double(double)>;

// The closed forms, written here without the code under test.
Cdf logit_normal(double mean, double std) {
    return [=](double x) {
        return 0.5 * std::erfc(-(std::log(x / (1 - x)) - mean) / (std * std::sqrt(2.0)));
    };
}
Cdf unshifted(const Cdf& base, double s) {
    return [=](double x) { return base(x / (s - (s - 1) * x)); };
}
// For a map that has no closed inverse: the share of a fine grid of u that lands below x.
Cdf counted(const std::function<double(double)>& map) {
    constexpr int kGrid = 1 << 20;
    std::vector<double> at(kGrid);
    for (int i = 0; i < kGrid; ++i) at[size_t(i)] = map((i + 0.5) / kGrid);
    std::sort(at.begin(), at.end());
    return [at](double x) {
        return double(std::lower_bound(at.begin(), at.end(), x) - at.begin()) / kGrid;
    };
}
double published_mode(double u, double a) {
    return 1 - u - a * (std::pow(std::cos(M_PI / 2 * u), 2) - 1 + u);
}

// Chi-square of values in (0,1) in 50 equal bins of x against the closed form; bins that expect
// fewer than 10 are joined with the next. Returns (statistic, degrees of freedom).
std::pair<double, int> chi_square(const std::vector<double>& values, const Cdf& cdf) {
    constexpr int kBins = 50;
    std::vector<double> seen(kBins, 0.0);
    for (const double x : values) seen[size_t(std::min(int(x * kBins), kBins - 1))] += 1;
    double statistic = 0, expected = 0, got = 0;
    int bins = 0;
    const auto n = double(values.size());
    for (int i = 0; i < kBins; ++i) {
        const double low = i == 0 ? 0.0 : cdf(double(i) / kBins);
        const double high = i + 1 == kBins ? 1.0 : cdf(double(i + 1) / kBins);
        expected += n * (high - low);
        got += seen[size_t(i)];
        if (expected < 10 && i + 1 < kBins) continue;
        if (expected > 0) statistic += (got - expected) * (got - expected) / expected;
        if (expected == 0) CHECK(got == 0);
        bins += expected > 0;
        expected = got = 0;
    }
    return {statistic, bins - 1};
}

// The value that chi-square with k degrees of freedom passes with probability 1e-6 (Wilson and
// Hilferty 1931; 4.753 standard deviations). Seeds are fixed, so a test that passes passes always;
// that a right sampler fails at its first run has this probability.
double limit(int k) {
    const double c = 2.0 / (9.0 * k);
    return k * std::pow(1 - c + 4.753 * std::sqrt(c), 3);
}

std::vector<double> drawn(const ObjectiveOptions& o, int64_t n, const LatentShape& shape = kShape,
                          uint64_t batch = 16) {
    const Objective objective(o);
    const LevelDensityPtr density = objective.density(shape);
    std::vector<double> out;
    for (uint64_t i = 0; i < uint64_t(n); ++i) {
        const StepDraws in{int64_t(i / batch) + 1, i / batch * batch, batch};
        out.push_back(density->quantile(objective.unit(3, i, in)));
    }
    return out;
}

void check_draws(const ObjectiveOptions& o, const Cdf& cdf, const LatentShape& shape = kShape) {
    const auto [statistic, k] = chi_square(drawn(o, draws(), shape), cdf);
    REQUIRE(k >= 3);
    CHECK(statistic < limit(k));
}

ObjectiveOptions sampling(const std::string& name) {
    ObjectiveOptions o;
    o.timestep_sampling = name;
    return o;
}

double max_error(const std::vector<double>& a, const std::vector<double>& b) {
    double worst = 0;
    for (size_t i = 0; i < a.size(); ++i) worst = std::max(worst, std::abs(a[i] - b[i]));
    return worst;
}

}  // namespace

TEST_CASE("timesteps: chi-square of the draws of each sampler, shift and range") {
    SUBCASE("uniform") {
        check_draws(sampling("uniform"), [](double x) { return x; });
    }
    SUBCASE("logit-normal") {
        ObjectiveOptions o = sampling("logit_normal");
        check_draws(o, logit_normal(0, 1));
        o.logit_mean = -0.7;
        o.logit_std = 1.6;
        check_draws(o, logit_normal(-0.7, 1.6));
        // shifting a logit-normal(m, s) by S gives logit-normal(m + ln S, s)
        o.flow_shift = 5;
        check_draws(o, logit_normal(-0.7 + std::log(5.0), 1.6));
    }
    SUBCASE("mode, on both sides of uniform and at its ends") {
        for (const double a : {1.29, -0.6, -1.0, 2 / (M_PI - 2)}) {
            CAPTURE(a);
            ObjectiveOptions o = sampling("mode");
            o.mode_scale = a;
            check_draws(o, counted([=](double u) { return published_mode(u, a); }));
        }
    }
    SUBCASE("a mixture, shifted") {
        ObjectiveOptions o = sampling("mix");
        o.timestep_mix = {
            {.sampling = "uniform", .weight = 1},
            {.sampling = "logit_normal", .weight = 3, .logit_mean = 1, .logit_std = 0.5}};
        const Cdf part = logit_normal(1, 0.5);
        const Cdf whole = [=](double x) { return 0.25 * x + 0.75 * part(x); };
        check_draws(o, whole);
        o.flow_shift = 3;
        check_draws(o, unshifted(whole, 3));
    }
    SUBCASE("a range") {
        ObjectiveOptions o = sampling("logit_normal");
        o.flow_shift = 3;
        o.sigma_range = {0.3, 0.875};
        const Cdf base = logit_normal(std::log(3.0), 1);
        check_draws(o, [=](double x) {
            const double c = std::clamp(x, 0.3, 0.875);
            return (base(c) - base(0.3)) / (base(0.875) - base(0.3));
        });
    }
    SUBCASE("shifts by shape") {
        ObjectiveOptions o = sampling("uniform");
        const LatentShape large{16, 4, 64, 128};
        o.shift_by = "open_sora";
        const double s = (1 + 2 * (2048.0 - 256) / 3840) * 2;
        check_draws(o, unshifted([](double x) { return x; }, s), large);
    }
}

TEST_CASE("timesteps: a wrong density is found") {
    // the statistic the cases above rest on sees a shift that is 5 % off
    const auto [statistic, k] =
        chi_square(drawn(sampling("logit_normal"), draws()), logit_normal(std::log(1.05), 1));
    CHECK(statistic > limit(k));
}

TEST_CASE("timesteps: quantile, distribution function and density agree") {
    std::vector<LevelDensityPtr> all = {uniform_level(), logit_normal_level(0, 1),
                                        logit_normal_level(-2, 0.3), mode_level(1.29),
                                        mode_level(-0.9)};
    all.push_back(mixed_level({{2, all[1]}, {1, all[3]}, {0.5, all[0]}}));
    all.push_back(shifted_level(all[5], 7));
    all.push_back(conditioned_level(all[6], 0.25, 0.9));
    for (size_t k = 0; k < all.size(); ++k) {
        CAPTURE(k);
        const LevelDensity& d = *all[k];
        double last = 0;
        for (int i = 1; i < 400; ++i) {
            const double u = i / 400.0, x = d.quantile(u);
            CAPTURE(u);
            REQUIRE(x > last);  // rises
            last = x;
            // x is good to some 8 ulp, which the density (at most 100 here) multiplies
            CHECK(std::abs(d.cdf(x) - u) < 1e-12);
            // central difference: error h^2 times a third derivative that is at most 1e6 here
            const double h = 1e-5 * std::min(x, 1 - x);
            const double slope = (d.cdf(x + h) - d.cdf(x - h)) / (2 * h);
            CHECK(std::abs(slope - d.pdf(x)) < 1e-4 * std::max(1.0, d.pdf(x)));
        }
    }
}

TEST_CASE("timesteps: published values") {
    // diffusers' mode weighting and the paper: at u = 1/4 and 3/4 with a = 1.29
    CHECK(std::abs(published_mode(0.25, 1.29) - 0.616416) < 5e-7);
    CHECK(std::abs(mode_level(1.29)->quantile(0.75) - 0.616416) < 5e-7);
    CHECK(std::abs(mode_level(1.29)->quantile(0.25) - 0.383584) < 5e-7);
    // a mixture's quantile is the place where its shares add up
    const LevelDensityPtr both = mixed_level({{1, uniform_level()}, {1, logit_normal_level(0, 1)}});
    CHECK(std::abs(both->quantile(0.5) - 0.5) < 1e-15);
    // P(sigma >= 0.875) of logit-normal(0, 1) under shifts: the share of the high-noise expert
    const std::pair<double, double> shares[] = {{1, 0.026}, {3, 0.198}, {5, 0.368}, {12, 0.705}};
    for (const auto& [s, share] : shares) {
        ObjectiveOptions o;
        o.flow_shift = s;
        CHECK(std::abs(1 - Objective(o).density(kShape)->cdf(0.875) - share) < 5e-4);
    }
    // the shifts of Flux at 256 and 4096 tokens
    ObjectiveOptions o;
    o.shift_by = "flux";
    CHECK(std::abs(Objective(o).shift({16, 1, 32, 32}) - 1.649) < 5e-4);
    CHECK(std::abs(Objective(o).shift({16, 1, 128, 128}) - 3.158) < 5e-4);
    o.flow_shift = 2;  // composes
    CHECK(std::abs(Objective(o).shift({16, 1, 32, 32}) - 2 * 1.649) < 1e-3);
    o.shift_by = "sqrt_area";
    CHECK(std::abs(Objective(o).shift({16, 9, 64, 64}) - 4) < 1e-15);
}

TEST_CASE("timesteps: the two halves of a range hold the draws of the whole") {
    // an expert below and one above a boundary together see the base density
    ObjectiveOptions o;
    o.flow_shift = 3;
    const LevelDensityPtr whole = Objective(o).density(kShape);
    const double below = whole->cdf(0.875);
    o.sigma_range = {0, 0.875};
    const LevelDensityPtr low = Objective(o).density(kShape);
    o.sigma_range = {0.875, 1};
    const LevelDensityPtr high = Objective(o).density(kShape);
    std::vector<double> got, want;
    for (int i = 1; i < 100; ++i) {
        const double u = i / 100.0;
        got.push_back(low->quantile(u));
        want.push_back(whole->quantile(u * below));
        got.push_back(high->quantile(u));
        want.push_back(whole->quantile(below + u * (1 - below)));
        CHECK(low->quantile(u) <= 0.875);
        CHECK(high->quantile(u) >= 0.875);
    }
    CHECK(max_error(got, want) < 1e-13);
    o.logit_std = 0.1;
    o.flow_shift = 1;
    o.sigma_range = {0.99, 1};  // 46 standard deviations off
    CHECK_THROWS_WITH_AS((void)Objective(o), doctest::Contains("sigma_range"), Error);
}

TEST_CASE("timesteps: stratified draws take each stratum once") {
    ObjectiveOptions o = sampling("uniform");
    o.stratified = true;
    const Objective objective(o);
    const uint64_t N = 37;
    std::vector<std::vector<uint64_t>> orders;
    for (int64_t step = 1; step <= 20; ++step) {
        const StepDraws in{step, uint64_t(step) * 1000, N};
        std::vector<int> hits(N, 0);
        std::vector<uint64_t> order;
        for (uint64_t i = 0; i < N; ++i) {
            const double u = objective.unit(9, in.first + i, in);
            REQUIRE(u > 0);
            REQUIRE(u < 1);
            order.push_back(uint64_t(u * double(N)));
            ++hits[order.back()];
        }
        for (const int h : hits) CHECK(h == 1);
        for (const auto& before : orders) CHECK(before != order);
        orders.push_back(order);
    }
    // all draws together still follow the distribution, also where a step ends in a smaller one
    check_draws(o, [](double x) { return x; });
    // the last draw of the last stratum stays below 1
    const StepDraws one{1, 0, 1};
    CHECK(objective.unit(9, 0, one) < 1);
}

TEST_CASE("timesteps: a draw is a function of seed and ordinal") {
    ObjectiveOptions o;
    const Objective objective(o);
    std::vector<double> all;
    for (uint64_t i = 0; i < 1000; ++i) {
        const double u = objective.unit(4, i, {1, 0, 1000});
        CHECK(u == objective.unit(4, i, {7, i, 1}));  // nothing else matters
        CHECK(u != objective.unit(5, i, {1, 0, 1000}));
        all.push_back(u);
    }
    std::sort(all.begin(), all.end());
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
}
