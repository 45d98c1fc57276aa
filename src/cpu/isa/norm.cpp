// SPDX-License-Identifier: MIT
// Kernels of ops/norm.h: each row is read from memory once; further passes over it hit the cache.
// Floor 2.
#include "cpu/isa/rows.h"
#include "cpu/isa/vec.h"

namespace vt::VT_ISA {
namespace {

// mean[s] is rounded to float for the caller, but the row is centred by two floats, high + low: an
// error of one ulp of the mean would be many ulp of a channel that is close to it.
template <bool kAffine, typename H, typename Y>
void norm_fwd(const kernel::NormFwd& a, int64_t begin, int64_t end) {
    const float D = static_cast<float>(a.D), over = 1.0F / D;
    for (int64_t s = begin; s < end; ++s) {
        const H* h = static_cast<const H*>(a.h) + s * a.D;
        Y* y = static_cast<Y*>(a.y) + s * a.D;
        F16 total[4] = {zero(), zero(), zero(), zero()};
        each_block4(a.D, [&](int64_t d, auto w, int k)
                             VT_INLINE_LAMBDA { total[k] = total[k] + load(h + d, w); });
        const float high = sum4(total) * over;
        F16 rest[4] = {zero(), zero(), zero(), zero()};
        F16 square[4] = {zero(), zero(), zero(), zero()};
        const F16 centre = splat(high);
        each_block4(a.D, [&](int64_t d, auto w, int k) VT_INLINE_LAMBDA {
            const F16 x = keep(load(h + d, w) - centre, w);
            rest[k] = rest[k] + x;
            square[k] = square[k] + x * x;
        });
        const float low = sum4(rest) * over;
        const float variance = sum4(square) * over - low * low;
        const float rstd = 1.0F / __builtin_sqrtf((variance > 0 ? variance : 0) + a.eps);
        a.mean[s] = high + low;
        a.rstd[s] = rstd;
        const F16 off = splat(low), r = splat(rstd), one = splat(1.0F);
        each_block(a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            const F16 xh = ((load(h + d, w) - centre) - off) * r;
            const F16 scale = load(a.scale + d, w);
            const F16 gain = kAffine ? scale : one + scale;
            store(y + d, xh * gain + load(a.shift + d, w), w);
        });
    }
}

template <bool kAffine, typename H, typename Y>
void norm_bwd(const kernel::NormBwd& a, int64_t begin, int64_t end) {
    const float over = 1.0F / static_cast<float>(a.D);
    const F16 one = splat(1.0F);
    each_block(a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
        store(a.dshift + d, zero(), w);
        store(a.dscale + d, zero(), w);
    });
    for (int64_t s = begin; s < end; ++s) {
        const H* h = static_cast<const H*>(a.h) + s * a.D;
        const Y* dy = static_cast<const Y*>(a.dy) + s * a.D;
        float* dh = a.dh + s * a.D;
        const F16 mean = splat(a.mean[s]), r = splat(a.rstd[s]);
        F16 first[4] = {zero(), zero(), zero(), zero()};
        F16 second[4] = {zero(), zero(), zero(), zero()};
        each_block4(a.D, [&](int64_t d, auto w, int k) VT_INLINE_LAMBDA {
            ahead(h + d);
            ahead(dy + d);
            ahead(dh + d);
            const F16 scale = load(a.scale + d, w);
            const F16 g = load(dy + d, w) * (kAffine ? scale : one + scale);
            first[k] = first[k] + g;
            second[k] = second[k] + g * ((load(h + d, w) - mean) * r);
        });
        // lanes past a part's end: dy is 0 there, so both sums are unchanged
        const F16 c1 = splat(sum4(first) * over), c2 = splat(sum4(second) * over);
        each_block(a.D, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            const F16 xh = (load(h + d, w) - mean) * r, up = load(dy + d, w);
            const F16 scale = load(a.scale + d, w);
            const F16 g = up * (kAffine ? scale : one + scale);
            store(dh + d, load(dh + d, w) + r * ((g - c1) - xh * c2), w);
            store(a.dscale + d, load(a.dscale + d, w) + up * xh, w);
            store(a.dshift + d, load(a.dshift + d, w) + up, w);
        });
    }
}

