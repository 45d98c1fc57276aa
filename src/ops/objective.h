// SPDX-License-Identifier: MIT
// The training objective's tensor work: noise, interpolation, target; loss and its gradient.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "core/rng.h"
#include "ops/ctx.h"

namespace vt {

/// What a sample is mixed from, with the four numbers (a, s, p, q) = mix[b] of each sample:
///   e ~ Philox(seed, purpose, ids[b], flat (C,T,H,W) index)      core/rng.h random_normal
///   xt[b] = a x0[b] + s e        target[b] = p x0[b] + q e
/// Rectified flow is (1 - sigma, sigma, -1, 1); model/objective.h has the others.
/// xt, target out (B,C,T,H,W) f32   x0 in (B,C,T,H,W) f32 or bf16   mix in (B,4) f32
/// ids in (B) i64: the draw ordinals
/// Same bits on every backend: e by core/rng.h, then xt = fma(s, e, a*x0) and
/// target = fma(q, e, p*x0), in f32.
/// flop 6 a number
void flow_noise(const Ctx& ctx, Tensor xt, Tensor target, CTensor x0, CTensor mix, CTensor ids,
                uint64_t seed, Purpose purpose);

/// sse[b] = sum over the sample of (v - target)^2  (f64 sums, order fixed)
/// dv[b]  = 2 coef[b] (v[b] - target[b])   with coef = w(sigma_b) / (N n_b), or as the reduction
/// says dv   out (B,C,T,H,W) f32, may be absent (validation) sse  out (B) f64   v, target in
/// (B,C,T,H,W) f32   coef in (B) f32
void flow_loss(const Ctx& ctx, Tensor dv, Tensor sse, CTensor v, CTensor target, CTensor coef);

}  // namespace vt
