// SPDX-License-Identifier: MIT
// The optimizer's tensor work. Numbers that change every step are read from memory, so that a
// step can be captured once and replayed.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "ops/ctx.h"

namespace vt {

// Slots of the per-step scalar tensor (kNumStepScalars) f32.
enum StepScalar : int {
    kStepLr = 0,     // learning rate of this step
    kStepClip = 1,   // factor on every gradient, 1 when under clip_grad
    kStepSkip = 2,   // 0 or 1; 1: parameters, moments and EMA stay as they are
    kStepBias1 = 3,  // 1 - beta1^step, step from 1
    kStepBias2 = 4,  // 1 - beta2^step
    kNumStepScalars = 8
};

struct AdamW {
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 1e-3, lr_scale = 1;
};

/// AdamW as PyTorch's: with g' = clip g, lr' = lr * lr_scale,
///   p -= lr' wd p;  m = b1 m + (1-b1) g';  v = b2 v + (1-b2) g'^2
///   p -= lr' (m / bias1) / (sqrt(v / bias2) + eps);   low = p rounded to bf16
/// One pass; clip, decay, update and cast fused.
/// p, m, v  in and out (n) f32 (f64 in f64)    low out (n) bf16, or absent
/// g in (n) f32    scalars in (kNumStepScalars) f32
/// flop 14n    bytes 28n (+ 2n)
/// from Loshchilov and Hutter 2019, arXiv:1711.05101
void adamw(const Ctx& ctx, Tensor p, Tensor m, Tensor v, Tensor low, CTensor g, CTensor scalars,
           const AdamW& hyper);

/// sum[0] += sum_i x[i]^2 in f64, fixed order. sum acc (1) f64, x in (n) f32.
void sumsq(const Ctx& ctx, Tensor sum, CTensor x);

/// e -= (1 - decay) (e - p) unless scalars[kStepSkip]; decay in memory. Decay 0 gives p itself and
/// decay 1 leaves e as it is, bit for bit.
/// e in and out (n) f32; p in (n) f32; decay in (1) f32
void ema_update(const Ctx& ctx, Tensor e, CTensor p, CTensor decay, CTensor scalars);

}  // namespace vt
