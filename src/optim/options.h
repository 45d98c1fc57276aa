// SPDX-License-Identifier: MIT
// [optim]: AdamW, learning rate, clipping, EMA. Floor 4.
#pragma once

#include <string>
#include <vector>

#include "config/field.h"

namespace vt {

struct OptimOptions {
    double lr = 1e-4;
    double min_lr = 0;
    std::string lr_decay_style = "constant";  // constant | cosine
    int64_t lr_warmup_iters = 0;
    int64_t lr_decay_iters = 0;  // 0: run.train_iters
    double adam_beta1 = 0.9, adam_beta2 = 0.95, adam_eps = 1e-8;
    double weight_decay = 1e-3;
    double clip_grad = 1.0;         // 0: off
    std::vector<double> ema_decay;  // one EMA per entry
};
[[nodiscard]] std::vector<Field> fields(OptimOptions& o);

/// Learning rate of optimizer step `step` (from 1): linear warm-up, then constant or cosine to
/// min_lr. A function of the step alone, never of the layout.
[[nodiscard]] double learning_rate(const OptimOptions& o, int64_t step, int64_t train_iters);

}  // namespace vt
