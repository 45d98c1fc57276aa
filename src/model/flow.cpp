// SPDX-License-Identifier: MIT
#include "model/flow.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace vt {

namespace {

// Inverse of the standard normal distribution: Abramowitz and Stegun 26.2.23 (4.5e-4), then three
// Halley steps on erfc, each of which triples the digits.
double probit(double u) {
    const double p = u < 0.5 ? u : 1 - u;  // lower tail; 1 - u is exact for u >= 0.5
    const double t = std::sqrt(-2 * std::log(p));
    double x = (2.515517 + t * (0.802853 + t * 0.010328)) /
                   (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
               t;
    for (int i = 0; i < 3; ++i) {
        const double error = 0.5 * std::erfc(-x / M_SQRT2) - p;
        const double step = error * std::sqrt(2 * M_PI) * std::exp(x * x / 2);
        x -= step / (1 + x * step / 2);
    }
    return u < 0.5 ? x : -x;
}

}  // namespace

std::array<float, 4> flow_mix(double sigma) {
    const auto s = static_cast<float>(sigma);
    return {1.0F - s, s, -1, 1};
}

double shift_sigma(double sigma, double shift) {
    return shift * sigma / (1 + (shift - 1) * sigma);
}

double sigma_at_quantile(const ObjectiveOptions& o, double u) {
    VT_CHECK(u > 0 && u < 1, "quantile {}", u);
    double sigma = u;
    if (o.timestep_sampling == "logit_normal") {
        sigma = 1 / (1 + std::exp(-(o.logit_mean + o.logit_std * probit(u))));
    } else {
        VT_CHECK(o.timestep_sampling == "uniform", "timestep_sampling '{}'", o.timestep_sampling);
    }
    return shift_sigma(sigma, o.flow_shift);
}

double draw_sigma(const ObjectiveOptions& o, uint64_t seed, uint64_t ordinal) {
    // The half step keeps u off 0 and 1, where the quantile is infinite.
    const double u = random_unit(seed, Purpose::kTimestep, ordinal, 0) + 0x1p-54;
    return sigma_at_quantile(o, std::min(u, 1 - 0x1p-53));
}

}  // namespace vt
