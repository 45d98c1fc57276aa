// SPDX-License-Identifier: MIT
// Sixteen floats as one value on every instruction set: one, two or four registers. Lane count and
// the order of every reduction are fixed, so all three copies of a kernel give the same bits.
// Everything here has internal linkage: this file is compiled three times, and the linker must not
// be able to hand one copy to all. For the same reason no header with inline functions is included
// but the compiler's own intrinsics.
// Floor 2.
#pragma once

#include <cstdint>

#if defined(__GNUC__) && !defined(__clang__)
// g++ 12 reports its own _mm512_undefined_* (GCC bug 105593)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#define VT_INLINE [[gnu::always_inline]] inline
// behind the parameter list of a lambda
#define VT_INLINE_LAMBDA __attribute__((always_inline))

namespace vt::VT_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kWidth = 16;  // floats in a register
using NF = __m512;
using ND = __m512d;
#elif defined(__AVX2__)
constexpr int kWidth = 8;
using NF = __m256;
using ND = __m256d;
#else
constexpr int kWidth = 4;
using NF = __m128;
using ND = __m128d;
#endif
constexpr int kParts = 16 / kWidth;
constexpr int kBytes = kWidth * 4;
using NI = int32_t __attribute__((vector_size(kBytes)));
using NU = uint32_t __attribute__((vector_size(kBytes)));
using NL = int64_t __attribute__((vector_size(kBytes)));
using NUL = uint64_t __attribute__((vector_size(kBytes)));
using NHalf = float __attribute__((vector_size(kBytes / 2)));

struct F16 {
    NF p[kParts];
};
struct U16 {  // sixteen uint32
    NU p[kParts];
};
struct I16 {  // sixteen int32; as a mask all bits or none
    NI p[kParts];
};
struct D16 {  // sixteen doubles
    ND p[2 * kParts];
};

#define VT_EACH for (int i = 0; i < kParts; ++i)

VT_INLINE F16 splat(float x) {
    F16 r;
    VT_EACH r.p[i] = x - NF{};  // x - (+0) keeps every x, -0 too
    return r;
}
VT_INLINE U16 splat_u(uint32_t x) {
    U16 r;
    VT_EACH r.p[i] = x - NU{};
    return r;
}
VT_INLINE I16 splat_i(int32_t x) {
    I16 r;
    VT_EACH r.p[i] = x - NI{};
    return r;
}
VT_INLINE F16 zero() {
    F16 r;
    VT_EACH r.p[i] = NF{};
    return r;
}
VT_INLINE D16 zero_d() {
    D16 r;
    for (int i = 0; i < 2 * kParts; ++i) r.p[i] = ND{};
    return r;
}

#define VT_OPERATOR(T, op)                 \
    VT_INLINE T operator op(T a, T b) {    \
        T r;                               \
        VT_EACH r.p[i] = a.p[i] op b.p[i]; \
        return r;                          \
    }
VT_OPERATOR(F16, +)
VT_OPERATOR(F16, -)
VT_OPERATOR(F16, *)
VT_OPERATOR(F16, /)
VT_OPERATOR(U16, +)
VT_OPERATOR(U16, -)
VT_OPERATOR(U16, ^)
VT_OPERATOR(U16, &)
VT_OPERATOR(U16, |)
VT_OPERATOR(I16, +)
VT_OPERATOR(I16, -)
VT_OPERATOR(I16, &)
VT_OPERATOR(I16, |)
#undef VT_OPERATOR

VT_INLINE D16 operator+(D16 a, D16 b) {
    D16 r;
    for (int i = 0; i < 2 * kParts; ++i) r.p[i] = a.p[i] + b.p[i];
    return r;
}
VT_INLINE D16 operator-(D16 a, D16 b) {
    D16 r;
    for (int i = 0; i < 2 * kParts; ++i) r.p[i] = a.p[i] - b.p[i];
    return r;
}
VT_INLINE D16 operator*(D16 a, D16 b) {
    D16 r;
    for (int i = 0; i < 2 * kParts; ++i) r.p[i] = a.p[i] * b.p[i];
    return r;
}

