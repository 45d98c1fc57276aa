// SPDX-License-Identifier: MIT
// Linear layers: y = x W^T + b, with the epilogues the models use. Input and weight gradients are
// separate calls, so that pipeline schedules may run them apart.
// Floor 1. Legend of letters and argument words: ops/ops.h.
#pragma once

#include "ops/ctx.h"

namespace vt {

enum class Epilogue : uint8_t { kNone, kGelu };

/// y[s,n] = f( sum_k x[s,k] w[n,k] + b[n] ),  f = identity or GELU-tanh.
///   kGelu: pre[s,n] receives the sum rounded to pre's dtype, y = gelu(that rounded value), so the
///   backward pass, which reads pre, is the exact derivative of what was computed.
/// y    out (S,N) operand dtype or f32
/// pre  out (S,N) operand dtype for kGelu; absent for kNone
/// x    in  (S,K) operand dtype: f32 or bf16 (f64 in tests)
/// w    in  (N,K) same dtype as x
/// b    in  (N) f32 (f64 in f64), or absent
/// sums in f32 (f64 in f64) over K in an order fixed by the shapes
/// flop 2SNK    bytes size(x)(SK + NK) + size(y) SN (+ size(pre) SN) + 4N
/// tol  f32 4 sqrt(K) u32 (|x||w^T|), bf16 adds 1 u_bf16 |y| for the rounding of y
/// err  kBug if a shape or dtype differs from the above
void linear_fwd(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b, Epilogue f);

/// Gradient with respect to x.  dx = (dy W) * f'(pre) for the layer *before* this one:
///   kNone: dx[s,k] = sum_n dy[s,n] w[n,k]
///   kGelu: dx[s,k] = gelu'(pre[s,k]) * sum_n dy[s,n] w[n,k], where x = gelu(pre)
/// dx   out (S,K) operand dtype or f32; acc if accumulate (then f32/f64 only)
/// dy   in  (S,N) operand dtype   w in (N,K) operand dtype
/// pre  in  (S,K) operand dtype for kGelu, else absent
/// flop 2SNK    bytes size(dy)(SN + NK) + size(dx) SK
void linear_bwd_input(const Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor pre, Epilogue f,
                      bool accumulate);

/// Gradients with respect to W and b.
///   dw[n,k] += sum_s dy[s,n] x[s,k]       db[n] += sum_s dy[s,n]
/// dw   acc (N,K) f32 (f64 in f64)    db acc (N) f32, or absent
/// dy   in (S,N) operand dtype   x in (S,K) operand dtype
/// the sum over s has an order fixed by the shapes, never by the thread count
/// flop 2SNK + SN    bytes size(dy) SN + size(x) SK + 8NK + 8N
void linear_bwd_weight(const Ctx& ctx, Tensor dw, Tensor db, CTensor dy, CTensor x);

}  // namespace vt
