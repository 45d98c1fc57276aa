// SPDX-License-Identifier: MIT
// The functions behind the table's slots, with the signatures of ops/*.h, and what they share.
// Floor 2.
#pragma once

#include <cstdint>

#include "cuda/stream.h"
#include "ops/ops.h"

namespace vt::cuda {

/// ctx.stream as what it is; kBug if it is null.
[[nodiscard]] Stream& stream_of(const Ctx& ctx, const char* op);
/// `bytes` bytes of ctx.scratch; kBug if it was declared smaller.
[[nodiscard]] void* scratch_of(const Ctx& ctx, int64_t bytes, const char* op);

// norm.cpp
void modnorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor mod,
                 ModIndex at, const Segments& seg, double eps);
void modnorm_bwd(const Ctx& ctx, Tensor dh, Tensor dmod, CTensor dy, CTensor h, CTensor mean,
                 CTensor rstd, CTensor mod, ModIndex at, const Segments& seg);
void layernorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor w,
                   CTensor b, double eps);
void layernorm_bwd(const Ctx& ctx, Tensor dh, Tensor dw, Tensor db, CTensor dy, CTensor h,
                   CTensor mean, CTensor rstd, CTensor w);
void row_sumsq(const Ctx& ctx, Tensor ssq, CTensor x);
void qknorm_rope_fwd(const Ctx& ctx, Tensor y, CTensor x, CTensor ssq, CTensor w, const Rope& rope,
                     int64_t HD, int64_t D_global, double eps);
void qknorm_rope_bwd_dot(const Ctx& ctx, Tensor dot, CTensor dy, CTensor x, CTensor w,
                         const Rope& rope, int64_t HD);
void qknorm_rope_bwd(const Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor ssq,
                     CTensor dot, CTensor w, const Rope& rope, int64_t HD, int64_t D_global,
                     double eps);
[[nodiscard]] int64_t norm_scratch_bytes(const ScratchNeed& need);

// linear.cpp
void linear_fwd(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b, Epilogue f);
void linear_fwd_tf32(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b,
                     Epilogue f);
[[nodiscard]] int64_t linear_scratch_bytes(const ScratchNeed& need);

}  // namespace vt::cuda
