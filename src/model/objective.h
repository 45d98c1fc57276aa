// SPDX-License-Identifier: MIT
// [objective]: what a sample is mixed with, what the model is to predict and how errors are
// weighed. x_t = a x0 + s e with e ~ N(0,1); target = p x0 + q e.
//   rectified_flow  a = 1 - sigma, s = sigma, target e - x0; the model sees tau = 1000 sigma.
//                   sigma = 1 is pure noise. Liu et al. 2022, arXiv:2209.03003; samplers and
//                   weights from Esser et al. 2024, arXiv:2403.03206
//   ddpm            a = sqrt(ab_t), s = sqrt(1 - ab_t), ab_t the running product of 1 - beta;
//                   the model sees t = 0..999. Ho et al. 2020, arXiv:2006.11239; v from Salimans
//                   and Ho 2022, arXiv:2202.00512
// Floor 4.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "config/field.h"
#include "model/model.h"
#include "model/timesteps.h"

namespace vt {

// One entry of objective.timestep_mix.
struct TimestepSampler {
    std::string sampling;  // uniform | logit_normal | mode
    double weight = 1;
    double logit_mean = 0, logit_std = 1, mode_scale = 1.29;
};
[[nodiscard]] std::vector<Field> fields(TimestepSampler& o);

struct ObjectiveOptions {
    std::string kind = "rectified_flow";             // rectified_flow | ddpm
    std::string prediction = "v";                    // v | epsilon | x0
    std::string timestep_sampling = "logit_normal";  // uniform | logit_normal | mode | mix
    double logit_mean = 0, logit_std = 1, mode_scale = 1.29;
    std::vector<TimestepSampler> timestep_mix;
    bool stratified = false;
    std::vector<double> sigma_range = {0, 1};
    double flow_shift = 1.0;
    std::string shift_by = "none";  // none | flux | sqrt_area | open_sora
    double shift_reference = 1024;  // H W of latents at which sqrt_area is 1
    double sigma_min = 0;
    std::string loss_weighting = "none";  // none | sigma_sqrt | cosmap | min_snr
    double min_snr_gamma = 5;
    std::string beta_schedule = "linear";  // linear | scaled_linear | cosine
    double beta_start = 0, beta_end = 0;   // 0: the schedule's own
    bool zero_terminal_snr = false;
    double cfg_dropout_prob = 0.1;
    std::string loss_reduction = "sample";  // sample | element
};
[[nodiscard]] std::vector<Field> fields(ObjectiveOptions& o);
/// Values that do not go together, each with the reason.
[[nodiscard]] std::vector<Conflict> conflicts(const ObjectiveOptions& o);

inline constexpr int64_t kTrainTimesteps = 1000;  // ddpm's t; tau of rectified flow at sigma = 1

/// ab_t for t = 0..999. Schedules as diffusers' DDPMScheduler has them, in double.
/// zero_terminal_snr rescales sqrt(ab) to end in 0 (Lin et al. 2023, arXiv:2305.08891, algorithm
/// 1).
[[nodiscard]] std::vector<double> alpha_bars(const ObjectiveOptions& o);

// The draws of one optimizer step: ordinals [first, first + count).
struct StepDraws {
    int64_t step = 0;
    uint64_t first = 0, count = 1;
};

// What the objective decides for one sample.
struct NoiseLevel {
    double sigma = 0;            // rectified flow's sigma; t / 1000 for ddpm
    float tau = 0;               // what the model is told: 1000 sigma; t
    std::array<float, 4> mix{};  // a, s, p, q
    double weight = 1;           // of the sample's error in the loss
};

class Objective {
  public:
    /// kUser if the options contradict each other.
    explicit Objective(const ObjectiveOptions& options);

    /// flow_shift times what shift_by says for a latent of this shape. 1 for ddpm.
    ///   flux       e^mu, mu = 0.5 + 0.65 (H W / 4 - 256) / 3840         (Flux.1's scheduler)
    ///   sqrt_area  sqrt(H W / shift_reference)                  (arXiv:2403.03206, section 5.3.2)
    ///   open_sora  (1 + 2 (H W / 4 - 256) / 3840) sqrt(T)      (Open-Sora 2.0, arXiv:2503.09642)
    [[nodiscard]] double shift(const LatentShape& shape) const;
    [[nodiscard]] bool shift_depends_on_shape() const { return options_.shift_by != "none"; }

    /// The distribution of sigma (ddpm: of t / 1000 before t is rounded down) for samples of this
    /// shape: sampler, then shift, then sigma_range.
    [[nodiscard]] LevelDensityPtr density(const LatentShape& shape) const;

    /// The number u in (0, 1) of a draw: a pure function of (seed, ordinal). Stratified: the step's
    /// N draws share the N equal parts of (0, 1) among them, the part of a draw being a keyed
    /// permutation by step of its place in the step, so that a step covers the whole range.
    [[nodiscard]] double unit(uint64_t seed, uint64_t ordinal, const StepDraws& in) const;

    /// Everything about noise level sigma; ddpm takes t = min(floor(1000 sigma), 999).
    [[nodiscard]] NoiseLevel at(double sigma) const;

    [[nodiscard]] const ObjectiveOptions& options() const { return options_; }

  private:
    [[nodiscard]] NoiseLevel flow(double sigma) const;
    [[nodiscard]] NoiseLevel ddpm(int64_t t) const;
    ObjectiveOptions options_;
    LevelDensityPtr sampler_;
    std::vector<double> alpha_bar_;  // of ddpm
};

}  // namespace vt
