// SPDX-License-Identifier: MIT
// Coefficients, weights and refusals of the objectives.
#include <cmath>
#include <set>
#include <vector>

#include <doctest/doctest.h>

#include "core/pool.h"
#include "cpu/cpu.h"
#include "model/objective.h"
#include "ops/ops.h"
#include "tests/ref/ref.h"

using namespace vt;

namespace {

ObjectiveOptions ddpm(const std::string& prediction,
                      const std::string& schedule = "scaled_linear") {
    ObjectiveOptions o;
    o.kind = "ddpm";
    o.timestep_sampling = "uniform";
    o.prediction = prediction;
    o.beta_schedule = schedule;
    return o;
}

std::set<std::string> rules(const ObjectiveOptions& o) {
    std::set<std::string> keys;
    for (const Conflict& c : conflicts(o)) {
        CHECK(!c.rule.empty());
        CHECK(!c.hint.empty());
        keys.insert(c.keys.front().substr(std::string("objective.").size()));
    }
    return keys;
}

// sum over samples of coef |v - target|^2 in float64, with x_t and target by their definitions.
struct Definition {
    std::vector<double> xt, target;
};
Definition define(const NoiseLevel& level, const ObjectiveOptions& o, const std::vector<float>& x0,
                  const std::vector<float>& e) {
    Definition d;
    double a = 1 - level.sigma, s = level.sigma;
    if (o.kind == "ddpm") {
        const double ab = alpha_bars(o)[size_t(std::lround(double(level.tau)))];
        a = std::sqrt(ab);
        s = std::sqrt(1 - ab);
    }
    for (size_t i = 0; i < x0.size(); ++i) {
        const double x = double(x0[i]), z = double(e[i]);
        d.xt.push_back(a * x + s * z);
        double t = z - x;
        if (o.kind == "ddpm") {
            t = o.prediction == "v" ? a * z - s * x : o.prediction == "epsilon" ? z : x;
        }
        d.target.push_back(t);
    }
    return d;
}

}  // namespace

TEST_CASE("objective: alpha-bar of the published schedules") {
    const auto check = [](const char* schedule, double first, double middle, double last) {
        CAPTURE(schedule);
        const std::vector<double> ab = alpha_bars(ddpm("v", schedule));
        REQUIRE(ab.size() == 1000);
        // the values have 5 to 8 digits and come of a running product in float32: sqrt(1000) u
        CHECK(std::abs(ab[0] / first - 1) < 1e-6);
        CHECK(std::abs(ab[499] / middle - 1) < 2e-6);
        CHECK(std::abs(ab[999] / last - 1) < 5e-5);
        for (size_t t = 1; t < ab.size(); ++t) CHECK(ab[t] < ab[t - 1]);
    };
    check("linear", 0.9999, 0.0785872, 4.0358e-5);
    check("scaled_linear", 0.99915, 0.2776695, 0.0046601);
    check("cosine", 0.9999587, 0.4938435, 2.4287e-9);
    ObjectiveOptions o = ddpm("v", "linear");
    o.beta_start = 0.001;
    o.beta_end = 0.003;
    CHECK(std::abs(alpha_bars(o)[0] - 0.999) < 1e-15);
    CHECK(std::abs(1 - alpha_bars(o)[999] / alpha_bars(o)[998] - 0.003) < 1e-12);
}

TEST_CASE("objective: zero terminal signal-to-noise ratio") {
    for (const char* schedule : {"linear", "scaled_linear", "cosine"}) {
        CAPTURE(schedule);
        ObjectiveOptions o = ddpm("v", schedule);
        const std::vector<double> before = alpha_bars(o);
        o.zero_terminal_snr = true;
        const std::vector<double> after = alpha_bars(o);
        CHECK(after[999] == 0);
        CHECK(std::abs(after[0] / before[0] - 1) < 1e-15);
        // the roots keep their proportions
        for (size_t t = 1; t < 999; ++t) {
            const double was = (std::sqrt(before[t]) - std::sqrt(before[999])) /
                               (std::sqrt(before[0]) - std::sqrt(before[999]));
            CHECK(std::abs(std::sqrt(after[t] / after[0]) - was) < 1e-12);
        }
        const NoiseLevel last = Objective(o).at(0.9999);
        CHECK(last.tau == 999);
        CHECK(last.mix == std::array<float, 4>{0, 1, -1, 0});  // pure noise; v is -x0
        o.loss_weighting = "min_snr";
        CHECK(Objective(o).at(0.9999).weight == 0);
    }
}

