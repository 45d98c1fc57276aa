// SPDX-License-Identifier: MIT
// The training objective's tensor work: noise, interpolation, target; loss and its gradient.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "core/rng.h"
#include "ops/ctx.h"

namespace vt {

/// Rectified flow (Liu et al. 2022, arXiv:2209.03003), sigma = 1 is pure noise:
///   e ~ Philox(seed, purpose, ids[b], flat (C,T,H,W) index)      core/rng.h random_normal
///   xt[b] = (1 - sigma[b]) x0[b] + sigma[b] e        target[b] = e - x0[b]
/// xt, target out (B,C,T,H,W) f32   x0 in (B,C,T,H,W) f32 or bf16   sigma in (B) f32
/// ids in (B) i64: the draw ordinals
/// Same bits on every backend: e by core/rng.h, then xt = fma(sigma, e, (1-sigma)*x0), in f32.
void flow_noise(const Ctx& ctx, Tensor xt, Tensor target, CTensor x0, CTensor sigma, CTensor ids,
                uint64_t seed, Purpose purpose);

/// sse[b] = sum over the sample of (v - target)^2  (f64 sums, order fixed)
/// dv[b]  = 2 coef[b] (v[b] - target[b])   with coef = w(sigma_b) / (N n_b), or as the reduction
/// says dv   out (B,C,T,H,W) f32, may be absent (validation) sse  out (B) f64   v, target in
/// (B,C,T,H,W) f32   coef in (B) f32
void flow_loss(const Ctx& ctx, Tensor dv, Tensor sse, CTensor v, CTensor target, CTensor coef);

}  // namespace vt
