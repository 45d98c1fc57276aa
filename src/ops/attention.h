// SPDX-License-Identifier: MIT
// Softmax attention, non-causal, without mask or dropout, over segments. Never stores S x S.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "ops/ctx.h"

namespace vt {

/// For each segment i, head n and query row a of that segment:
///   p[b] = softmax_b( scale * q[a,n,:] . k[b,n,:] )  over the key rows b of key segment i
///   o[a,n,:] = sum_b p[b] v[b,n,:]      lse[a,n] = ln sum_b exp(scale * q.k)
/// o    out (Sq, NH*HD) operand dtype     lse out (Sq,NH) f32
/// q    in  (Sq, NH*HD)   k, v in (Sk, NH*HD) operand dtype; head n owns columns n*HD..(n+1)*HD-1
/// qseg, kseg: same n; kseg.n segments must not be empty where qseg's are not
/// scale  usually 1/sqrt(HD)
/// softmax and sums in f32, order fixed by the shapes; memory O(Sq) beyond the arguments
/// flop sum_i 4 Sq_i Sk_i NH HD
/// tol  f32 (8 + 2 sqrt(Sk)) u32 max|v|; bf16 3 u_bf16 max|v|
/// from Dao 2023, arXiv:2307.08691 (online softmax; LSE kept for the backward)
void attention_fwd(const Ctx& ctx, Tensor o, Tensor lse, CTensor q, CTensor k, CTensor v,
                   const Segments& qseg, const Segments& kseg, int64_t NH, double scale);

/// delta[a,n] = sum_d do[a,n,d] o[a,n,d]; the row statistic of the backward.
/// delta out (Sq,NH) f32; dout, o in (Sq,NH*HD) operand dtype
void attention_delta(const Ctx& ctx, Tensor delta, CTensor dout, CTensor o, int64_t NH);

/// Gradient of attention_fwd from the statistics lse and delta (arguments, so that ring attention
/// can pass those of the whole sequence with one shard of keys).
///   p = exp(scale q.k - lse)    ds = p (dout.v - delta) scale
///   dq[a] = sum_b ds k[b]   dk[b] = sum_a ds q[a]   dv[b] = sum_a p dout[a]
/// dq out (Sq,NH*HD), dk, dv out (Sk,NH*HD) operand dtype
/// flop sum_i 8 Sq_i Sk_i NH HD as counted for the model (10 executed)
void attention_bwd(const Ctx& ctx, Tensor dq, Tensor dk, Tensor dv, CTensor dout, CTensor q,
                   CTensor k, CTensor v, CTensor lse, CTensor delta, const Segments& qseg,
                   const Segments& kseg, int64_t NH, double scale);

}  // namespace vt
