// SPDX-License-Identifier: MIT
// The matrix product every f32 kernel is built from: packed panels of A (kMr rows) and B (kNr
// columns) and a register tile. Each element of C is one chain of multiply-adds over k in ascending
// order, whatever the blocking, so cutting the work elsewhere changes no bit.
// Compiled three times: internal linkage only (see vec.h). Floor 2.
#pragma once

#include "cpu/isa/vec.h"

namespace vt::VT_ISA {
namespace {

// Register tile: kMr x kNv vectors of accumulators leave room for kNv of B and one broadcast.
#if defined(__AVX512F__)
constexpr int kMr = 12, kNv = 2;
#elif defined(__AVX2__)
constexpr int kMr = 4, kNv = 2;
#else
constexpr int kMr = 4, kNv = 2;
#endif
constexpr int kNr = kNv * kWidth;
static_assert(kMr % 4 == 0 && kNr % 4 == 0, "panels are packed four by four");

VT_INLINE NF load_native(const float* p) {
    NF r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
}
VT_INLINE void store_native(float* p, NF a) {
    __builtin_memcpy(p, &a, sizeof a);
}
VT_INLINE NF splat_native(float x) {
    return x - NF{};
}
// a b + c: fused where the machine can, else rounded twice. The result may differ between
// instruction sets; a run records which it used.
VT_INLINE NF multiply_add(NF a, NF b, NF c) {
#if defined(__AVX512F__)
    return _mm512_fmadd_ps(a, b, c);
#elif defined(__AVX2__)
    return _mm256_fmadd_ps(a, b, c);
#else
    return a * b + c;
#endif
}

// c[i * ldc + j] (+)= sum_k a[k * kMr + i] b[k * kNr + j]; fresh starts from 0.
[[gnu::noinline]] inline void register_tile(const float* __restrict a, const float* __restrict b,
                                            int64_t K, float* __restrict c, int64_t ldc,
                                            bool fresh) {
    NF acc[kMr][kNv];
#pragma GCC unroll 16
    for (int i = 0; i < kMr; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kNv; ++j) {
            acc[i][j] = fresh ? NF{} : load_native(c + i * ldc + j * kWidth);
        }
    }
    for (int64_t k = 0; k < K; ++k) {
        NF bv[kNv];
#pragma GCC unroll 4
        for (int j = 0; j < kNv; ++j) bv[j] = load_native(b + j * kWidth);
#pragma GCC unroll 16
        for (int i = 0; i < kMr; ++i) {
            const NF av = splat_native(a[i]);
#pragma GCC unroll 4
            for (int j = 0; j < kNv; ++j) acc[i][j] = multiply_add(av, bv[j], acc[i][j]);
        }
        a += kMr;
        b += kNr;
    }
#pragma GCC unroll 16
    for (int i = 0; i < kMr; ++i) {
#pragma GCC unroll 4
        for (int j = 0; j < kNv; ++j) store_native(c + i * ldc + j * kWidth, acc[i][j]);
    }
}

constexpr int64_t round_to(int64_t n, int64_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}

VT_INLINE float as_float(float x) {
    return x;
}
VT_INLINE float as_float(uint16_t x) {
    const uint32_t bits = static_cast<uint32_t>(x) << 16;
    float r = 0;
    __builtin_memcpy(&r, &bits, sizeof r);
    return r;
}
VT_INLINE __m128 load4(const float* p) {
    return _mm_loadu_ps(p);
}
VT_INLINE __m128 load4(const uint16_t* p) {
    const __m128i half = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
    return _mm_castsi128_ps(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
}

// Packs `rows` rows with the summed index contiguous, src[r * ld + k], into panels of W rows:
// dst[(r / W)][k][r % W], k < K, rows padded with zeros.
template <int W, typename T>
void pack_along(float* dst, const T* src, int64_t ld, int64_t rows, int64_t K) {
    for (int64_t r0 = 0; r0 < rows; r0 += W, dst += W * K) {
        int r = 0;
        for (; r < W && r0 + r + 4 <= rows; r += 4) {
            const T* s = src + (r0 + r) * ld;
            float* d = dst + r;
            int64_t k = 0;
            for (; k + 4 <= K; k += 4) {
                __m128 x0 = load4(s + k), x1 = load4(s + ld + k), x2 = load4(s + 2 * ld + k),
                       x3 = load4(s + 3 * ld + k);
                _MM_TRANSPOSE4_PS(x0, x1, x2, x3);
                _mm_storeu_ps(d + k * W, x0);
                _mm_storeu_ps(d + (k + 1) * W, x1);
                _mm_storeu_ps(d + (k + 2) * W, x2);
                _mm_storeu_ps(d + (k + 3) * W, x3);
            }
            for (; k < K; ++k) {
                for (int64_t i = 0; i < 4; ++i) d[k * W + i] = as_float(s[i * ld + k]);
            }
        }
        for (; r < W; ++r) {
            const bool there = r0 + r < rows;
            for (int64_t k = 0; k < K; ++k) {
                dst[k * W + r] = there ? as_float(src[(r0 + r) * ld + k]) : 0.0F;
            }
        }
    }
}

// The same panels from a source with the kept index contiguous, src[k * ld + r].
template <int W, typename T>
void pack_across(float* dst, const T* src, int64_t ld, int64_t rows, int64_t K) {
    for (int64_t r0 = 0; r0 < rows; r0 += W, dst += W * K) {
        const int64_t n = rows - r0 < W ? rows - r0 : W;
        if (n == W) {
            for (int64_t k = 0; k < K; ++k) {
                const T* s = src + k * ld + r0;
                for (int i = 0; i < W; i += 4) _mm_storeu_ps(dst + k * W + i, load4(s + i));
            }
            continue;
        }
        for (int64_t k = 0; k < K; ++k) {
            const T* s = src + k * ld + r0;
            for (int64_t i = 0; i < W; ++i) dst[k * W + i] = i < n ? as_float(s[i]) : 0.0F;
        }
    }
}

// C panels: c[(n / kNr)][m][n % kNr], `rows` rows apart from panel to panel, rows a multiple of
// kMr. a: panels of kMr over M rows; b: panels of kNr over N columns, each b_rows (>= K) deep.
inline void panel_product(float* c, int64_t rows, const float* a, const float* b, int64_t b_rows,
                          int64_t M, int64_t N, int64_t K, bool fresh) {
    for (int64_t n = 0; n < N; n += kNr) {
        for (int64_t m = 0; m < M; m += kMr) {
            register_tile(a + m * K, b + n * b_rows, K, c + n * rows + m * kNr, kNr, fresh);
        }
    }
}

}  // namespace
}  // namespace vt::VT_ISA