VT_INLINE U16 shift_left(U16 a, int n) {
    U16 r;
    VT_EACH r.p[i] = a.p[i] << n;
    return r;
}
VT_INLINE U16 shift_right(U16 a, int n) {
    U16 r;
    VT_EACH r.p[i] = a.p[i] >> n;
    return r;
}
VT_INLINE I16 shift_right(I16 a, int n) {  // keeps the sign
    I16 r;
    VT_EACH r.p[i] = a.p[i] >> n;
    return r;
}
VT_INLINE U16 bits_of(F16 a) {
    U16 r;
    VT_EACH r.p[i] = reinterpret_cast<NU>(a.p[i]);
    return r;
}
VT_INLINE F16 float_of_bits(U16 a) {
    F16 r;
    VT_EACH r.p[i] = reinterpret_cast<NF>(a.p[i]);
    return r;
}
VT_INLINE I16 as_int(U16 a) {
    I16 r;
    VT_EACH r.p[i] = reinterpret_cast<NI>(a.p[i]);
    return r;
}
VT_INLINE U16 as_uint(I16 a) {
    U16 r;
    VT_EACH r.p[i] = reinterpret_cast<NU>(a.p[i]);
    return r;
}
VT_INLINE F16 to_float(I16 a) {
    F16 r;
    VT_EACH r.p[i] = __builtin_convertvector(a.p[i], NF);
    return r;
}
VT_INLINE I16 truncate(F16 a) {
    I16 r;
    VT_EACH r.p[i] = __builtin_convertvector(a.p[i], NI);
    return r;
}
// Rounded once: both halves are exact, only their sum rounds.
VT_INLINE F16 to_float(U16 a) {
    const F16 high = to_float(as_int(shift_right(a, 16)));
    const F16 low = to_float(as_int(a & splat_u(0xffffU)));
    return high * splat(65536.0F) + low;
}
VT_INLINE I16 less(F16 a, F16 b) {
    I16 r;
    VT_EACH r.p[i] = a.p[i] < b.p[i];
    return r;
}
VT_INLINE I16 less(I16 a, I16 b) {
    I16 r;
    VT_EACH r.p[i] = a.p[i] < b.p[i];
    return r;
}
VT_INLINE F16 select(I16 mask, F16 yes, F16 no) {
    F16 r;
    VT_EACH r.p[i] = mask.p[i] ? yes.p[i] : no.p[i];
    return r;
}
VT_INLINE U16 select(I16 mask, U16 yes, U16 no) {
    U16 r;
    VT_EACH r.p[i] = mask.p[i] ? yes.p[i] : no.p[i];
    return r;
}
VT_INLINE F16 negate(F16 a) {
    return float_of_bits(bits_of(a) ^ splat_u(0x80000000U));
}
VT_INLINE F16 absolute(F16 a) {
    return float_of_bits(bits_of(a) & splat_u(0x7fffffffU));
}

VT_INLINE F16 square_root(F16 a) {
    F16 r;
#if defined(__AVX512F__)
    VT_EACH r.p[i] = _mm512_sqrt_ps(a.p[i]);
#elif defined(__AVX2__)
    VT_EACH r.p[i] = _mm256_sqrt_ps(a.p[i]);
#else
    VT_EACH r.p[i] = _mm_sqrt_ps(a.p[i]);
#endif
    return r;
}

#if !defined(__AVX2__)
// a b + c rounded once, for machines without the instruction. The product is exact in double, the
// sum is rounded to odd (Boldo and Melquiond 2008), after which rounding to float rounds as if
// once.
VT_INLINE __m128d fma_to_odd(__m128d a, __m128d b, __m128d c) {
    const __m128d p = a * b, s = p + c, t = s - p;
    const __m128d e = (p - (s - t)) + (c - t);  // exactly a b + c - s
    const NL es = reinterpret_cast<NL>(e), ss = reinterpret_cast<NL>(s);
    const NL inexact = (e > 0.0) | (e < 0.0);   // false for NaN: infinities stay
    const NL even = (ss & 1) - 1;               // all bits where the last bit of s is 0
    const NL toward = ((es ^ ss) < 0) * 2 + 1;  // one step towards e: +1 or -1 in magnitude
    return reinterpret_cast<__m128d>(ss + (inexact & even & toward));
}
#endif
// a b + c, rounded once; dear on the baseline, so only where the definition says fma.
VT_INLINE F16 fused(F16 a, F16 b, F16 c) {
    F16 r;
#if defined(__AVX512F__)
    VT_EACH r.p[i] = _mm512_fmadd_ps(a.p[i], b.p[i], c.p[i]);
#elif defined(__AVX2__)
    VT_EACH r.p[i] = _mm256_fmadd_ps(a.p[i], b.p[i], c.p[i]);
#else
    VT_EACH {
        const __m128 x = a.p[i], y = b.p[i], z = c.p[i];
        const __m128d low = fma_to_odd(_mm_cvtps_pd(x), _mm_cvtps_pd(y), _mm_cvtps_pd(z));
        const __m128d high =
            fma_to_odd(_mm_cvtps_pd(_mm_movehl_ps(x, x)), _mm_cvtps_pd(_mm_movehl_ps(y, y)),
                       _mm_cvtps_pd(_mm_movehl_ps(z, z)));
        r.p[i] = _mm_movelh_ps(_mm_cvtpd_ps(low), _mm_cvtpd_ps(high));
    }
#endif
    return r;
}

