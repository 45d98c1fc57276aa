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

// s = 1 / (1 + e^-x) and c = 1 - s, each to a few ulp down to the least normal number; the other
// files' sigmoids() in fewer instructions. e^-|x| as there: n ln 2 is taken off in two parts, then
// the polynomial of Cephes expf (S. Moshier, public domain).
VT_INLINE void fast_sigmoids(__m512 x, __m512& s, __m512& c) {
    const __m512 one = _mm512_set1_ps(1.0F);
    const __m512 sign = _mm512_set1_ps(-0.0F);
    // the second operand is what max returns for a NaN
    const __m512 a = _mm512_max_ps(_mm512_set1_ps(-105.0F), _mm512_or_ps(x, sign));
    const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(a, _mm512_set1_ps(1.44269504F)),
                                          _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375F), a);
    r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4F), r);
    __m512 p = _mm512_set1_ps(1.9875691500e-4F);
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.3981999507e-3F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(8.3334519073e-3F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(4.1665795894e-2F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.6666665459e-1F));
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(5.0000001201e-1F));
    p = _mm512_fmadd_ps(p, _mm512_mul_ps(r, r), _mm512_add_ps(r, one));
    const __m512 e = _mm512_scalef_ps(p, n);
    // 1 / (1 + e) in (0.5, 1]: an estimate good to 2^-14, then one step of Newton's method
    const __m512 d = _mm512_add_ps(one, e);
    const __m512 y = _mm512_rcp14_ps(d);
    const __m512 large = _mm512_fmadd_ps(y, _mm512_fnmadd_ps(d, y, one), y);
    const __m512 small = _mm512_mul_ps(e, large);
    const __mmask16 negative = _mm512_movepi32_mask(_mm512_castps_si512(x));
    s = _mm512_mask_blend_ps(negative, large, small);
    c = _mm512_mask_blend_ps(negative, small, large);
}
VT_INLINE __m512 fast_gelu(__m512 x) {
    const __m512 k = _mm512_set1_ps(kTwoRootTwoOverPi);
    const __m512 kc = _mm512_set1_ps(kTwoRootTwoOverPi * kCubic);
    __m512 s, c;
    fast_sigmoids(_mm512_mul_ps(x, _mm512_fmadd_ps(_mm512_mul_ps(x, x), kc, k)), s, c);
    return _mm512_mul_ps(x, s);
}
VT_INLINE __m512 fast_gelu_slope(__m512 x) {
    const __m512 k = _mm512_set1_ps(kTwoRootTwoOverPi);
    const __m512 kc = _mm512_set1_ps(kTwoRootTwoOverPi * kCubic);
    const __m512 x2 = _mm512_mul_ps(x, x);
    __m512 s, c;
    fast_sigmoids(_mm512_mul_ps(x, _mm512_fmadd_ps(x2, kc, k)), s, c);
    const __m512 du = _mm512_fmadd_ps(x2, _mm512_set1_ps(3 * kTwoRootTwoOverPi * kCubic), k);
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