template <typename T>
void row_sumsq(float* ssq, const void* x, int64_t D, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
        const T* row = static_cast<const T*>(x) + s * D;
        F16 total[4] = {zero(), zero(), zero(), zero()};
        each_block4(D, [&](int64_t d, auto w, int k) VT_INLINE_LAMBDA {
            ahead(row + d);
            const F16 v = load(row + d, w);
            total[k] = total[k] + v * v;
        });
        ssq[s] = sum4(total);
    }
}

// The row's cosines, each twice, and its sines as (-s, s), for one head: angles[0, HD), [HD, 2 HD).
// Built by the three axes' slices, which need not be multiples of sixteen.
void angles_of_row(const kernel::QkNorm& a, int64_t s, float* angles) {
    const U16 sign = first_lane_of_pairs(0x80000000U);
    float* out = angles;
    for (int axis = 0; axis < 3; ++axis) {
        const float* cs = a.cs[axis] + static_cast<int64_t>(a.pos[3 * s + axis]) * a.n[axis];
        each_block(a.n[axis], [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            const F16 v = load(cs + d, w);
            store(out + d, first_of_pairs(v), w);
            store(out + a.HD + d, float_of_bits(bits_of(second_of_pairs(v)) ^ sign), w);
        });
        out += a.n[axis];
    }
}

VT_INLINE float rms(const kernel::QkNorm& a, int64_t s) {
    const double r = 1.0 / __builtin_sqrt(static_cast<double>(a.ssq[s]) / a.D_global + a.eps);
    return static_cast<float>(r);
}

template <typename T>
void qknorm_fwd(const kernel::QkNorm& a, float* angles, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
        const T* x = static_cast<const T*>(a.x) + s * a.Dl;
        T* y = static_cast<T*>(a.y) + s * a.Dl;
        const F16 r = splat(rms(a, s));
        if (a.pos == nullptr) {
            each_block(a.Dl, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
                store(y + d, (load(x + d, w) * r) * load(a.w + d, w), w);
            });
            continue;
        }
        angles_of_row(a, s, angles);
        for (int64_t head = 0; head < a.Dl; head += a.HD) {
            each_block(a.HD, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
                ahead(x + head + d);
                ahead(y + head + d);
                const F16 n = (load(x + head + d, w) * r) * load(a.w + head + d, w);
                const F16 c = load(angles + d, w), sn = load(angles + a.HD + d, w);
                store(y + head + d, n * c + swap_pairs(n) * sn, w);
            });
        }
    }
}

// dy turned back: the transposed rotation.
template <typename T, typename W>
VT_INLINE F16 turned_back(const T* dy, const float* angles, int64_t HD, int64_t d, W w) {
    ahead(dy + d);
    const F16 g = load(dy + d, w);
    return g * load(angles + d, w) - swap_pairs(g) * load(angles + HD + d, w);
}

template <typename T>
void qknorm_bwd_dot(const kernel::QkNorm& a, float* angles, int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
        const T* x = static_cast<const T*>(a.x) + s * a.Dl;
        const T* dy = static_cast<const T*>(a.dy) + s * a.Dl;
        F16 total[4] = {zero(), zero(), zero(), zero()};
        if (a.pos == nullptr) {
            each_block4(a.Dl, [&](int64_t d, auto w, int k) VT_INLINE_LAMBDA {
                total[k] = total[k] + (load(dy + d, w) * load(a.w + d, w)) * load(x + d, w);
            });
            a.dot[s] = sum4(total);
            continue;
        }
        angles_of_row(a, s, angles);
        for (int64_t head = 0; head < a.Dl; head += a.HD) {
            each_block4(a.HD, [&](int64_t d, auto w, int k) VT_INLINE_LAMBDA {
                ahead(x + head + d);
                const F16 n = turned_back(dy + head, angles, a.HD, d, w);
                total[k] = total[k] + (n * load(a.w + head + d, w)) * load(x + head + d, w);
            });
        }
        a.dot[s] = sum4(total);
    }
}

