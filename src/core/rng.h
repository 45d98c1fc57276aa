// SPDX-License-Identifier: MIT
// Counter-based random numbers: Philox4x32-10 by (seed, purpose, id, element). No state, so any
// rank can draw any slice of any tensor's noise, and the host and every device agree bit for bit.
// From Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
// Floor 0.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace vt {

// What a number is for; part of the counter, so that no two uses share a stream. Values are part
// of the file format (a resume must draw the same numbers): append, never renumber.
enum class Purpose : uint8_t {
    kInit = 0,   // id = XXH3-64 of the parameter's name; element = flat index in the global shape
    kNoise = 1,  // id = draw ordinal; element = flat index in the unpadded (C,T,H,W)
    kTimestep = 2,  // id = draw ordinal
    kDropCaption = 3,
    kOrder = 4,  // keyed permutations of epochs
    kMixture = 5,
    kReplace = 6,  // substitutes for bad samples
    kStratum = 7,
    kSample = 8,  // starting noise of `vtrain sample`; id = sample index
    kValid = 9,   // validation noise; id = index of (sample, quantile)
    kSynth = 10,  // synthetic data
    kTest = 11,
};

namespace philox {
using Block = std::array<uint32_t, 4>;

constexpr Block block(uint64_t seed, Purpose purpose, uint64_t id, uint64_t index) {
    // counter = index (56 bits) | purpose (8) | id (64), least significant word first
    uint32_t c0 = static_cast<uint32_t>(index);
    uint32_t c1 =
        (static_cast<uint32_t>(index >> 32) & 0x00ffffffU) | (static_cast<uint32_t>(purpose) << 24);
    uint32_t c2 = static_cast<uint32_t>(id), c3 = static_cast<uint32_t>(id >> 32);
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
        const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
        const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
        c1 = static_cast<uint32_t>(p1);
        c3 = static_cast<uint32_t>(p0);
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return {c0, c1, c2, c3};
}

// 32 random bits as a float in (0, 1]; zero is impossible, so its logarithm is finite.
constexpr float unit_open(uint32_t bits) {
    return static_cast<float>(bits) * 0x1p-32F + 0x1p-33F;
}

// ln(u), u in (0, 1]: exponent out, then a degree-9 polynomial (Cephes logf's coefficients,
// S. Moshier, public domain) on [sqrt(1/2), sqrt(2)). Only +, x and fma: bits do not depend on
// libm.
inline float ln(float u) {
    const uint32_t raw = std::bit_cast<uint32_t>(u);
    // shift so that mantissas in [sqrt(1/2), sqrt(2)) share an exponent
    const uint32_t t = raw - 0x3f3504f3U;  // bits of sqrt(1/2)
    const int32_t e = static_cast<int32_t>(t) >> 23;
    const float m = std::bit_cast<float>((t & 0x007fffffU) + 0x3f3504f3U);
    const float x = m - 1.0F;
    float p = 7.0376836292e-2F;
    p = __builtin_fmaf(p, x, -1.1514610310e-1F);
    p = __builtin_fmaf(p, x, 1.1676998740e-1F);
    p = __builtin_fmaf(p, x, -1.2420140846e-1F);
    p = __builtin_fmaf(p, x, 1.4249322787e-1F);
    p = __builtin_fmaf(p, x, -1.6668057665e-1F);
    p = __builtin_fmaf(p, x, 2.0000714765e-1F);
    p = __builtin_fmaf(p, x, -2.4999993993e-1F);
    p = __builtin_fmaf(p, x, 3.3333331174e-1F);
    const float z = x * x;
    float y = x * z * p;
    y = __builtin_fmaf(static_cast<float>(e), -2.12194440e-4F, y);
    y = __builtin_fmaf(z, -0.5F, y);
    return __builtin_fmaf(static_cast<float>(e), 0.693359375F, x + y);
}

// cos and sin of 2 pi u for u given as 32 bits (a whole turn = 2^32). The octant is taken from the
// bits exactly; the polynomials see |angle| <= pi/4.
inline void cos_sin_turn(uint32_t bits, float& c, float& s) {
    const uint32_t quadrant = (bits + 0x20000000U) >> 30;
    const int32_t rest = static_cast<int32_t>(bits - (quadrant << 30));  // [-2^29, 2^29)
    const float x = static_cast<float>(rest) * 1.46291807926715968e-9F;  // 2 pi / 2^32
    const float z = x * x;
    float ps = -1.9515295891e-4F;
    ps = __builtin_fmaf(ps, z, 8.3321608736e-3F);
    ps = __builtin_fmaf(ps, z, -1.6666654611e-1F);
    const float sn = __builtin_fmaf(ps * z, x, x);
    float pc = 2.443315711809948e-5F;
    pc = __builtin_fmaf(pc, z, -1.388731625493765e-3F);
    pc = __builtin_fmaf(pc, z, 4.166664568298827e-2F);
    const float cs = __builtin_fmaf(pc * z, z, __builtin_fmaf(z, -0.5F, 1.0F));
    const bool swap = (quadrant & 1U) != 0;
    const float a = swap ? sn : cs, b = swap ? cs : sn;
    c = (quadrant == 1 || quadrant == 2) ? -a : a;
    s = (quadrant >= 2 && quadrant <= 3) ? -b : b;
}
}  // namespace philox

/// 32 random bits of one element.
[[nodiscard]] constexpr uint32_t random_bits(uint64_t seed, Purpose purpose, uint64_t id,
                                             uint64_t element) {
    return philox::block(seed, purpose, id, element / 4)[element % 4];
}

/// Uniform in [0, 1) with 53 bits; uses the element's whole block of four words (element indexes
/// blocks here), so do not mix with the other draws under one (purpose, id).
[[nodiscard]] constexpr double random_unit(uint64_t seed, Purpose purpose, uint64_t id,
                                           uint64_t element) {
    const philox::Block b = philox::block(seed, purpose, id, element);
    const uint64_t u = (static_cast<uint64_t>(b[0]) << 32) | b[1];
    return static_cast<double>(u >> 11) * 0x1p-53;
}

/// Four standard normals: elements 4*index .. 4*index+3 (Box-Muller on words 0,1 and 2,3).
inline std::array<float, 4> random_normal4(uint64_t seed, Purpose purpose, uint64_t id,
                                           uint64_t index) {
    const philox::Block b = philox::block(seed, purpose, id, index);
    std::array<float, 4> out{};
    for (size_t h = 0; h < 2; ++h) {
        const float r = std::sqrt(-2.0F * philox::ln(philox::unit_open(b.at(2 * h))));
        float c = 0, s = 0;
        philox::cos_sin_turn(b.at(2 * h + 1), c, s);
        out.at(2 * h) = r * c;
        out.at(2 * h + 1) = r * s;
    }
    return out;
}

/// One standard normal.
inline float random_normal(uint64_t seed, Purpose purpose, uint64_t id, uint64_t element) {
    return random_normal4(seed, purpose, id, element / 4).at(element % 4);
}

/// A bijection of [0, n) that depends on (seed, purpose, id), evaluated at one index in O(1):
/// a six-round Feistel network on the next even power of two, walked until it lands inside.
/// kBug unless index < n.
[[nodiscard]] uint64_t keyed_permutation(uint64_t seed, Purpose purpose, uint64_t id, uint64_t n,
                                         uint64_t index);

}  // namespace vt
