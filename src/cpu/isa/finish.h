// SPDX-License-Identifier: MIT
// The epilogues of a matrix product: what happens to a tile of sums while it is in cache.
// Compiled once per instruction set: internal linkage only (see vec.h). Floor 2.
#pragma once

#include "cpu/isa/vec.h"
#include "cpu/matmul_kernels.h"

namespace vt::VT_ISA {
namespace {

using kernel::Finish;
using kernel::Product;

// GELU-tanh: 0.5 x (1 + tanh u) = x s with s = sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3);
// Hendrycks and Gimpel 2016, arXiv:1606.08415.
constexpr float kTwoRootTwoOverPi = 1.5957691216057308F;
constexpr float kCubic = 0.044715F;

VT_INLINE F16 gelu(F16 x) {
    F16 s, c;
    sigmoids(splat(kTwoRootTwoOverPi) * x * (splat(1.0F) + splat(kCubic) * x * x), s, c);
    return x * s;
}
VT_INLINE F16 gelu_slope(F16 x) {
    F16 s, c;
    const F16 x2 = x * x;
    sigmoids(splat(kTwoRootTwoOverPi) * x * (splat(1.0F) + splat(kCubic) * x2), s, c);
    const F16 du = splat(kTwoRootTwoOverPi) * (splat(1.0F) + splat(3 * kCubic) * x2);
    return s + x * s * c * du;
}

template <typename W>
VT_INLINE F16 load_any(const void* p, bool bf16, int64_t at, W w) {
    return bf16 ? load(static_cast<const uint16_t*>(p) + at, w)
                : load(static_cast<const float*>(p) + at, w);
}
template <typename W>
VT_INLINE void store_any(void* p, bool bf16, int64_t at, F16 x, W w) {
    if (bf16) {
        store(static_cast<uint16_t*>(p) + at, x, w);
    } else {
        store(static_cast<float*>(p) + at, x, w);
    }
}

// Finishes rows [0, M) and columns [0, N) of a tile of sums, c[m * ldc + n]; the tile's first
// element is (m0, n0) of p's block.
inline void finish_tile(const Product& p, const float* c, int64_t ldc, int64_t m0, int64_t n0,
                        int64_t M, int64_t N) {
    for (int64_t m = 0; m < M; ++m) {
        const int64_t y_at = (m0 + m) * p.ld + n0, pre_at = (m0 + m) * p.ld_pre + n0;
        each_block(N, [&](int64_t n, auto w) VT_INLINE_LAMBDA {
            F16 x = load(c + m * ldc + n, w);
            if (p.bias != nullptr) x = x + load(p.bias + n0 + n, w);
            switch (p.finish) {
                case Finish::kStore:
                    break;
                case Finish::kAdd:
                    x = x + load(static_cast<const float*>(p.y) + y_at + n, w);
                    break;
                case Finish::kGelu:
                    store_any(p.pre, p.pre_bf16, pre_at + n, x, w);
                    x = gelu(load_any(p.pre, p.pre_bf16, pre_at + n, w));
                    break;
                case Finish::kGeluSlope:
                    x = x * gelu_slope(load_any(p.pre, p.pre_bf16, pre_at + n, w));
                    break;
                case Finish::kGeluSlopeAdd:
                    x = x * gelu_slope(load_any(p.pre, p.pre_bf16, pre_at + n, w)) +
                        load(static_cast<const float*>(p.y) + y_at + n, w);
                    break;
            }
            store_any(p.y, p.y_bf16, y_at + n, x, w);
        });
    }
}

}  // namespace
}  // namespace vt::VT_ISA
