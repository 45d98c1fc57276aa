// SPDX-License-Identifier: MIT
// Pieces of kernels that walk along rows. A row is cut into octets of eight columns; thread i of a
// block owns octets i, i + blockDim.x, ... of every row it meets, whether or not the row is aligned
// for 16-byte accesses: so results do not depend on alignment, and column sums need no exchange.
// Floor 2.
#pragma once

#include "core/dtype.h"
#include "cuda/kernel.h"

namespace vt::cuda {

inline constexpr int kLanes = 32;
inline constexpr int kOct = 8;  // columns of an octet: one 16-byte access of bf16, two of f32
inline constexpr int kMaxThreads = 256;  // of a block
inline constexpr int kMaxWarps = kMaxThreads / kLanes;

__device__ inline bool aligned16(const void* p) {
    return (reinterpret_cast<std::uintptr_t>(p) & 15) == 0;
}
__device__ inline int tid() {
    return static_cast<int>(threadIdx.x);
}
__device__ inline int threads() {
    return static_cast<int>(blockDim.x);
}

// The first min(n, 8) values at p, zeros behind them. `vector` promises 16-byte alignment.
__device__ inline void load8(const bf16* p, int n, bool vector, float (&out)[kOct]) {
    if (vector && n >= kOct) {
        const uint4 q = *reinterpret_cast<const uint4*>(p);
        const unsigned word[4] = {q.x, q.y, q.z, q.w};
        for (int i = 0; i < 4; ++i) {
            out[2 * i] = __uint_as_float(word[i] << 16);
            out[2 * i + 1] = __uint_as_float(word[i] & 0xFFFF0000U);
        }
    } else {
        for (int i = 0; i < kOct; ++i) {
            out[i] = i < n ? __uint_as_float(static_cast<unsigned>(p[i].bits) << 16) : 0.0F;
        }
    }
}
__device__ inline void load8(const float* p, int n, bool vector, float (&out)[kOct]) {
    if (vector && n >= kOct) {
        const float4 a = reinterpret_cast<const float4*>(p)[0];
        const float4 b = reinterpret_cast<const float4*>(p)[1];
        out[0] = a.x, out[1] = a.y, out[2] = a.z, out[3] = a.w;
        out[4] = b.x, out[5] = b.y, out[6] = b.z, out[7] = b.w;
    } else {
        for (int i = 0; i < kOct; ++i) out[i] = i < n ? p[i] : 0.0F;
    }
}

__device__ inline std::uint16_t bits_of(float x) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(x));
}

// Writes the first min(n, 8) values.
__device__ inline void store8(bf16* p, int n, bool vector, const float (&in)[kOct]) {
    if (vector && n >= kOct) {
        unsigned word[4];
        for (int i = 0; i < 4; ++i) {
            word[i] = bits_of(in[2 * i]) | static_cast<unsigned>(bits_of(in[2 * i + 1])) << 16;
        }
        *reinterpret_cast<uint4*>(p) = make_uint4(word[0], word[1], word[2], word[3]);
    } else {
        for (int i = 0; i < kOct; ++i) {
            if (i < n) p[i].bits = bits_of(in[i]);
        }
    }
}
__device__ inline void store8(float* p, int n, bool vector, const float (&in)[kOct]) {
    if (vector && n >= kOct) {
        reinterpret_cast<float4*>(p)[0] = make_float4(in[0], in[1], in[2], in[3]);
        reinterpret_cast<float4*>(p)[1] = make_float4(in[4], in[5], in[6], in[7]);
    } else {
        for (int i = 0; i < kOct; ++i) {
            if (i < n) p[i] = in[i];
        }
    }
}

__device__ inline float warp_sum(float v) {
    for (int m = kLanes / 2; m > 0; m /= 2) v += __shfl_xor_sync(~0U, v, m);
    return v;
}

// The sum of v over the block, for all threads, in an order fixed by the block's size. `scratch`
// has a float for each warp; it may be written again after the block's next barrier but one.
__device__ inline float block_sum(float v, float* scratch) {
    v = warp_sum(v);
    const int warps = threads() / kLanes;
    if (warps == 1) return v;
    if (tid() % kLanes == 0) scratch[tid() / kLanes] = v;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += scratch[w];
    return sum;
}

// Two sums with one barrier.
__device__ inline void block_sum2(float& a, float& b, float* scratch_a, float* scratch_b) {
    a = warp_sum(a);
    b = warp_sum(b);
    const int warps = threads() / kLanes;
    if (warps == 1) return;
    if (tid() % kLanes == 0) {
        scratch_a[tid() / kLanes] = a;
        scratch_b[tid() / kLanes] = b;
    }
    __syncthreads();
    a = b = 0;
    for (int w = 0; w < warps; ++w) {
        a += scratch_a[w];
        b += scratch_b[w];
    }
}

}  // namespace vt::cuda
