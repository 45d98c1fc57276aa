// SPDX-License-Identifier: MIT
// Whole runs of every kind of objective: the loss and the gradient norm of a first step against a
// float64 computation that shares nothing with src/model/objective and src/train but the order of
// draws and the random numbers; how a step may be cut; that training trains; resume.
#include <cmath>
#include <functional>

#include <doctest/doctest.h>

#include "model/registry.h"
#include "tests/model/wan_run.h"
#include "tests/ref/ref.h"
#include "tests/train/rig.h"

using namespace vt;
using namespace vt::test;

namespace {

const std::vector<std::array<int64_t, 4>> kTwoShapes = {{4, 2, 4, 6}, {4, 1, 6, 4}};
constexpr uint64_t kSeed = 5;  // of tiny_config

struct Case {
    const char* name;
    std::function<void(ObjectiveOptions&)> set;
};

void make_ddpm(ObjectiveOptions& o, const char* prediction, const char* schedule) {
    o.kind = "ddpm";
    o.timestep_sampling = "uniform";
    o.prediction = prediction;
    o.beta_schedule = schedule;
}

const std::vector<Case>& cases() {
    static const std::vector<Case> all = {
        {"flow, logit-normal, shift by area, cosmap",
         [](auto& o) {
             o.logit_mean = 0.3;
             o.logit_std = 0.8;
             o.flow_shift = 3;
             o.shift_by = "sqrt_area";
             o.shift_reference = 20;
             o.loss_weighting = "cosmap";
         }},
        {"flow, mode, stratified, 1 / sigma^2",
         [](auto& o) {
             o.timestep_sampling = "mode";
             o.stratified = true;
             o.loss_weighting = "sigma_sqrt";
             o.sigma_range = {0.2, 1};
         }},
        {"flow, mixture, shift by duration, range, least noise",
         [](auto& o) {
             o.timestep_sampling = "mix";
             o.timestep_mix = {{.sampling = "uniform", .weight = 1},
                               {.sampling = "logit_normal", .weight = 2, .logit_mean = -0.5}};
             o.shift_by = "open_sora";
             o.sigma_range = {0.1, 0.875};
             o.sigma_min = 0.01;
         }},
        {"epsilon, linear", [](auto& o) { make_ddpm(o, "epsilon", "linear"); }},
        {"epsilon, scaled linear, min-SNR",
         [](auto& o) {
             make_ddpm(o, "epsilon", "scaled_linear");
             o.loss_weighting = "min_snr";
         }},
        {"v, cosine, zero terminal SNR, stratified",
         [](auto& o) {
             make_ddpm(o, "v", "cosine");
             o.zero_terminal_snr = true;
             o.stratified = true;
         }},
        {"v, linear, min-SNR",
         [](auto& o) {
             make_ddpm(o, "v", "linear");
             o.loss_weighting = "min_snr";
             o.min_snr_gamma = 2;
         }},
        {"x0, scaled linear, min-SNR, zero terminal SNR",
         [](auto& o) {
             make_ddpm(o, "x0", "scaled_linear");
             o.loss_weighting = "min_snr";
             o.zero_terminal_snr = true;
         }},
        {"x0, linear, logit-normal t", [](auto& o) {
             make_ddpm(o, "x0", "linear");
             o.timestep_sampling = "logit_normal";
         }}};
    return all;
}

// The point where a rising function of (0,1) reaches `target`.
double bisect(const std::function<double(double)>& f, double target) {
    double low = 0, high = 1;
    for (int i = 0; i < 80; ++i) {
        const double middle = (low + high) / 2;
        (f(middle) < target ? low : high) = middle;
    }
    return (low + high) / 2;
}

double logit_normal_cdf(double x, double mean, double std) {
    if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
    return 0.5 * std::erfc(-(std::log(x / (1 - x)) - mean) / (std * std::sqrt(2.0)));
}

// The noise level that the number u stands for: x with P(level < x) = u, from the distribution
// functions of the samplers.
double level_of(const ObjectiveOptions& o, const std::array<int64_t, 4>& s, double u) {
    const auto cdf_of = [](const std::string& sampling, double mean, double std, double x) {
        return sampling == "uniform" ? x : logit_normal_cdf(x, mean, std);
    };
    const auto base = [&](double v) {
        if (o.timestep_sampling == "mode") {
            const double w = 1 - v;
            return 1 - w - o.mode_scale * (std::pow(std::cos(M_PI / 2 * w), 2) - 1 + w);
        }
        return bisect(
            [&](double x) {
                if (o.timestep_sampling != "mix") {
                    return cdf_of(o.timestep_sampling, o.logit_mean, o.logit_std, x);
                }
                double sum = 0, weights = 0;
                for (const TimestepSampler& m : o.timestep_mix) {
                    sum += m.weight * cdf_of(m.sampling, m.logit_mean, m.logit_std, x);
                    weights += m.weight;
                }
                return sum / weights;
            },
            v);
    };
    const double area = double(s[2] * s[3]);
    double shift = o.flow_shift;
    if (o.shift_by == "sqrt_area") shift *= std::sqrt(area / o.shift_reference);
    if (o.shift_by == "open_sora") {
        shift *= (1 + 2 * (area / 4 - 256) / 3840) * std::sqrt(double(s[1]));
    }
    const auto shifted = [&](double v) {
        const double x = base(v);
        return shift * x / (1 + (shift - 1) * x);
    };
    const bool whole = o.sigma_range[0] == 0 && o.sigma_range[1] == 1;
    if (whole) return shifted(u);
    const double low = bisect(shifted, o.sigma_range[0]), high = bisect(shifted, o.sigma_range[1]);
    return shifted(low + u * (high - low));
}

double alpha_bar(const ObjectiveOptions& o, int64_t t) {
    const auto plain = [&](int64_t last) {
        double product = 1;
        for (int64_t i = 0; i <= last; ++i) {
            const double share = double(i) / 999;
            double beta = 1e-4 + share * (0.02 - 1e-4);
            if (o.beta_schedule == "scaled_linear") {
                const double a = std::sqrt(0.00085), b = std::sqrt(0.012);
                beta = std::pow(a + share * (b - a), 2);
            }
            if (o.beta_schedule == "cosine") {
                const auto f = [](double x) {
                    return std::pow(std::cos((x + 0.008) / 1.008 * M_PI / 2), 2);
                };
                beta = std::min(0.999, 1 - f(double(i + 1) / 1000) / f(double(i) / 1000));
            }
            product *= 1 - beta;
        }
        return product;
    };
    if (!o.zero_terminal_snr) return plain(t);
    const double first = std::sqrt(plain(0)), last = std::sqrt(plain(999));
    return std::pow((std::sqrt(plain(t)) - last) * first / (first - last), 2);
}

struct Level {
    double tau = 0, a = 0, s = 0, p = 0, q = 0, w = 1;  // x_t = a x0 + s e, target = p x0 + q e
};
Level level_at(const ObjectiveOptions& o, double x) {
    Level l;
    if (o.kind == "rectified_flow") {
        // the program's tau and mixing factors are float32, and part of the definition
        l = {.tau = double(float(1000 * x)), .a = 1 - x, .s = x, .p = -1, .q = 1};
        l.s = 1 - (1 - o.sigma_min) * (1 - x);
        l.q = 1 - o.sigma_min;
        if (o.loss_weighting == "sigma_sqrt") l.w = 1 / (x * x);
        if (o.loss_weighting == "cosmap") l.w = 2 / (M_PI * (1 - 2 * x + 2 * x * x));
        return l;
    }
    const double t = std::floor(1000 * x), ab = alpha_bar(o, int64_t(t)), snr = ab / (1 - ab);
    l = {.tau = t, .a = std::sqrt(ab), .s = std::sqrt(1 - ab), .p = 0, .q = 0};
    const double clipped = std::min(snr, o.min_snr_gamma);
    double w = clipped;
    if (o.prediction == "epsilon") {
        l.q = 1;
        w = clipped / snr;
    } else if (o.prediction == "x0") {
        l.p = 1;
    } else {
        l.p = -l.s;
        l.q = l.a;
        w = clipped / (snr + 1);
    }
    if (o.loss_weighting == "min_snr") l.w = w;
    return l;
}

struct Expected {
    double loss = 0, norm = 0;
};

// Loss and gradient norm of the first step of N draws, in float64.
Expected first_step(const RunConfig& c, const Dataset& data) {
    const ObjectiveOptions& o = c.objective;
    const auto N = uint64_t(c.data.global_batch_size);
    const LatentFacts& f = data.facts();
    const WanConfig wan = wan_config(c.model, f);
    double elements = 0;
    for (uint64_t k = 0; k < N; ++k) {
        const auto s = data.sample(0, draw_at(data, kSeed, k).index).shape;
        elements += double(s[0] * s[1] * s[2] * s[3]);
    }
    Expected out;
    std::vector<std::vector<double>> grads;
    for (uint64_t k = 0; k < N; ++k) {
        const int64_t index = draw_at(data, kSeed, k).index;
        const std::array<int64_t, 4> s = data.sample(0, index).shape;
        const int64_t n = s[0] * s[1] * s[2] * s[3];
        std::vector<float> x0(size_t(n), 0.0F), text(size_t(f.text_len * f.text_dim), 0.0F);
        const Tensor words(text.data(), {f.text_len, f.text_dim}, DType::kF32);
        data.read(0, index, {x0.data(), {s[0], s[1], s[2], s[3]}, DType::kF32}, words);
        if (caption_dropped(kSeed, k, o.cfg_dropout_prob)) data.read_empty_text(words);

        double u = random_unit(kSeed, Purpose::kTimestep, k, 0) + 0x1p-54;
        if (o.stratified) {
            u = (double(keyed_permutation(kSeed, Purpose::kStratum, 1, N, k)) + u) / double(N);
        }
        const Level l = level_at(o, level_of(o, s, u));
        WanCase w =
            filled_case(wan, {1, {s[0], s[1], s[2], s[3]}, f.text_len}, {l.tau}, f.text_len);
        for (auto& values : w.weights) {
            for (double& v : values) v = double(float(v));  // as the run holds them
        }
        w.text.assign(text.begin(), text.end());
        std::vector<double> target(static_cast<size_t>(n));
        for (size_t i = 0; i < target.size(); ++i) {
            const double e = double(random_normal(kSeed, Purpose::kNoise, k, i)), x = double(x0[i]);
            w.x[i] = l.a * x + l.s * e;
            target[i] = l.p * x + l.q * e;
        }
        WanRunOptions forward;
        forward.backward = false;
        const std::vector<double> v = run_wan(ref_ops(), kF64, w, forward).out;
        const double coef =
            l.w / (o.loss_reduction == "element" ? elements : double(N) * double(n));
        for (size_t i = 0; i < v.size(); ++i) {
            const double error = v[i] - target[i];
            out.loss += coef * error * error;
            w.r[i] = 2 * coef * error;
        }
        const WanResult back = run_wan(ref_ops(), kF64, w);
        grads.resize(back.grads.size());
        for (size_t p = 0; p < grads.size(); ++p) {
            grads[p].resize(back.grads[p].size());
            for (size_t i = 0; i < grads[p].size(); ++i) grads[p][i] += back.grads[p][i];
        }
    }
    double squares = 0;
    for (const auto& g : grads) squares += norm2(g) * norm2(g);
    out.norm = std::sqrt(squares);
    return out;
}

RunConfig config_of(const Case& which, const fs::path& out) {
    RunConfig c = tiny_config(out);
    which.set(c.objective);
    REQUIRE(conflicts(c.objective).empty());
    return c;
}

}  // namespace