template <typename T>
void qknorm_bwd(const kernel::QkNorm& a, float* angles, int64_t begin, int64_t end) {
    each_block(a.Dl, [&](int64_t d, auto w) VT_INLINE_LAMBDA { store(a.dw + d, zero(), w); });
    for (int64_t s = begin; s < end; ++s) {
        const T* x = static_cast<const T*>(a.x) + s * a.Dl;
        const T* dy = static_cast<const T*>(a.dy) + s * a.Dl;
        T* dx = static_cast<T*>(a.y) + s * a.Dl;
        const float rs = rms(a, s);
        const double c = static_cast<double>(rs) * static_cast<double>(rs) *
                         static_cast<double>(a.dots[s]) / a.D_global;
        const F16 r = splat(rs), mean = splat(static_cast<float>(c));
        const auto one = [&](int64_t d, F16 n, auto w) VT_INLINE_LAMBDA {
            ahead(x + d);
            ahead(dx + d);
            const F16 v = load(x + d, w);
            store(a.dw + d, load(a.dw + d, w) + n * (v * r), w);
            store(dx + d, r * (n * load(a.w + d, w) - v * mean), w);
        };
        if (a.pos == nullptr) {
            each_block(a.Dl,
                       [&](int64_t d, auto w) VT_INLINE_LAMBDA { one(d, load(dy + d, w), w); });
            continue;
        }
        angles_of_row(a, s, angles);
        for (int64_t head = 0; head < a.Dl; head += a.HD) {
            each_block(a.HD, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
                one(head + d, turned_back(dy + head, angles, a.HD, d, w), w);
            });
        }
    }
}

template <bool kAffine, typename H, typename Y>
void fill_norm_of(kernel::Table& t, int h, int y) {
    t.norm_fwd[kAffine ? 1 : 0][h][y] = norm_fwd<kAffine, H, Y>;
    t.norm_bwd[kAffine ? 1 : 0][h][y] = norm_bwd<kAffine, H, Y>;
}

}  // namespace

void fill_norm(kernel::Table& t) {
    using kernel::kBF16;
    using kernel::kF32;
    fill_norm_of<false, float, float>(t, kF32, kF32);
    fill_norm_of<false, float, uint16_t>(t, kF32, kBF16);
    fill_norm_of<false, uint16_t, float>(t, kBF16, kF32);
    fill_norm_of<false, uint16_t, uint16_t>(t, kBF16, kBF16);
    fill_norm_of<true, float, float>(t, kF32, kF32);
    fill_norm_of<true, float, uint16_t>(t, kF32, kBF16);
    fill_norm_of<true, uint16_t, float>(t, kBF16, kF32);
    fill_norm_of<true, uint16_t, uint16_t>(t, kBF16, kBF16);
    t.row_sumsq[kF32] = row_sumsq<float>;
    t.row_sumsq[kBF16] = row_sumsq<uint16_t>;
    t.qknorm_fwd[kF32] = qknorm_fwd<float>;
    t.qknorm_fwd[kBF16] = qknorm_fwd<uint16_t>;
    t.qknorm_bwd_dot[kF32] = qknorm_bwd_dot<float>;
    t.qknorm_bwd_dot[kBF16] = qknorm_bwd_dot<uint16_t>;
    t.qknorm_bwd[kF32] = qknorm_bwd<float>;
    t.qknorm_bwd[kBF16] = qknorm_bwd<uint16_t>;
}

}  // namespace vt::VT_ISA