// The 64-bit products of sixteen 32-bit words with one: their high and low words.
VT_INLINE void multiply_wide(U16 a, uint32_t m, U16& high, U16& low) {
    VT_EACH {
        const NUL wide = reinterpret_cast<NUL>(a.p[i]);
        const NUL factor = uint64_t{m} - NUL{};
#if defined(__AVX512F__)
        const NUL even = reinterpret_cast<NUL>(
            _mm512_mul_epu32(reinterpret_cast<__m512i>(wide), reinterpret_cast<__m512i>(factor)));
        const NUL odd = reinterpret_cast<NUL>(_mm512_mul_epu32(
            reinterpret_cast<__m512i>(wide >> 32), reinterpret_cast<__m512i>(factor)));
#elif defined(__AVX2__)
        const NUL even = reinterpret_cast<NUL>(
            _mm256_mul_epu32(reinterpret_cast<__m256i>(wide), reinterpret_cast<__m256i>(factor)));
        const NUL odd = reinterpret_cast<NUL>(_mm256_mul_epu32(
            reinterpret_cast<__m256i>(wide >> 32), reinterpret_cast<__m256i>(factor)));
#else
        const NUL even = reinterpret_cast<NUL>(
            _mm_mul_epu32(reinterpret_cast<__m128i>(wide), reinterpret_cast<__m128i>(factor)));
        const NUL odd = reinterpret_cast<NUL>(_mm_mul_epu32(reinterpret_cast<__m128i>(wide >> 32),
                                                            reinterpret_cast<__m128i>(factor)));
#endif
        const NUL mask = uint64_t{0xffffffffU} - NUL{};
        low.p[i] = reinterpret_cast<NU>((even & mask) | (odd << 32));
        high.p[i] = reinterpret_cast<NU>((even >> 32) | (odd & ~mask));
    }
}

// Inside each pair of lanes: exchanged, the first twice, the second twice.
#if defined(__AVX512F__)
#define VT_SHUFFLE(v, order) _mm512_shuffle_ps(v, v, order)
#elif defined(__AVX2__)
#define VT_SHUFFLE(v, order) _mm256_shuffle_ps(v, v, order)
#else
#define VT_SHUFFLE(v, order) _mm_shuffle_ps(v, v, order)
#endif
VT_INLINE F16 swap_pairs(F16 a) {
    F16 r;
    VT_EACH r.p[i] = VT_SHUFFLE(a.p[i], 0xB1);
    return r;
}
VT_INLINE F16 first_of_pairs(F16 a) {
    F16 r;
    VT_EACH r.p[i] = VT_SHUFFLE(a.p[i], 0xA0);
    return r;
}
VT_INLINE F16 second_of_pairs(F16 a) {
    F16 r;
    VT_EACH r.p[i] = VT_SHUFFLE(a.p[i], 0xF5);
    return r;
}
#undef VT_SHUFFLE

// x in lanes 0, 2, 4 ...; 0 in the others.
VT_INLINE U16 first_lane_of_pairs(uint32_t x) {
    U16 r;
    VT_EACH r.p[i] = reinterpret_cast<NU>(uint64_t{x} - NUL{});
    return r;
}

