// SPDX-License-Identifier: MIT
// The noise levels that a configuration trains on: the very draws of its run, counted, beside the
// distribution they are of and the loss weight they carry.
// Floor 6.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "data/loader.h"
#include "train/options.h"

namespace vt {

// One training draw. x is sigma of a rectified flow; of ddpm, t / 1000 before t is rounded down.
struct LevelDraw {
    uint64_t ordinal = 0;
    size_t bucket = 0;
    double x = 0;
    double weight = 1;  // of the draw in the loss, up to a factor that all share: w, with
                        // loss_reduction "element" times the latent's elements
};

// Draws of one latent shape, or of all.
struct LevelCount {
    std::vector<int64_t> count;    // by bin, [i / bins, (i + 1) / bins)
    std::vector<double> expected;  // probability of the bin, as the density has it
    std::vector<double> weight;    // share of the loss weight of all draws of `count`; sums to 1
    int64_t draws = 0;
    double mean = 0;         // of x
    double mean_weight = 0;  // of the draws here
};

struct LevelBucket {
    std::array<int64_t, 4> shape{};  // C,T,H,W
    double shift = 1;
    LevelDensityPtr density;
    LevelCount seen;
};

struct LevelReport {
    std::vector<LevelDraw> draws;
    std::vector<LevelBucket> buckets;  // those with draws, by shape
    LevelCount all;                    // expected: of the buckets in proportion to their draws
    int64_t steps = 0;                 // that the draws are of, from the run's first on
    /// Standard deviation over the steps of a step's mean x, of whole steps only; and the mean
    /// within-step deviation over sqrt(N), which is what independent draws of one distribution
    /// have. 0 with fewer than two whole steps.
    double step_deviation = 0, independent_deviation = 0;

    /// x below which the share u of the draws lies, 0 < u < 1.
    [[nodiscard]] double quantile(double u) const;
    /// The smallest share of the draws that carries half of the loss weight; 1/2 where all weigh
    /// the same, next to nothing where few draws rule.
    [[nodiscard]] double half_weight() const;
    /// Density of all draws together, at x in (0, 1).
    [[nodiscard]] double pdf(double x) const;
};

/// The first `samples` draws of the run, of `data` in the order its loader takes them; `bins`
/// equally wide bins.
[[nodiscard]] LevelReport draw_levels(const RunConfig& config, const Dataset& data, int64_t samples,
                                      int64_t bins);
/// The same without data, the draws going round `shapes`.
[[nodiscard]] LevelReport draw_levels(const RunConfig& config,
                                      const std::vector<std::array<int64_t, 4>>& shapes,
                                      int64_t samples, int64_t bins);

/// Curves of a report as a PNG: what was drawn, its density, the loss weight, and where the shift
/// differs by shape the density of some shapes.
void plot_levels(const fs::path& path, const RunConfig& config, const LevelReport& report);

/// "logit_normal (mean 0, std 1), shift 3 by flux, sigma in [0, 0.875], stratified": in words.
[[nodiscard]] std::string sampler_text(const ObjectiveOptions& o);

}  // namespace vt
