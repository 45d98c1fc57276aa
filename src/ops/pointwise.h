// SPDX-License-Identifier: MIT
// Elementwise pieces between the matrix products.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "ops/ctx.h"

namespace vt {

/// h[s,d] += gate[m,j,d] * o[s,d], m = mod_row of s's segment; gate absent: h += o.
/// h    acc (S,D) residual dtype (rounded once)
/// o    in (S,D) operand dtype   mod in (n_mod,J,D) f32 or absent   j: which slice is the gate
/// flop 2SD    bytes 2 size(h) SD + size(o) SD
void gate_residual_fwd(const Ctx& ctx, Tensor h, CTensor o, CTensor mod, int j,
                       const Segments& seg);
/// dout[s,d] = gate * dh[s,d];   dmod[m,j,d] += sum_{s in m} dh[s,d] o[s,d].
/// dh itself passes on unchanged to the residual below.
/// dout out (S,D) operand dtype; dmod acc (n_mod,J,D) f32, absent exactly when mod is
/// dh in (S,D) f32; o in (S,D) operand dtype (absent when mod is)
void gate_residual_bwd(const Ctx& ctx, Tensor dout, Tensor dmod, CTensor dh, CTensor o, CTensor mod,
                       int j, const Segments& seg);

/// y = x sigmoid(x). y, x (n...) same shape; dtypes f32/bf16/f64 may differ.
void silu_fwd(const Ctx& ctx, Tensor y, CTensor x);
/// dx += dy silu'(x). dx acc f32 (f64), dy, x in.
void silu_bwd(const Ctx& ctx, Tensor dx, CTensor dy, CTensor x);

/// Per-block modulation. out[b,j,d] = table[j,d] + p[b,j,d], or + p[b,d] when p has rank 2 (the
/// head, whose two slices share temb). All f32. out (B,J,D), table (J,D).
void modulation_fwd(const Ctx& ctx, Tensor out, CTensor table, CTensor p);
/// dtable[j,d] += sum_b dout[b,j,d];  dp += dout (summed over j when dp has rank 2). All f32, acc.
void modulation_bwd(const Ctx& ctx, Tensor dtable, Tensor dp, CTensor dout);

/// y = x, converted to y's dtype (round to nearest even). Same shape.
void cast(const Ctx& ctx, Tensor y, CTensor x);
/// y = value everywhere. Any dtype.
void fill(const Ctx& ctx, Tensor y, double value);
/// y += x. y f32 (f64), x any float dtype, same shape.
void add(const Ctx& ctx, Tensor y, CTensor x);

}  // namespace vt