// Sum of the lanes: i + (i+8), then + 4, + 2, + 1 apart.
VT_INLINE float sum(F16 a) {
#if defined(__AVX512F__)
    const __m256 eight = _mm512_castps512_ps256(a.p[0]) + _mm512_extractf32x8_ps(a.p[0], 1);
    const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
#elif defined(__AVX2__)
    const __m256 eight = a.p[0] + a.p[1];
    const __m128 four = _mm256_castps256_ps128(eight) + _mm256_extractf128_ps(eight, 1);
#else
    const __m128 four = (a.p[0] + a.p[2]) + (a.p[1] + a.p[3]);
#endif
    const __m128 two = four + _mm_movehl_ps(four, four);
    return two[0] + two[1];
}
VT_INLINE double sum(D16 a) {
    alignas(64) double lane[16];
    __builtin_memcpy(lane, &a, sizeof lane);
    for (int step = 8; step >= 1; step /= 2) {
        for (int i = 0; i < step; ++i) lane[i] += lane[i + step];
    }
    return lane[0];
}
VT_INLINE D16 to_double(F16 a) {
    D16 r;
    VT_EACH {
#if defined(__AVX512F__)
        r.p[2 * i] = _mm512_cvtps_pd(_mm512_castps512_ps256(a.p[i]));
        r.p[2 * i + 1] = _mm512_cvtps_pd(_mm512_extractf32x8_ps(a.p[i], 1));
#elif defined(__AVX2__)
        r.p[2 * i] = _mm256_cvtps_pd(_mm256_castps256_ps128(a.p[i]));
        r.p[2 * i + 1] = _mm256_cvtps_pd(_mm256_extractf128_ps(a.p[i], 1));
#else
        r.p[2 * i] = _mm_cvtps_pd(a.p[i]);
        r.p[2 * i + 1] = _mm_cvtps_pd(_mm_movehl_ps(a.p[i], a.p[i]));
#endif
    }
    return r;
}

// --- memory: float, or bfloat16 as uint16_t; whole or the first n of sixteen -------------------

// Asks for the line two pages on. The hardware's prefetcher stops at the end of each 4 KiB page, so
// a kernel that walks one or two arrays would wait for memory at every one. Past the end of an
// array this does nothing: a prefetch never faults and nothing is read into a register.
template <typename T>
VT_INLINE void ahead(const T* p) {
    __builtin_prefetch(reinterpret_cast<const char*>(p) + 8192, 0, 2);
}

struct Whole {};
struct Part {
    int n;  // 1..15; lanes from n on read as 0 and are not written
};

VT_INLINE F16 load(const float* p, Whole /*w*/) {
    F16 r;
    __builtin_memcpy(&r, p, sizeof r);
    return r;
}
VT_INLINE F16 load(const uint16_t* p, Whole /*w*/) {
    F16 r;
#if defined(__AVX512F__)
    const __m512i wide =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    r.p[0] = reinterpret_cast<NF>(reinterpret_cast<NU>(wide) << 16);
#elif defined(__AVX2__)
    VT_EACH {
        const __m256i wide =
            _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i)));
        r.p[i] = reinterpret_cast<NF>(reinterpret_cast<NU>(wide) << 16);
    }
#else
    for (int i = 0; i < 2; ++i) {
        const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8 * i));
        r.p[2 * i] = reinterpret_cast<NF>(_mm_unpacklo_epi16(_mm_setzero_si128(), half));
        r.p[2 * i + 1] = reinterpret_cast<NF>(_mm_unpackhi_epi16(_mm_setzero_si128(), half));
    }
#endif
    return r;
}
template <typename T>
VT_INLINE F16 load(const T* p, Part w) {
    alignas(64) T lane[16] = {};
    for (int i = 0; i < w.n; ++i) lane[i] = p[i];
    return load(lane, Whole{});
}

VT_INLINE void store(float* p, F16 a, Whole /*w*/) {
    __builtin_memcpy(p, &a, sizeof a);
}
// To nearest, ties to even; NaN stays NaN and becomes quiet.
VT_INLINE void store(uint16_t* p, F16 a, Whole /*w*/) {
    const U16 u = bits_of(a);
    const U16 rounded = u + splat_u(0x7fffU) + (shift_right(u, 16) & splat_u(1));
    const I16 is_nan = less(splat_i(0x7f800000), as_int(u & splat_u(0x7fffffffU)));
    const U16 r = select(is_nan, u | splat_u(0x400000U), rounded);
#if defined(__AVX512F__)
    const NU top = r.p[0] >> 16;
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtepi32_epi16(reinterpret_cast<__m512i>(top)));
#elif defined(__AVX2__)
    // arithmetic shift, so that the saturating pack changes nothing
    const NI low = reinterpret_cast<NI>(r.p[0]) >> 16, high = reinterpret_cast<NI>(r.p[1]) >> 16;
    const __m256i packed =
        _mm256_packs_epi32(reinterpret_cast<__m256i>(low), reinterpret_cast<__m256i>(high));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm256_permute4x64_epi64(packed, 0xD8));
