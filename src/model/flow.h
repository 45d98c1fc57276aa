// SPDX-License-Identifier: MIT
// [objective]: rectified flow. sigma = 1 is pure noise,
// x_sigma = (1 - sigma) x0 + sigma e, target v = e - x0, timestep tau = 1000 sigma.
// From Liu et al. 2022, arXiv:2209.03003; Esser et al. 2024, arXiv:2403.03206 (logit-normal).
// Floor 4.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "config/field.h"
#include "core/rng.h"

namespace vt {

struct ObjectiveOptions {
    std::string kind = "rectified_flow";
    std::string timestep_sampling = "logit_normal";  // uniform | logit_normal
    double logit_mean = 0, logit_std = 1;
    double flow_shift = 1.0;  // sigma' = S sigma / (1 + (S-1) sigma)
    double cfg_dropout_prob = 0.1;
    std::string loss_reduction = "sample";  // sample | element
};
[[nodiscard]] std::vector<Field> fields(ObjectiveOptions& o);

/// sigma of a draw: a pure function of (seed, ordinal). In (0, 1).
[[nodiscard]] double draw_sigma(const ObjectiveOptions& o, uint64_t seed, uint64_t ordinal);
/// The quantile u in (0, 1) of the same distribution (validation uses fixed quantiles).
[[nodiscard]] double sigma_at_quantile(const ObjectiveOptions& o, double u);
/// The op's numbers (1 - sigma, sigma, -1, 1), the first worked out in f32.
[[nodiscard]] std::array<float, 4> flow_mix(double sigma);
[[nodiscard]] double shift_sigma(double sigma, double shift);

}  // namespace vt