TEST_CASE("train: the first step of every objective is what float64 says") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    double worst_loss = 0, worst_norm = 0;
    int runs = 0;
    for (const Case& which : cases()) {
        const char* reduction = runs % 2 == 0 ? "sample" : "element";
        CAPTURE(std::string(which.name));
        CAPTURE(std::string(reduction));
        RunConfig c = config_of(which, dir / std::to_string(runs++));
        c.run.train_iters = 1;
        c.data.global_batch_size = 5;  // both shapes are drawn, and one micro-batch is not full
        c.objective.loss_reduction = reduction;
        c.objective.cfg_dropout_prob = 0.4;
        const RunOutcome got = train(c, data);
        REQUIRE(got.loss.size() == 1);
        const Expected want = first_step(c, data);
        // An output of two blocks in f32 is a chain of some 30 products of up to 40 terms: off by
        // sqrt(30 x 40) u = 35 u. Loss and norm are sums over more than 100 of such numbers, whose
        // errors mostly cancel.
        const double tol = 35 / 3.0 * unit_roundoff(DType::kF32);
        worst_loss = std::max(worst_loss, std::abs(got.loss[0] / want.loss - 1));
        worst_norm = std::max(worst_norm, std::abs(got.norm[0] / want.norm - 1));
        CHECK(std::abs(got.loss[0] / want.loss - 1) < tol);
        CHECK(std::abs(got.norm[0] / want.norm - 1) < tol);
    }
    MESSAGE("largest error of a loss " << worst_loss / unit_roundoff(DType::kF32)
                                       << " u, of a norm "
                                       << worst_norm / unit_roundoff(DType::kF32) << " u");
}