#else
    for (int i = 0; i < 2; ++i) {
        const NI low = reinterpret_cast<NI>(r.p[2 * i]) >> 16;
        const NI high = reinterpret_cast<NI>(r.p[2 * i + 1]) >> 16;
        _mm_storeu_si128(
            reinterpret_cast<__m128i*>(p + 8 * i),
            _mm_packs_epi32(reinterpret_cast<__m128i>(low), reinterpret_cast<__m128i>(high)));
    }
#endif
}
template <typename T>
VT_INLINE void store(T* p, F16 a, Part w) {
    alignas(64) T lane[16];
    store(lane, a, Whole{});
    for (int i = 0; i < w.n; ++i) p[i] = lane[i];
}
// a with the lanes that a Part does not have set to 0.
VT_INLINE F16 keep(F16 a, Whole /*w*/) {
    return a;
}
VT_INLINE F16 keep(F16 a, Part w) {
    alignas(64) float lane[16];
    store(lane, a, Whole{});
    for (int i = w.n; i < 16; ++i) lane[i] = 0;
    return load(lane, Whole{});
}

// body(d, Whole or Part) over [0, n) in steps of sixteen.
template <typename Body>
VT_INLINE void each_block(int64_t n, const Body& body) {
    int64_t d = 0;
    for (; d + 16 <= n; d += 16) body(d, Whole{});
    if (d < n) body(d, Part{static_cast<int>(n - d)});
}
// body(d, Whole or Part, lane set) with lane sets 0..3 in turn: four independent chains of sums.
template <typename Body>
VT_INLINE void each_block4(int64_t n, const Body& body) {
    int64_t d = 0;
    for (; d + 64 <= n; d += 64) {
        body(d, Whole{}, 0);
        body(d + 16, Whole{}, 1);
        body(d + 32, Whole{}, 2);
        body(d + 48, Whole{}, 3);
    }
    for (; d + 16 <= n; d += 16) body(d, Whole{}, 0);
    if (d < n) body(d, Part{static_cast<int>(n - d)}, 1);
}
VT_INLINE float sum4(const F16 (&a)[4]) {
    return sum((a[0] + a[1]) + (a[2] + a[3]));
}

// --- functions -------------------------------------------------------------------------------

// e^x to 2 ulp, also where the result is subnormal; 0 and infinity beyond. n ln 2 is taken off in
// two parts, the first exactly. Polynomial: Cephes expf (S. Moshier, public domain).
VT_INLINE F16 exponential(F16 x) {
    x = select(less(splat(89.0F), x), splat(89.0F), x);  // NaN compares false and stays
    x = select(less(x, splat(-105.0F)), splat(-105.0F), x);
    const F16 magic = splat(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
    const F16 n = (x * splat(1.44269504F) + magic) - magic;
    const F16 r = (x - n * splat(0.693359375F)) - n * splat(-2.12194440e-4F);
    F16 p = splat(1.9875691500e-4F);
    p = p * r + splat(1.3981999507e-3F);
    p = p * r + splat(8.3334519073e-3F);
    p = p * r + splat(4.1665795894e-2F);
    p = p * r + splat(1.6666665459e-1F);
    p = p * r + splat(5.0000001201e-1F);
    p = (p * (r * r) + r) + splat(1.0F);
    // 2^n in two factors, for n may be anything from -152 to 129
    const I16 whole = truncate(n), half = shift_right(whole, 1), rest = whole - half;
    const U16 a = shift_left(as_uint(half + splat_i(127)), 23);
    const U16 b = shift_left(as_uint(rest + splat_i(127)), 23);
    return (p * float_of_bits(a)) * float_of_bits(b);
}

// s = 1 / (1 + e^-x) and c = 1 - s, each to a few ulp, however small.
VT_INLINE void sigmoids(F16 x, F16& s, F16& c) {
    const F16 e = exponential(negate(absolute(x)));
    const F16 large = splat(1.0F) / (splat(1.0F) + e), small = e * large;
    const I16 negative = less(x, zero());
    s = select(negative, small, large);
    c = select(negative, large, small);
}

#undef VT_EACH

}  // namespace
}  // namespace vt::VT_ISA
