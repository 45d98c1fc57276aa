// SPDX-License-Identifier: MIT
// Kernels of ops/objective.h. The noise is core/rng.h's, sixteen blocks of four numbers at a time,
// operation for operation, so that its bits are the same; core/rng.h says why each step is as it
// is. Floor 2.
#include "cpu/isa/rows.h"
#include "cpu/isa/vec.h"

namespace vt::VT_ISA {
namespace {

struct Words {
    U16 w[4];
};

// The sixteen Philox4x32-10 blocks from `index` on (a multiple of 16, so that no carry leaves the
// low word inside).
VT_INLINE Words philox(uint64_t seed, uint32_t purpose, uint64_t id, uint64_t index) {
    I16 lane = splat_i(0);
    for (int i = 0; i < 16; ++i) lane.p[i / kWidth][i % kWidth] = i;
    U16 c0 = splat_u(static_cast<uint32_t>(index)) + as_uint(lane);
    U16 c1 = splat_u((static_cast<uint32_t>(index >> 32) & 0x00ffffffU) | (purpose << 24));
    U16 c2 = splat_u(static_cast<uint32_t>(id)), c3 = splat_u(static_cast<uint32_t>(id >> 32));
    uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
    for (int round = 0; round < 10; ++round) {
        U16 high0, low0, high1, low1;
        multiply_wide(c0, 0xD2511F53U, high0, low0);
        multiply_wide(c2, 0xCD9E8D57U, high1, low1);
        c0 = high1 ^ c1 ^ splat_u(k0);
        c2 = high0 ^ c3 ^ splat_u(k1);
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9U;
        k1 += 0xBB67AE85U;
    }
    return {{c0, c1, c2, c3}};
}

VT_INLINE F16 ln(F16 u) {
    const U16 t = bits_of(u) - splat_u(0x3f3504f3U);
    const F16 e = to_float(shift_right(as_int(t), 23));
    const F16 m = float_of_bits((t & splat_u(0x007fffffU)) + splat_u(0x3f3504f3U));
    const F16 x = m - splat(1.0F);
    F16 p = splat(7.0376836292e-2F);
    p = fused(p, x, splat(-1.1514610310e-1F));
    p = fused(p, x, splat(1.1676998740e-1F));
    p = fused(p, x, splat(-1.2420140846e-1F));
    p = fused(p, x, splat(1.4249322787e-1F));
    p = fused(p, x, splat(-1.6668057665e-1F));
    p = fused(p, x, splat(2.0000714765e-1F));
    p = fused(p, x, splat(-2.4999993993e-1F));
    p = fused(p, x, splat(3.3333331174e-1F));
    const F16 z = x * x;
    F16 y = x * z * p;
    y = fused(e, splat(-2.12194440e-4F), y);
    y = fused(z, splat(-0.5F), y);
    return fused(e, splat(0.693359375F), x + y);
}

VT_INLINE void cos_sin_turn(U16 bits, F16& c, F16& s) {
    const U16 quadrant = shift_right(bits + splat_u(0x20000000U), 30);
    const I16 rest = as_int(bits - shift_left(quadrant, 30));
    const F16 x = to_float(rest) * splat(1.46291807926715968e-9F);
    const F16 z = x * x;
    F16 ps = splat(-1.9515295891e-4F);
    ps = fused(ps, z, splat(8.3321608736e-3F));
    ps = fused(ps, z, splat(-1.6666654611e-1F));
    const F16 sn = fused(ps * z, x, x);
    F16 pc = splat(2.443315711809948e-5F);
    pc = fused(pc, z, splat(-1.388731625493765e-3F));
    pc = fused(pc, z, splat(4.166664568298827e-2F));
    const F16 cs = fused(pc * z, z, fused(z, splat(-0.5F), splat(1.0F)));
    const I16 swap = less(splat_i(0), as_int(quadrant & splat_u(1)));
    const F16 a = select(swap, sn, cs), b = select(swap, cs, sn);
    // a changes sign in quadrants 1 and 2, b in 2 and 3: bit 1 of (quadrant + 1), of quadrant
    const U16 top = splat_u(0x80000000U);
    c = float_of_bits(bits_of(a) ^ (shift_left(quadrant + splat_u(1), 30) & top));
    s = float_of_bits(bits_of(b) ^ (shift_left(quadrant, 30) & top));
}

// Elements 4 index .. 4 index + 63.
VT_INLINE void normals(const kernel::Noise& a, uint64_t index, float (&out)[64]) {
    const Words b = philox(a.seed, a.purpose, a.id, index);
    alignas(64) float column[4][16];
    for (int h = 0; h < 2; ++h) {
        const F16 u = to_float(b.w[2 * h]) * splat(0x1p-32F) + splat(0x1p-33F);
        const F16 r = square_root(splat(-2.0F) * ln(u));
        F16 c, s;
        cos_sin_turn(b.w[2 * h + 1], c, s);
        store(column[2 * h], r * c, Whole{});
        store(column[2 * h + 1], r * s, Whole{});
    }
    for (int i = 0; i < 16; ++i) {
        for (int j = 0; j < 4; ++j) out[4 * i + j] = column[j][i];
    }
}

template <typename X>
void add_noise(const kernel::Noise& a, int64_t begin, int64_t end) {
    const X* x0 = static_cast<const X*>(a.x0);
    const F16 data = splat(a.mix[0]), noise = splat(a.mix[1]);
    const F16 target_data = splat(a.mix[2]), target_noise = splat(a.mix[3]);
    alignas(64) float e[64];
    for (int64_t i = begin; i < end; i += 64) {
        normals(a, static_cast<uint64_t>(i) / 4, e);
        each_block(end - i < 64 ? end - i : 64, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            const F16 x = load(x0 + i + d, w), z = load(e + d, w);
            store(a.xt + i + d, fused(noise, z, data * x), w);
            store(a.target + i + d, fused(target_noise, z, target_data * x), w);
        });
    }
}

double loss(float* dv, const float* v, const float* target, float twice_coef, int64_t begin,
            int64_t end) {
    D16 total = zero_d();
    const F16 factor = splat(twice_coef);
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        const F16 x = load(v + begin + d, w), y = load(target + begin + d, w);
        const D16 off = to_double(x) - to_double(y);
        total = total + off * off;
        if (dv != nullptr) store(dv + begin + d, factor * (x - y), w);
    });
    return sum(total);
}

}  // namespace

void fill_objective(kernel::Table& t) {
    t.noise[kernel::kF32] = add_noise<float>;
    t.noise[kernel::kBF16] = add_noise<uint16_t>;
    t.loss = loss;
}

}  // namespace vt::VT_ISA