TEST_CASE("objective: rectified flow's numbers") {
    ObjectiveOptions o;
    const NoiseLevel l = Objective(o).at(0.3);
    CHECK(l.tau == 300.0F);
    CHECK(l.mix == std::array<float, 4>{1.0F - 0.3F, 0.3F, -1, 1});
    CHECK(l.weight == 1);
    CHECK(Objective(o).at(0.7520).tau != Objective(o).at(0.7500).tau);

    o.loss_weighting = "sigma_sqrt";
    CHECK(std::abs(Objective(o).at(0.25).weight - 16) < 1e-13);
    o.loss_weighting = "cosmap";
    CHECK(std::abs(Objective(o).at(0.5).weight - 4 / M_PI) < 1e-14);
    CHECK(std::abs(Objective(o).at(0.9).weight - 2 / (M_PI * 0.82)) < 1e-14);

    // with sigma_min: x = (1-s) x0 + (1 - (1-m)(1-s)) e, target (1-m) e - x0; d x / d s is the
    // target
    o.loss_weighting = "none";
    o.sigma_min = 0.01;
    const NoiseLevel m = Objective(o).at(0.25);
    CHECK(m.mix[0] == 0.75F);
    CHECK(std::abs(double(m.mix[1]) - (1 - 0.99 * 0.75)) < 1e-7);
    CHECK(m.mix[2] == -1);
    CHECK(std::abs(double(m.mix[3]) - 0.99) < 1e-7);
    CHECK(Objective(o).at(0).mix[1] == 0.01F);
    CHECK(Objective(o).at(1).mix[1] == 1);
}

TEST_CASE("objective: ddpm's timesteps and min-SNR weights") {
    const ObjectiveOptions base = ddpm("epsilon", "linear");
    const Objective plain(base);
    CHECK(plain.at(0).tau == 0);
    CHECK(plain.at(0.0009).tau == 0);
    CHECK(plain.at(0.0011).tau == 1);
    CHECK(plain.at(0.9999999).tau == 999);
    CHECK(plain.at(1).tau == 999);
    const std::vector<double> ab = alpha_bars(base);
    for (const int t : {0, 10, 250, 400, 999}) {
        CAPTURE(t);
        const double snr = ab[size_t(t)] / (1 - ab[size_t(t)]);
        const double least = std::min(snr, 5.0), at = (t + 0.5) / 1000;
        const auto weight = [&](const char* prediction) {
            ObjectiveOptions o = ddpm(prediction, "linear");
            o.loss_weighting = "min_snr";
            return Objective(o).at(at).weight;
        };
        CHECK(std::abs(weight("epsilon") / (least / snr) - 1) < 1e-12);
        CHECK(std::abs(weight("v") / (least / (snr + 1)) - 1) < 1e-12);
        CHECK(std::abs(weight("x0") / least - 1) < 1e-12);
        CHECK(plain.at(at).weight == 1);
    }
    // what the weights are for: an error of x0 of size d counts min(snr, 5) d^2 in every form
    const double a = std::sqrt(ab[250]), s = std::sqrt(1 - ab[250]), snr = a * a / (s * s);
    CHECK(std::abs(snr / (snr + 1) * (1 / (s * s)) - snr) < 1e-12 * snr);  // v errs by d / s
}

TEST_CASE("objective: x_t and target of each kind, and the loss's gradient, in float64") {
    Pool pool(1);
    Ctx ctx;
    ctx.ops = &cpu_ops();
    ctx.pool = &pool;
    std::vector<ObjectiveOptions> kinds = {ObjectiveOptions{}, ddpm("v"), ddpm("epsilon"),
                                           ddpm("x0"), ddpm("v", "cosine")};
    const Shape shape = {2, 3, 2, 3, 5};
    const size_t n = 90;
    for (const ObjectiveOptions& o : kinds) {
        CAPTURE(o.kind);
        CAPTURE(o.prediction);
        const Objective objective(o);
        const std::vector<NoiseLevel> levels = {objective.at(0.2), objective.at(0.93)};
        std::vector<float> x0(2 * n), e(2 * n), xt(2 * n), target(2 * n), v(2 * n), dv(2 * n), mix;
        std::vector<int64_t> ids = {17, 900};
        for (size_t i = 0; i < 2 * n; ++i) {
            x0[i] = random_normal(1, Purpose::kTest, 1, i);
            v[i] = random_normal(1, Purpose::kTest, 2, i);
            e[i] = random_normal(6, Purpose::kNoise, uint64_t(ids[i / n]), i % n);
        }
        for (const NoiseLevel& l : levels) mix.insert(mix.end(), l.mix.begin(), l.mix.end());
        const auto f32 = [&](std::vector<float>& data, Shape s) {
            return Tensor(data.data(), s, DType::kF32);
        };
        flow_noise(ctx, f32(xt, shape), f32(target, shape), f32(x0, shape), f32(mix, {2, 4}),
                   Tensor(ids.data(), {2}, DType::kI64), 6, Purpose::kNoise);
        std::vector<float> coef = {0.25F, 1.5F};
        std::vector<double> sse(2);
        flow_loss(ctx, f32(dv, shape), Tensor(sse.data(), {2}, DType::kF64), f32(v, shape),
                  f32(target, shape), f32(coef, {2}));
        for (size_t b = 0; b < 2; ++b) {
            const Definition d =
                define(levels[b], o, {x0.begin() + long(b * n), x0.begin() + long((b + 1) * n)},
                       {e.begin() + long(b * n), e.begin() + long((b + 1) * n)});
            // coefficients, two products and a sum, each rounded once: 4 u of sizes below 6
            const double tol = 4 * 6 * 0x1p-24;
            double loss = 0;
            for (size_t i = 0; i < n; ++i) {
                CHECK(std::abs(double(xt[b * n + i]) - d.xt[i]) < tol);
                CHECK(std::abs(double(target[b * n + i]) - d.target[i]) < tol);
                const double off = double(v[b * n + i]) - d.target[i];
                loss += off * off;
                CHECK(std::abs(double(dv[b * n + i]) - 2 * double(coef[b]) * off) < 16 * tol);
            }
            CHECK(std::abs(sse[b] / loss - 1) < 1e-5);
            // d loss / d v[i] by central difference of the float64 loss: exact for a square
            for (size_t i = 0; i < n; i += 13) {
                const double h = 0.5, x = double(v[b * n + i]) - d.target[i];
                const double slope = ((x + h) * (x + h) - (x - h) * (x - h)) / (2 * h);
                CHECK(std::abs(double(dv[b * n + i]) - double(coef[b]) * slope) < 16 * tol);
            }
        }
    }
}

