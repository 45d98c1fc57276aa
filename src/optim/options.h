// SPDX-License-Identifier: MIT
// [optim]: AdamW, learning rate, groups of parameters, clipping, EMA. Floor 4.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/field.h"

namespace vt {

// One of [[optim.groups]]: what differs for some parameters. The last group that names a parameter
// holds for it, whole.
struct ParamGroup {
    std::vector<std::string> params;       // globs over parameter names
    double lr_scale = 1;                   // factor on the learning rate of every step
    std::optional<double> lr{};            // or the peak that optim.lr is for the others
    std::optional<double> weight_decay{};  // instead of optim.weight_decay
    bool decay_all = false;                // decay biases, norms and tables too
};
[[nodiscard]] std::vector<Field> fields(ParamGroup& o);

// One of [[optim.ema]].
struct EmaOptions {
    double decay = 0.9999;
    std::string warmup = "none";  // none | diffusers | power
    double inv_gamma = 1, power = 2.0 / 3, min_decay = 0;
    int64_t update_after_step = 0;
    int64_t every = 1;
    int64_t switch_step = 0;  // from this step on switch_decay; 0: never
    std::optional<double> switch_decay{};
    int64_t adopt_step = 0;  // after this step the weights become the average; 0: never
};
[[nodiscard]] std::vector<Field> fields(EmaOptions& o);

struct OptimOptions {
    double lr = 1e-4;
    double min_lr = 0;
    std::string lr_decay_style = "constant";
    int64_t lr_warmup_iters = 0;
    double lr_warmup_init = 0;
    int64_t lr_decay_iters = 0;  // 0: run.train_iters
    int64_t lr_wsd_decay_iters = 0;
    // the same three in samples; any of them makes the curve one of samples
    int64_t lr_warmup_samples = 0, lr_decay_samples = 0, lr_wsd_decay_samples = 0;
    std::string lr_wsd_decay_style = "linear";  // linear | cosine | exponential | minus_sqrt
    int64_t lr_cycles = 1;
    double lr_cycle_length = 1, lr_cycle_peak = 1;  // factors from one cycle to the next
    double adam_beta1 = 0.9, adam_beta2 = 0.95, adam_eps = 1e-8;
    double weight_decay = 1e-3;
    double clip_grad = 1.0;  // 0: off
    std::vector<ParamGroup> groups;
    std::vector<std::string> freeze;  // globs; "!glob" thaws again, the last match holds
    std::vector<double> ema_decay;    // short form: one EMA of constant decay per entry
    std::vector<EmaOptions> ema;
};
[[nodiscard]] std::vector<Field> fields(OptimOptions& o);
/// Values that do not go together, each with the reason.
[[nodiscard]] std::vector<Conflict> conflicts(const OptimOptions& o, int64_t train_iters);

// How far a run is at an optimizer step, this step and its samples included.
struct Progress {
    int64_t step = 1;      // from 1; a step whose update is left out counts too
    uint64_t samples = 0;  // consumed since step 0
};

/// Does the learning rate follow the samples consumed, not the steps?
[[nodiscard]] bool lr_counts_samples(const OptimOptions& o);
/// Learning rate of a step: warm-up from lr_warmup_init, then the decay style. A function of the
/// step (or of the samples consumed, see lr_counts_samples) alone, never of the layout.
[[nodiscard]] double learning_rate(const OptimOptions& o, const Progress& at, int64_t train_iters);

/// Every average: those of ema_decay, then those of [[optim.ema]].
[[nodiscard]] std::vector<EmaOptions> all_emas(const OptimOptions& o);
/// Its definition as text without commas: "0.999", "0.9999 power 1 0.75 ...". Averages are matched
/// by it on resume; what happens at switch_step and adopt_step is no part of it.
[[nodiscard]] std::string ema_name(const EmaOptions& e);
/// The decay d of e -= (1 - d) (e - p) at optimizer step n, from 1. 0: e becomes p; 1: e rests,
/// between the steps of `every`. With s = max(0, updates since update_after_step - 1), as
/// diffusers' EMAModel counts: none: decay; diffusers: (1 + s) / (10 + s); power: 1 - (1 + s /
/// inv_gamma)^-power; both cut to [min_decay, decay] and 0 at s = 0. Up to update_after_step 0.
[[nodiscard]] double ema_decay_at(const EmaOptions& e, int64_t step);

}  // namespace vt
