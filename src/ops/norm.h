// SPDX-License-Identifier: MIT
// Normalisations: modulated LayerNorm, affine LayerNorm, across-heads RMSNorm fused with RoPE.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "ops/ctx.h"

namespace vt {

// Which J-slices of a modulation tensor (n_mod, J, D) are the shift and the scale.
struct ModIndex {
    int shift = 0, scale = 1;
};

/// LayerNorm without affine, then modulation by the segment's shift and scale (adaLN):
///   xh[s,d] = (h[s,d] - mean[s]) * rstd[s]     rstd[s] = 1 / sqrt(var_d h[s,:] + eps), biased var
///   y[s,d]  = xh[s,d] * (1 + mod[m,scale,d]) + mod[m,shift,d]     m = mod_row of s's segment
/// y    out (S,D) operand dtype
/// mean out (S) f32   rstd out (S) f32; modnorm_bwd reads them
/// h    in  (S,D) residual dtype (f32 or bf16)
/// mod  in  (n_mod,J,D) f32
/// flop 8SD    bytes size(h) SD + size(y) SD + 8S + 8 n_mod D
/// tol  f32 16u32 (|xh||1+scale| + |shift|); bf16 adds 1 u_bf16 |y|
/// from Ba et al. 2016, arXiv:1607.06450; Peebles and Xie 2023, arXiv:2212.09748
void modnorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor mod,
                 ModIndex at, const Segments& seg, double eps);

/// Gradient of modnorm_fwd. g = dy (1 + scale):
///   dh[s,d] += rstd (g - mean_d(g) - xh mean_d(g xh))
///   dmod[m,scale,d] += sum_{s in m} dy xh       dmod[m,shift,d] += sum_{s in m} dy
/// dh   acc (S,D) f32 (the residual gradient is f32 in every precision; f64 in f64)
/// dmod acc (n_mod,J,D) f32; only slices shift and scale are touched
/// dy   in (S,D) operand dtype; h mean rstd mod as in the forward
void modnorm_bwd(const Ctx& ctx, Tensor dh, Tensor dmod, CTensor dy, CTensor h, CTensor mean,
                 CTensor rstd, CTensor mod, ModIndex at, const Segments& seg);

/// LayerNorm with weight and bias: y = (h - mean) rstd w + b.
/// y out (S,D) operand dtype; mean, rstd out (S) f32; h in (S,D) residual dtype; w, b in (D) f32
/// flop 8SD
void layernorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor w,
                   CTensor b, double eps);
/// dh acc (S,D) f32; dw, db acc (D) f32
void layernorm_bwd(const Ctx& ctx, Tensor dh, Tensor dw, Tensor db, CTensor dy, CTensor h,
                   CTensor mean, CTensor rstd, CTensor w);

/// Per-row sum of squares, the statistic of the across-heads RMSNorm. Under tensor parallelism the
/// rows hold a share of D and the caller sums ssq over the tp group between this and the norm.
///   ssq[s] = sum_d x[s,d]^2
/// ssq out (S) f32; x in (S,Dl) operand dtype
void row_sumsq(const Ctx& ctx, Tensor ssq, CTensor x);

// Rotary position embedding over three axes (t,h,w). cos/sin tables per axis and position; a row's
// angles are the concatenation over the axes. cs_a: (positions, n_a/2, 2) f32, [..,0] cos,
// [..,1] sin. pos: (S,3) i32. Absent pos (present() false) = no rotation (cross-attention).
// n_t + n_h + n_w == HD, each even. From Su et al. 2021, arXiv:2104.09864.
struct Rope {
    CTensor cs_t, cs_h, cs_w, pos;
};

/// RMSNorm across all heads, per-channel weight, then rotation of adjacent pairs inside each head:
///   r[s] = 1 / sqrt(ssq[s] / D_global + eps)    n[s,d] = x[s,d] r[s] w[d]
///   (y[2i], y[2i+1]) = (n[2i] c - n[2i+1] s, n[2i] s + n[2i+1] c) with the row's i-th angle of a
///   head
/// y    out (S,Dl) operand dtype; may be the same memory as x
/// x    in  (S,Dl) operand dtype   ssq in (S) f32   w in (Dl) f32
/// HD   head width; Dl % HD == 0
/// D_global  width the mean is over (Dl times the tp degree)
/// flop 6SD    bytes 2 size(x) SD + 4S + 4D (+ 12S)
void qknorm_rope_fwd(const Ctx& ctx, Tensor y, CTensor x, CTensor ssq, CTensor w, const Rope& rope,
                     int64_t HD, int64_t D_global, double eps);

/// First half of the backward: the row statistic (summed over tp by the caller).
///   n' = rotate back dy;   dot[s] = sum_d n'[s,d] w[d] x[s,d]
/// dot out (S) f32; dy, x in (S,Dl) operand dtype
void qknorm_rope_bwd_dot(const Ctx& ctx, Tensor dot, CTensor dy, CTensor x, CTensor w,
                         const Rope& rope, int64_t HD);

/// Second half. g = n' w:
///   dx[s,d] = r (g - x r^2 dot[s] / D_global)       dw[d] += sum_s n' x r
/// dx out (S,Dl) operand dtype, may be the same memory as dy; dw acc (Dl) f32
void qknorm_rope_bwd(const Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor ssq,
                     CTensor dot, CTensor w, const Rope& rope, int64_t HD, int64_t D_global,
                     double eps);

}  // namespace vt
