// SPDX-License-Identifier: MIT
// Kernels of ops/optimize.h.
// Floor 2.
#include "cpu/isa/rows.h"
#include "cpu/isa/vec.h"

namespace vt::VT_ISA {
namespace {

// Clip, decay, moments, step and the bf16 copy while the numbers are in registers.
template <bool kLow>
void adamw_run(const kernel::Adam& a, int64_t begin, int64_t end) {
    const F16 clip = splat(a.clip), keep_p = splat(a.keep_p), step = splat(a.step);
    const F16 b1 = splat(a.b1), one_b1 = splat(a.one_b1), b2 = splat(a.b2);
    const F16 one_b2 = splat(a.one_b2), root = splat(a.root), eps = splat(a.eps);
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        const int64_t i = begin + d;
        const F16 g = clip * load(a.g + i, w);
        const F16 m = b1 * load(a.m + i, w) + one_b1 * g;
        const F16 v = b2 * load(a.v + i, w) + one_b2 * (g * g);
        const F16 down = square_root(v) * root + eps;
        const F16 p = keep_p * load(a.p + i, w) - step * (m / down);
        store(a.m + i, m, w);
        store(a.v + i, v, w);
        store(a.p + i, p, w);
        if constexpr (kLow) store(a.low + i, p, w);
    });
}

void adamw(const kernel::Adam& a, int64_t begin, int64_t end) {
    if (a.low != nullptr) {
        adamw_run<true>(a, begin, end);
    } else {
        adamw_run<false>(a, begin, end);
    }
}

double sumsq(const float* x, int64_t begin, int64_t end) {
    D16 total[2] = {zero_d(), zero_d()};
    int64_t i = begin;
    for (; i + 32 <= end; i += 32) {
        ahead(x + i);
        ahead(x + i + 16);
        const D16 a = to_double(load(x + i, Whole{})), b = to_double(load(x + i + 16, Whole{}));
        total[0] = total[0] + a * a;
        total[1] = total[1] + b * b;
    }
    each_block(end - i, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        const D16 a = to_double(load(x + i + d, w));
        total[0] = total[0] + a * a;
    });
    return sum(total[0] + total[1]);
}

void ema(float* e, const float* p, float rate, int64_t begin, int64_t end) {
    const F16 r = splat(rate);
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        const F16 old = load(e + begin + d, w);
        store(e + begin + d, old - r * (old - load(p + begin + d, w)), w);
    });
}

}  // namespace

void fill_optimize(kernel::Table& t) {
    t.adamw = adamw;
    t.sumsq = sumsq;
    t.ema = ema;
}

}  // namespace vt::VT_ISA