TEST_CASE("train: a step of each kind of objective may be cut as one likes") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    int runs = 0;
    for (const size_t number : {size_t{0}, size_t{4}, size_t{5}, size_t{7}}) {
        const Case& which = cases()[number];
        CAPTURE(std::string(which.name));
        std::vector<RunOutcome> outcomes;
        for (const int64_t micro : {4, 1}) {
            RunConfig c = config_of(which, dir / std::to_string(runs++));
            c.run.train_iters = 1;
            c.data.micro_batch_size = micro;
            c.objective.loss_reduction = number % 2 == 0 ? "element" : "sample";
            outcomes.push_back(train(c, data));
        }
        // sums over samples differ in order: sqrt(terms) u, terms ~ 100 tokens x 4 samples, times 8
        const double tol = 8 * std::sqrt(400.0) * unit_roundoff(DType::kF32);
        CHECK(std::abs(outcomes[0].loss[0] / outcomes[1].loss[0] - 1) < tol);
        CHECK(std::abs(outcomes[0].norm[0] / outcomes[1].norm[0] - 1) < tol);
    }
}

TEST_CASE("train: every objective trains") {
    const FakeData data(4, kTwoShapes);
    const TempDir dir;
    int runs = 0;
    for (const Case& which : cases()) {
        CAPTURE(std::string(which.name));
        RunConfig c = config_of(which, dir / std::to_string(runs++));
        c.run.train_iters = 60;
        c.data.micro_batch_size = 4;
        c.health.enabled = false;
        const RunOutcome r = train(c, data);
        REQUIRE(r.loss.size() == 60);
        double first = 0, last = 0;
        for (size_t i = 0; i < 10; ++i) {
            first += r.loss[i];
            last += r.loss[50 + i];
        }
        CAPTURE(first);
        CAPTURE(last);
        CHECK(last < 0.8 * first);
    }
}

TEST_CASE("train: a noise schedule's run resumes bit for bit") {
    const FakeData data(10, kTwoShapes);
    const TempDir dir;
    RunConfig whole = config_of(cases()[5], dir / "whole");
    whole.objective.loss_weighting = "min_snr";
    whole.objective.loss_reduction = "element";
    whole.run.train_iters = 6;
    const RunOutcome a = train(whole, data);
    RunConfig half = whole;
    half.run.out = (dir / "half").string();
    half.run.train_iters = 3;
    REQUIRE(train(half, data).code == 0);
    half.run.train_iters = 6;
    const RunOutcome b = train(half, data);
    CHECK(read_info(b.last).step == 6);
    const ParamTable table =
        make_model(whole.model, data.facts(), make_precision("fp32", whole.model))->params();
    CHECK(differing(read_state(a.last, table, 1), read_state(b.last, table, 1)).empty());
    CHECK(a.loss == b.loss);
    CHECK(a.loss.size() == 6);
}
