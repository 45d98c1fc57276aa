// SPDX-License-Identifier: MIT
// The epilogues of cpu/isa/finish.h for machines with AMX: what follows the sums of a tile runs
// beside the tile instructions of the next one, so it must need few instructions. Multiply-adds are
// fused, reciprocals refined from an estimate, and bf16 rounded by the instruction for it (ties to
// even; subnormals to zero, as the tile products themselves do). Floor 2.
#pragma once

#include <immintrin.h>

#include "cpu/isa/finish.h"

namespace vt::VT_ISA {
namespace {

// s = 1 / (1 + 2^a) and c = 1 - s, each to a few ulp down to 2^-126: sigmoids of -a ln 2. 2^a is a
// power of two times a polynomial of the rest in [-1/2, 1/2], of degree 5, with 2^0 = 1 and least
// maximal error (9.2e-8 of the value).
VT_INLINE void sigmoids_of_power(__m512 a, __m512& s, __m512& c) {
    const __m512 one = _mm512_set1_ps(1.0F);
    // the second operand is what these two return for a NaN
    a = _mm512_max_ps(_mm512_set1_ps(-160.0F), _mm512_min_ps(_mm512_set1_ps(126.0F), a));
    const __m512 n = _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const __m512 r = _mm512_sub_ps(a, n);
    __m512 p = _mm512_set1_ps(1.326472731e-3F);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(9.671512991e-3F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.550733581e-2F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(2.402224243e-1F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(6.931470037e-1F));
    p = _mm512_fmadd_ps(p, r, one);
    const __m512 e = _mm512_scalef_ps(p, n), d = _mm512_add_ps(one, e);
    // an estimate good to 2^-14, then one step of Newton's method
    const __m512 y = _mm512_rcp14_ps(d);
    s = _mm512_fmadd_ps(y, _mm512_fnmadd_ps(d, y, one), y);
    c = _mm512_mul_ps(e, s);
}
// GELU as in cpu/isa/finish.h: x s(2 u), with -2 u log2 e = x (kA + kB x^2).
constexpr float kMinusLog2E = -1.44269504F;
constexpr float kA = kTwoRootTwoOverPi * kMinusLog2E, kB = kA * kCubic;
VT_INLINE __m512 fast_gelu(__m512 x) {
    const __m512 a = _mm512_mul_ps(
        x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), _mm512_set1_ps(kB), _mm512_set1_ps(kA)));
    __m512 s, c;
    sigmoids_of_power(a, s, c);
    return _mm512_mul_ps(x, s);
}
VT_INLINE __m512 fast_gelu_slope(__m512 x) {
    const __m512 x2 = _mm512_mul_ps(x, x);
    const __m512 a = _mm512_mul_ps(x, _mm512_fmadd_ps(x2, _mm512_set1_ps(kB), _mm512_set1_ps(kA)));
    __m512 s, c;
    sigmoids_of_power(a, s, c);
    const __m512 du = _mm512_fmadd_ps(x2, _mm512_set1_ps(3 * kTwoRootTwoOverPi * kCubic),
                                      _mm512_set1_ps(kTwoRootTwoOverPi));
    return _mm512_fmadd_ps(_mm512_mul_ps(_mm512_mul_ps(x, s), c), du, s);
}

// 32 neighbouring values in two vectors, and which of them there are.
struct Pair {
    __m512 low, high;
};
VT_INLINE __m512 widened(__m256i h) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}
VT_INLINE Pair load_pair(const float* p, __mmask32 m) {
    return {_mm512_maskz_loadu_ps(static_cast<__mmask16>(m), p),
            _mm512_maskz_loadu_ps(static_cast<__mmask16>(m >> 16), p + 16)};
}
VT_INLINE Pair load_pair(const void* p, bool bf16, int64_t at, __mmask32 m) {
    if (!bf16) return load_pair(static_cast<const float*>(p) + at, m);
    const __m512i h = _mm512_maskz_loadu_epi16(m, static_cast<const uint16_t*>(p) + at);
    return {widened(_mm512_castsi512_si256(h)), widened(_mm512_extracti64x4_epi64(h, 1))};
}
VT_INLINE __m512i rounded(Pair x) {
    return reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(x.high, x.low));
}
VT_INLINE void store_pair(void* p, bool bf16, int64_t at, Pair x, __mmask32 m) {
    if (bf16) {
        _mm512_mask_storeu_epi16(static_cast<uint16_t*>(p) + at, m, rounded(x));
        return;
    }
    float* f = static_cast<float*>(p) + at;
    _mm512_mask_storeu_ps(f, static_cast<__mmask16>(m), x.low);
    _mm512_mask_storeu_ps(f + 16, static_cast<__mmask16>(m >> 16), x.high);
}