TEST_CASE("objective: x0 and e come back from x_t and the target") {
    // x0 = sqrt(ab) x_t - sqrt(1-ab) v and e = sqrt(ab) v + sqrt(1-ab) x_t; x0 = x - sigma v for
    // the flow: the target holds what the noisy input lacks
    for (const double at : {0.05, 0.5, 0.95}) {
        const NoiseLevel d = Objective(ddpm("v")).at(at);
        const double a = double(d.mix[0]), s = double(d.mix[1]), p = double(d.mix[2]),
                     q = double(d.mix[3]);
        // a mix[0] - s p = 1 (of x0), a mix[1] - s q = 0 (of e): 4 u
        CHECK(std::abs(a * a - s * p - 1) < 4 * 0x1p-24);
        CHECK(std::abs(a * s - s * q) < 4 * 0x1p-24);
        const NoiseLevel f = Objective(ObjectiveOptions{}).at(at);
        CHECK(std::abs(double(f.mix[0]) - at * double(f.mix[2]) - 1) < 4 * 0x1p-24);
        CHECK(std::abs(double(f.mix[1]) - at * double(f.mix[3])) < 4 * 0x1p-24);
    }
}

TEST_CASE("objective: contradictions are refused with the key") {
    const auto with = [](auto change) {
        ObjectiveOptions o;
        change(o);
        return rules(o);
    };
    using O = ObjectiveOptions;
    using Keys = std::set<std::string>;
    CHECK(with([](O&) {}).empty());
    CHECK(with([](O& o) { o.loss_weighting = "min_snr"; }) == Keys{"loss_weighting"});
    CHECK(with([](O& o) { o.prediction = "x0"; }) == Keys{"prediction"});
    CHECK(with([](O& o) { o.zero_terminal_snr = true; }) == Keys{"zero_terminal_snr"});
    CHECK(with([](O& o) { o.beta_schedule = "cosine"; }) == Keys{"beta_schedule"});
    CHECK(with([](O& o) { o.beta_end = 0.1; }) == Keys{"beta_end"});
    CHECK(with([](O& o) { o.timestep_sampling = "mix"; }) == Keys{"timestep_sampling"});
    CHECK(with([](O& o) { o.timestep_mix.push_back({.sampling = "mode"}); }) ==
          Keys{"timestep_mix"});
    CHECK(with([](O& o) { o.sigma_range = {0.5, 0.5}; }) == Keys{"sigma_range"});
    CHECK(with([](O& o) { o.sigma_range = {0.5}; }) == Keys{"sigma_range"});
    CHECK(with([](O& o) { o.min_snr_gamma = 2; }) == Keys{"min_snr_gamma"});
    const auto with_ddpm = [](auto change) {
        O o = ddpm("v");
        change(o);
        return rules(o);
    };
    CHECK(with_ddpm([](O&) {}).empty());
    CHECK(with_ddpm([](O& o) { o.loss_weighting = "cosmap"; }) == Keys{"loss_weighting"});
    CHECK(with_ddpm([](O& o) { o.flow_shift = 3; }) == Keys{"flow_shift"});
    CHECK(with_ddpm([](O& o) { o.shift_by = "flux"; }) == Keys{"shift_by"});
    CHECK(with_ddpm([](O& o) { o.sigma_min = 1e-5; }) == Keys{"sigma_min"});
    CHECK(with_ddpm([](O& o) {
              o.zero_terminal_snr = true;
              o.prediction = "epsilon";
          }) == Keys{"zero_terminal_snr"});
    CHECK(with_ddpm([](O& o) { o.beta_start = 0.5; }) == Keys{"beta_start"});
    CHECK(with_ddpm([](O& o) {
              o.beta_schedule = "cosine";
              o.beta_end = 0.5;
          }) == Keys{"beta_start"});
    O bad;
    bad.loss_weighting = "min_snr";
    CHECK_THROWS_AS((void)Objective(bad), Error);
}
