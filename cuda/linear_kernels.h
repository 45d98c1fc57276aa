// SPDX-License-Identifier: MIT
// What linear.cpp hands to linear.cu. Floor 2.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/dtype.h"

namespace vt::cuda {

/// y[i] = gelu(pre[i]), tanh form; y f32 or pre's dtype.
void gelu(void* y, DType ty, const void* pre, DType t, int64_t n, cudaStream_t stream);
/// y[i] = b[i] rounded to bf16.
void round_bias(bf16* y, const float* b, int64_t n, cudaStream_t stream);

}  // namespace vt::cuda
