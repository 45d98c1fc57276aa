// SPDX-License-Identifier: MIT
// Distributions of the noise level: density, distribution function and quantile of each sampler,
// all in double and in closed form or solved to the last digits. Training draws, strata,
// validation quantiles and intervals all go through the quantile.
// Floor 4.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace vt {

/// Quantile of the standard normal distribution, u in (0, 1); and the distribution function.
[[nodiscard]] double normal_quantile(double u);
[[nodiscard]] double normal_cdf(double x);

/// sigma' = S sigma / (1 + (S-1) sigma): shift towards noise for S > 1. Shifts compose: first S1,
/// then S2 is S1 S2, and 1/S undoes S.
[[nodiscard]] double shift_sigma(double sigma, double shift);

// A distribution on (0, 1).
class LevelDensity {
  public:
    virtual ~LevelDensity() = default;
    [[nodiscard]] virtual double pdf(double x) const = 0;       // x in (0, 1)
    [[nodiscard]] virtual double cdf(double x) const = 0;       // x in [0, 1]
    [[nodiscard]] virtual double quantile(double u) const = 0;  // u in (0, 1)
};
using LevelDensityPtr = std::shared_ptr<const LevelDensity>;

[[nodiscard]] LevelDensityPtr uniform_level();
/// sigmoid(mean + std n), n standard normal. From Esser et al. 2024, arXiv:2403.03206, section 3.1.
[[nodiscard]] LevelDensityPtr logit_normal_level(double mean, double std);
/// 1 - u - scale (cos^2(pi u / 2) - 1 + u), u uniform; -1 <= scale <= 2 / (pi - 2). The same
/// section.
[[nodiscard]] LevelDensityPtr mode_level(double scale);
/// Parts with weights > 0 (of any sum). The quantile is found between those of the parts.
[[nodiscard]] LevelDensityPtr mixed_level(
    std::vector<std::pair<double, LevelDensityPtr>> weight_and_part);
/// shift_sigma of the base.
[[nodiscard]] LevelDensityPtr shifted_level(LevelDensityPtr base, double shift);
/// The base given that it lies in [low, high]. kUser if that has no probability to speak of.
[[nodiscard]] LevelDensityPtr conditioned_level(LevelDensityPtr base, double low, double high);

}  // namespace vt