// Finishes `rows` rows of at most 32 columns, c[m * 32 + n]; the first element is (m0, n0) of p's
// block. As finish_tile of cpu/isa/finish.h.
template <Finish kFinish>
void finish_rows(const Product& p, const float* c, int64_t m0, int64_t n0, int64_t rows,
                 int64_t columns) {
    const __mmask32 m = columns >= 32 ? ~__mmask32{0} : (__mmask32{1} << columns) - 1;
    const bool y_bf16 = p.y_bf16, pre_bf16 = p.pre_bf16;
    Pair bias{_mm512_setzero_ps(), _mm512_setzero_ps()};
    if (p.bias != nullptr) bias = load_pair(p.bias + n0, m);
    for (int64_t i = 0; i < rows; ++i, c += 32) {
        const int64_t y_at = (m0 + i) * p.ld + n0;
        [[maybe_unused]] const int64_t pre_at = (m0 + i) * p.ld_pre + n0;
        Pair x{_mm512_add_ps(_mm512_load_ps(c), bias.low),
               _mm512_add_ps(_mm512_load_ps(c + 16), bias.high)};
        if constexpr (kFinish == Finish::kGelu) {
            store_pair(p.pre, pre_bf16, pre_at, x, m);
            if (pre_bf16) {  // of the value that the backward will see
                const __m512i h = rounded(x);
                x = {widened(_mm512_castsi512_si256(h)), widened(_mm512_extracti64x4_epi64(h, 1))};
            }
            x = {fast_gelu(x.low), fast_gelu(x.high)};
        }
        if constexpr (kFinish == Finish::kGeluSlope || kFinish == Finish::kGeluSlopeAdd) {
            const Pair pre = load_pair(p.pre, pre_bf16, pre_at, m);
            x = {_mm512_mul_ps(x.low, fast_gelu_slope(pre.low)),
                 _mm512_mul_ps(x.high, fast_gelu_slope(pre.high))};
        }
        if constexpr (kFinish == Finish::kAdd || kFinish == Finish::kGeluSlopeAdd) {
            const Pair y = load_pair(static_cast<const float*>(p.y) + y_at, m);
            x = {_mm512_add_ps(x.low, y.low), _mm512_add_ps(x.high, y.high)};
        }
        store_pair(p.y, y_bf16, y_at, x, m);
    }
}

using FinishRows = void (*)(const Product& p, const float* c, int64_t m0, int64_t n0, int64_t rows,
                            int64_t columns);
inline FinishRows finish_rows_of(Finish f) {
    switch (f) {
        case Finish::kAdd:
            return finish_rows<Finish::kAdd>;
        case Finish::kGelu:
            return finish_rows<Finish::kGelu>;
        case Finish::kGeluSlope:
            return finish_rows<Finish::kGeluSlope>;
        case Finish::kGeluSlopeAdd:
            return finish_rows<Finish::kGeluSlopeAdd>;
        case Finish::kStore:
            break;
    }
    return finish_rows<Finish::kStore>;
}

}  // namespace
}  // namespace vt::VT_ISA
