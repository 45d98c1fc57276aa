// SPDX-License-Identifier: MIT
#include "sample/solver.h"

#include <cmath>

#include "core/check.h"

namespace vt {
namespace {

constexpr double kTrainSteps = 1000;

void check_args(int64_t steps, double shift) {
    if (steps < 1 || !(shift > 0) || !std::isfinite(shift)) {
        raise(
            Fault::kUser,
            fmt::format("sampling with {} steps and shift {}: there must be at least one step and "
                        "the shift must be above 0",
                        steps, shift));
    }
}

}  // namespace

std::vector<float> flow_euler_sigmas(int64_t steps, double shift) {
    check_args(steps, shift);
    // The scheduler is built in f32, its least sigma with it.
    const auto s = static_cast<float>(shift);
    const float least = 1.0F / static_cast<float>(kTrainSteps);
    const double last =
        double{s * least / (1.0F + static_cast<float>(shift - 1) * least)} * kTrainSteps;
    std::vector<float> out;
    for (int64_t i = 0; i < steps; ++i) {
        // linspace as numpy does it: start + i * step, the end exactly
        const double step = steps > 1 ? (last - kTrainSteps) / static_cast<double>(steps - 1) : 0.0;
        const double t =
            steps > 1 && i == steps - 1 ? last : kTrainSteps + static_cast<double>(i) * step;
        const double sigma = t / kTrainSteps;
        out.push_back(static_cast<float>(shift * sigma / (1 + (shift - 1) * sigma)));
    }
    out.push_back(0);
    return out;
}

std::vector<float> flow_euler_sigmas_explicit(const std::vector<double>& sigmas, double shift) {
    check_args(static_cast<int64_t>(sigmas.size()), shift);
    std::vector<float> out;
    for (const double sigma : sigmas) {
        if (!(sigma > 0 && sigma <= 1)) {
            raise(Fault::kUser, fmt::format("sigma {} is not in (0, 1]", sigma));
        }
        out.push_back(static_cast<float>(shift * sigma / (1 + (shift - 1) * sigma)));
    }
    out.push_back(0);
    return out;
}

std::vector<double> even_sigmas(int64_t steps) {
    check_args(steps, 1);
    std::vector<double> out;
    for (int64_t i = 0; i < steps; ++i) {
        out.push_back(static_cast<double>(steps - i) / static_cast<double>(steps));
    }
    return out;
}

void flow_euler_step(float* x, const float* v, int64_t n, float now, float next) {
    const float dt = next - now;
    for (int64_t i = 0; i < n; ++i) x[i] = x[i] + dt * v[i];
}

void guide(float* v, const float* vc, const float* vu, int64_t n, float w) {
    for (int64_t i = 0; i < n; ++i) v[i] = vu[i] + w * (vc[i] - vu[i]);
}

}  // namespace vt
