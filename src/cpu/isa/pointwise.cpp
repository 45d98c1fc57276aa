// SPDX-License-Identifier: MIT
// Kernels of ops/pointwise.h.
// Floor 2.
#include "cpu/isa/rows.h"
#include "cpu/isa/vec.h"

namespace vt::VT_ISA {
namespace {

template <typename H, typename O>
void gate_fwd(const kernel::Gate& a, int64_t begin, int64_t end) {
    if (a.gate == nullptr) {  // rows do not matter: one run of elements
        H* h = static_cast<H*>(a.h) + begin * a.D;
        const O* o = static_cast<const O*>(a.o) + begin * a.D;
        each_block((end - begin) * a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            store(h + d, load(h + d, w) + load(o + d, w), w);
        });
        return;
    }
    for (int64_t s = begin; s < end; ++s) {
        H* h = static_cast<H*>(a.h) + s * a.D;
        const O* o = static_cast<const O*>(a.o) + s * a.D;
        each_block(a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            store(h + d, load(h + d, w) + load(a.gate + d, w) * load(o + d, w), w);
        });
    }
}

template <typename Y, typename O>
void gate_bwd(const kernel::Gate& a, int64_t begin, int64_t end) {
    if (a.gate == nullptr) {
        Y* dout = static_cast<Y*>(a.dout) + begin * a.D;
        const float* dh = a.dh + begin * a.D;
        each_block((end - begin) * a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            store(dout + d, load(dh + d, w), w);
        });
        return;
    }
    each_block(a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA { store(a.dgate + d, zero(), w); });
    for (int64_t s = begin; s < end; ++s) {
        Y* dout = static_cast<Y*>(a.dout) + s * a.D;
        const float* dh = a.dh + s * a.D;
        const O* o = static_cast<const O*>(a.o) + s * a.D;
        each_block(a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            ahead(dh + d);
            ahead(o + d);
            ahead(dout + d);
            const F16 up = load(dh + d, w);
            store(a.dgate + d, load(a.dgate + d, w) + up * load(o + d, w), w);
            store(dout + d, load(a.gate + d, w) * up, w);
        });
    }
}

template <typename Y, typename X>
void silu_fwd(void* y, const void* x, int64_t begin, int64_t end) {
    const X* from = static_cast<const X*>(x) + begin;
    Y* to = static_cast<Y*>(y) + begin;
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        const F16 v = load(from + d, w);
        F16 s, c;
        sigmoids(v, s, c);
        store(to + d, v * s, w);
    });
}

template <typename Y, typename X>
void silu_bwd(float* dx, const void* dy, const void* x, int64_t begin, int64_t end) {
    const X* from = static_cast<const X*>(x) + begin;
    const Y* up = static_cast<const Y*>(dy) + begin;
    float* to = dx + begin;
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        const F16 v = load(from + d, w);
        F16 s, c;
        sigmoids(v, s, c);
        const F16 slope = s * (splat(1.0F) + v * c);
        store(to + d, load(to + d, w) + load(up + d, w) * slope, w);
    });
}

template <typename Y, typename X>
void cast(void* y, const void* x, int64_t begin, int64_t end) {
    const X* from = static_cast<const X*>(x) + begin;
    Y* to = static_cast<Y*>(y) + begin;
    each_block(end - begin,
               [&](int64_t d, auto w) VT_INLINE_LAMBDA { store(to + d, load(from + d, w), w); });
}

template <typename X>
void add(float* y, const void* x, int64_t begin, int64_t end) {
    const X* from = static_cast<const X*>(x) + begin;
    float* to = y + begin;
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        store(to + d, load(to + d, w) + load(from + d, w), w);
    });
}

void sum_of(float* y, const float* a, const float* b, int64_t begin, int64_t end) {
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        store(y + begin + d, load(a + begin + d, w) + load(b + begin + d, w), w);
    });
}

void add_parts(float* acc, const float* parts, int64_t stride, int64_t n, int64_t begin,
               int64_t end) {
    each_block(end - begin, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        F16 total = zero();
        for (int64_t i = 0; i < n; ++i) total = total + load(parts + i * stride + begin + d, w);
        store(acc + begin + d, load(acc + begin + d, w) + total, w);
    });
}

template <typename A, typename B>
void fill_of(kernel::Table& t, int a, int b) {
    t.gate_fwd[a][b] = gate_fwd<A, B>;
    t.gate_bwd[a][b] = gate_bwd<A, B>;
    t.silu_fwd[a][b] = silu_fwd<A, B>;
    t.silu_bwd[a][b] = silu_bwd<A, B>;
    t.cast[a][b] = cast<A, B>;
}

}  // namespace

void fill_pointwise(kernel::Table& t) {
    using kernel::kBF16;
    using kernel::kF32;
    fill_of<float, float>(t, kF32, kF32);
    fill_of<float, uint16_t>(t, kF32, kBF16);
    fill_of<uint16_t, float>(t, kBF16, kF32);
    fill_of<uint16_t, uint16_t>(t, kBF16, kBF16);
    t.add[kF32] = add<float>;
    t.add[kBF16] = add<uint16_t>;
    t.sum_of = sum_of;
    t.add_parts = add_parts;
}

void fill_rows(kernel::Table& t) {
    fill_norm(t);
    fill_pointwise(t);
    fill_objective(t);
    fill_optimize(t);
}

}  // namespace vt::VT_ISA
