// SPDX-License-Identifier: MIT
#include "model/objective.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "core/rng.h"

namespace vt {

namespace {

LevelDensityPtr sampler_of(const std::string& sampling, double logit_mean, double logit_std,
                           double mode_scale) {
    if (sampling == "uniform") return uniform_level();
    if (sampling == "logit_normal") return logit_normal_level(logit_mean, logit_std);
    VT_CHECK(sampling == "mode", "timestep sampling '{}'", sampling);
    return mode_level(mode_scale);
}

LevelDensityPtr sampler_of(const ObjectiveOptions& o) {
    if (o.timestep_sampling != "mix") {
        return sampler_of(o.timestep_sampling, o.logit_mean, o.logit_std, o.mode_scale);
    }
    std::vector<std::pair<double, LevelDensityPtr>> parts;
    for (const TimestepSampler& s : o.timestep_mix) {
        parts.emplace_back(s.weight,
                           sampler_of(s.sampling, s.logit_mean, s.logit_std, s.mode_scale));
    }
    return mixed_level(std::move(parts));
}

}  // namespace

std::vector<double> alpha_bars(const ObjectiveOptions& o) {
    constexpr auto T = static_cast<double>(kTrainTimesteps);
    const bool linear = o.beta_schedule == "linear";
    VT_CHECK(linear || o.beta_schedule == "scaled_linear" || o.beta_schedule == "cosine",
             "beta_schedule '{}'", o.beta_schedule);
    const double start = o.beta_start > 0 ? o.beta_start : linear ? 1e-4 : 0.00085;
    const double end = o.beta_end > 0 ? o.beta_end : linear ? 0.02 : 0.012;
    const auto cosine = [](double x) {
        const double c = std::cos((x + 0.008) / 1.008 * M_PI / 2);
        return c * c;
    };
    std::vector<double> out;
    double product = 1;
    for (int64_t t = 0; t < kTrainTimesteps; ++t) {
        const auto i = static_cast<double>(t);
        double beta = 0;
        if (linear) {
            beta = start + (end - start) * i / (T - 1);
        } else if (o.beta_schedule == "scaled_linear") {
            const double root =
                std::sqrt(start) + (std::sqrt(end) - std::sqrt(start)) * i / (T - 1);
            beta = root * root;
        } else {
            beta = std::min(1 - cosine((i + 1) / T) / cosine(i / T), 0.999);
        }
        product *= 1 - beta;
        out.push_back(product);
    }
    if (o.zero_terminal_snr) {
        const double first = std::sqrt(out.front()), last = std::sqrt(out.back());
        for (double& ab : out) {
            const double a = (std::sqrt(ab) - last) * first / (first - last);
            ab = a * a;
        }
    }
    return out;
}

Objective::Objective(const ObjectiveOptions& options) : options_(options) {
    for (const Conflict& c : conflicts(options)) raise(Fault::kUser, c.rule, c.hint);
    sampler_ = sampler_of(options);
    if (options.kind == "ddpm") alpha_bar_ = alpha_bars(options);
    (void)density({16, 1, 32, 32});  // an empty sigma_range is refused here
}

double Objective::shift(const LatentShape& shape) const {
    const double area = static_cast<double>(shape.H) * static_cast<double>(shape.W);
    const double tokens = area / 4;  // of one frame, in patches of 2 x 2
    double by_shape = 1;
    if (options_.shift_by == "flux") {
        by_shape = std::exp(0.5 + 0.65 * (tokens - 256) / 3840);
    } else if (options_.shift_by == "sqrt_area") {
        by_shape = std::sqrt(area / options_.shift_reference);
    } else if (options_.shift_by == "open_sora") {
        by_shape = (1 + 2 * (tokens - 256) / 3840) * std::sqrt(static_cast<double>(shape.T));
    }
    return options_.flow_shift * by_shape;
}

LevelDensityPtr Objective::density(const LatentShape& shape) const {
    LevelDensityPtr d = sampler_;
    const double s = shift(shape);
    if (s != 1) d = shifted_level(d, s);
    const std::vector<double>& range = options_.sigma_range;
    if (range[0] > 0 || range[1] < 1) d = conditioned_level(d, range[0], range[1]);
    return d;
}

double Objective::unit(uint64_t seed, uint64_t ordinal, const StepDraws& in) const {
    // The half step keeps u off 0 and 1, where a quantile may be infinite.
    double u = random_unit(seed, Purpose::kTimestep, ordinal, 0) + 0x1p-54;
    if (options_.stratified) {
        const uint64_t stratum = keyed_permutation(
            seed, Purpose::kStratum, static_cast<uint64_t>(in.step), in.count, ordinal - in.first);
        u = (static_cast<double>(stratum) + u) / static_cast<double>(in.count);
    }
    return std::min(u, 1 - 0x1p-53);
}

NoiseLevel Objective::at(double sigma) const {
    if (alpha_bar_.empty()) return flow(sigma);
    const auto t = static_cast<int64_t>(sigma * static_cast<double>(kTrainTimesteps));
    return ddpm(std::clamp<int64_t>(t, 0, kTrainTimesteps - 1));
}

NoiseLevel Objective::flow(double sigma) const {
    NoiseLevel out;
    out.sigma = sigma;
    out.tau = static_cast<float>(static_cast<double>(kTrainTimesteps) * sigma);
    const auto s = static_cast<float>(sigma);
    out.mix = {1.0F - s, s, -1, 1};
    if (options_.sigma_min > 0) {
        // the straight path to (1 - sigma_min) e: at no sigma is x_t data alone
        const double rest = 1 - options_.sigma_min;
        out.mix[1] = static_cast<float>(1 - rest * (1 - sigma));
        out.mix[3] = static_cast<float>(rest);
    }
    if (options_.loss_weighting == "sigma_sqrt") {
        out.weight = 1 / (sigma * sigma);
    } else if (options_.loss_weighting == "cosmap") {
        out.weight = 2 / (M_PI * (1 - 2 * sigma + 2 * sigma * sigma));
    }
    return out;
}

NoiseLevel Objective::ddpm(int64_t t) const {
    const double ab = alpha_bar_[static_cast<size_t>(t)];
    const double a = std::sqrt(ab), s = std::sqrt(1 - ab), snr = ab / (1 - ab);
    NoiseLevel out;
    out.sigma = static_cast<double>(t) / static_cast<double>(kTrainTimesteps);
    out.tau = static_cast<float>(t);
    double p = -s, q = a;  // v
    if (options_.prediction == "epsilon") {
        p = 0;
        q = 1;
    } else if (options_.prediction == "x0") {
        p = 1;
        q = 0;
    }
    out.mix = {static_cast<float>(a), static_cast<float>(s), static_cast<float>(p),
               static_cast<float>(q)};
    if (options_.loss_weighting == "min_snr") {
        // the weight min(snr, gamma) of an x0 error, in terms of the predicted quantity's error
        const double x0 = std::min(snr, options_.min_snr_gamma);
        out.weight = x0;
        if (options_.prediction == "v") out.weight = x0 / (snr + 1);
        if (options_.prediction == "epsilon") out.weight = snr > 0 ? x0 / snr : 1;
    }
    return out;
}

}  // namespace vt
