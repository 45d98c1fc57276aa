// SPDX-License-Identifier: MIT
// ops/norm.h on the CPU: rows are cut into tasks, sums over rows into pieces of a fixed order.
#include "cpu/rows.h"

namespace vt::rows {
namespace {

// All rows as one segment, for sums that do not depend on the sample.
struct OneSegment {
    std::array<int64_t, 2> begin;
    int64_t mod_row = 0;
    explicit OneSegment(int64_t S) : begin{0, S} {}
    [[nodiscard]] Segments segments() const { return {1, begin.data(), &mod_row}; }
};

struct Modulation {
    const float* base;
    int64_t J, D;
    explicit Modulation(CTensor mod) : base(mod.as<float>()), J(mod.shape[1]), D(mod.shape[2]) {}
    [[nodiscard]] const float* slice(int64_t m, int j) const { return base + (m * J + j) * D; }
};

kernel::NormFwd norm_fwd_args(Tensor y, Tensor mean, Tensor rstd, CTensor h, double eps) {
    kernel::NormFwd a{};
    a.y = y.data;
    a.mean = mean.as<float>();
    a.rstd = rstd.as<float>();
    a.h = h.data;
    a.D = h.shape[1];
    a.eps = static_cast<float>(eps);
    return a;
}

kernel::NormBwd norm_bwd_args(Tensor dh, CTensor dy, CTensor h, CTensor mean, CTensor rstd) {
    kernel::NormBwd a{};
    a.dh = dh.as<float>();
    a.dy = dy.data;
    a.h = h.data;
    a.mean = mean.as<float>();
    a.rstd = rstd.as<float>();
    a.D = h.shape[1];
    return a;
}

}  // namespace

void modnorm_fwd(const Table& k, const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h,
                 CTensor mod, ModIndex at, const Segments& seg, double eps) {
    const auto kernel =
        k.norm_fwd[0][type_of(h.dtype, "modnorm_fwd")][type_of(y.dtype, "modnorm_fwd")];
    const kernel::NormFwd args = norm_fwd_args(y, mean, rstd, h, eps);
    const Modulation m(mod);
    each_rows(ctx, h.shape[0], args.D, [&](int64_t begin, int64_t end, int /*thread*/) {
        each_segment(seg, begin, end, [&](int64_t row, int64_t b, int64_t e) {
            kernel::NormFwd a = args;
            a.shift = m.slice(row, at.shift);
            a.scale = m.slice(row, at.scale);
            kernel(a, b, e);
        });
    });
}

void modnorm_bwd(const Table& k, const Ctx& ctx, Tensor dh, Tensor dmod, CTensor dy, CTensor h,
                 CTensor mean, CTensor rstd, CTensor mod, ModIndex at, const Segments& seg) {
    const auto kernel =
        k.norm_bwd[0][type_of(h.dtype, "modnorm_bwd")][type_of(dy.dtype, "modnorm_bwd")];
    const kernel::NormBwd args = norm_bwd_args(dh, dy, h, mean, rstd);
    const Modulation m(mod);
    const int64_t D = args.D;
    float* sums = scratch(ctx, 0, kSlots * 2 * D, "modnorm_bwd");
    float* out = dmod.as<float>();
    in_waves(
        ctx, seg,
        [&](const Piece& piece, int64_t slot, int /*thread*/) {
            kernel::NormBwd a = args;
            a.scale = m.slice(piece.mod_row, at.scale);
            a.dshift = sums + slot * 2 * D;
            a.dscale = a.dshift + D;
            kernel(a, piece.begin, piece.end);
        },
        [&](int64_t first, int64_t last, int64_t row) {
            float* base = out + row * m.J * D;
            add_slots(k, ctx, base + at.shift * D, sums, 2 * D, first, last, D);
            add_slots(k, ctx, base + at.scale * D, sums + D, 2 * D, first, last, D);
        });
}

void layernorm_fwd(const Table& k, const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h,
                   CTensor w, CTensor b, double eps) {
    const auto kernel =
        k.norm_fwd[1][type_of(h.dtype, "layernorm_fwd")][type_of(y.dtype, "layernorm_fwd")];
    kernel::NormFwd a = norm_fwd_args(y, mean, rstd, h, eps);
    a.scale = w.as<float>();
    a.shift = b.as<float>();
    each_rows(ctx, h.shape[0], a.D,
              [&](int64_t begin, int64_t end, int /*thread*/) { kernel(a, begin, end); });
}

void layernorm_bwd(const Table& k, const Ctx& ctx, Tensor dh, Tensor dw, Tensor db, CTensor dy,
                   CTensor h, CTensor mean, CTensor rstd, CTensor w) {
    const auto kernel =
        k.norm_bwd[1][type_of(h.dtype, "layernorm_bwd")][type_of(dy.dtype, "layernorm_bwd")];
    kernel::NormBwd args = norm_bwd_args(dh, dy, h, mean, rstd);
    args.scale = w.as<float>();
    const int64_t D = args.D;
    float* sums = scratch(ctx, 0, kSlots * 2 * D, "layernorm_bwd");
    in_waves(
        ctx, OneSegment(h.shape[0]).segments(),
        [&](const Piece& piece, int64_t slot, int /*thread*/) {
            kernel::NormBwd a = args;
            a.dshift = sums + slot * 2 * D;
            a.dscale = a.dshift + D;
            kernel(a, piece.begin, piece.end);
        },
        [&](int64_t first, int64_t last, int64_t /*row*/) {
            add_slots(k, ctx, db.as<float>(), sums, 2 * D, first, last, D);
            add_slots(k, ctx, dw.as<float>(), sums + D, 2 * D, first, last, D);
        });
}

void row_sumsq(const Table& k, const Ctx& ctx, Tensor ssq, CTensor x) {
    const auto kernel = k.row_sumsq[type_of(x.dtype, "row_sumsq")];
    const int64_t D = x.shape[1];
    each_rows(ctx, x.shape[0], D, [&](int64_t begin, int64_t end, int /*thread*/) {
        kernel(ssq.as<float>(), x.data, D, begin, end);
    });
}

namespace {

kernel::QkNorm qknorm_args(CTensor x, CTensor w, const Rope& rope, int64_t HD) {
    kernel::QkNorm a{};
    a.x = x.data;
    a.w = w.as<float>();
    a.Dl = x.shape[1];
    a.HD = HD;
    if (rope.pos.present()) {
        int axis = 0;
        for (const CTensor& cs : {rope.cs_t, rope.cs_h, rope.cs_w}) {
            a.cs[axis] = cs.as<float>();
            a.n[axis] = 2 * cs.shape[1];
            ++axis;
        }
        a.pos = rope.pos.as<int32_t>();
    }
    return a;
}

// Angles of one head, each thread its own; they lie behind the sums of the backward.
float* angles_of(const Ctx& ctx, int64_t HD, int64_t before, const char* op) {
    return scratch(ctx, before, ctx.pool->threads() * 2 * HD, op);
}

}  // namespace

void qknorm_rope_fwd(const Table& k, const Ctx& ctx, Tensor y, CTensor x, CTensor ssq, CTensor w,
                     const Rope& rope, int64_t HD, int64_t D_global, double eps) {
    const auto kernel = k.qknorm_fwd[type_of(x.dtype, "qknorm_rope_fwd")];
    kernel::QkNorm a = qknorm_args(x, w, rope, HD);
    a.y = y.data;
    a.ssq = ssq.as<float>();
    a.D_global = static_cast<double>(D_global);
    a.eps = eps;
    float* angles = angles_of(ctx, HD, 0, "qknorm_rope_fwd");
    each_rows(ctx, x.shape[0], a.Dl, [&](int64_t begin, int64_t end, int thread) {
        kernel(a, angles + thread * 2 * HD, begin, end);
    });
}

void qknorm_rope_bwd_dot(const Table& k, const Ctx& ctx, Tensor dot, CTensor dy, CTensor x,
                         CTensor w, const Rope& rope, int64_t HD) {
    const auto kernel = k.qknorm_bwd_dot[type_of(x.dtype, "qknorm_rope_bwd_dot")];
    kernel::QkNorm a = qknorm_args(x, w, rope, HD);
    a.dot = dot.as<float>();
    a.dy = dy.data;
    float* angles = angles_of(ctx, HD, 0, "qknorm_rope_bwd_dot");
    each_rows(ctx, x.shape[0], a.Dl, [&](int64_t begin, int64_t end, int thread) {
        kernel(a, angles + thread * 2 * HD, begin, end);
    });
}

void qknorm_rope_bwd(const Table& k, const Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x,
                     CTensor ssq, CTensor dot, CTensor w, const Rope& rope, int64_t HD,
                     int64_t D_global, double eps) {
    const auto kernel = k.qknorm_bwd[type_of(x.dtype, "qknorm_rope_bwd")];
    kernel::QkNorm args = qknorm_args(x, w, rope, HD);
    args.y = dx.data;
    args.dy = dy.data;
    args.ssq = ssq.as<float>();
    args.dots = dot.as<float>();
    args.D_global = static_cast<double>(D_global);
    args.eps = eps;
    const int64_t D = args.Dl;
    float* sums = scratch(ctx, 0, kSlots * D, "qknorm_rope_bwd");
    float* angles = angles_of(ctx, HD, kSlots * D, "qknorm_rope_bwd");
    in_waves(
        ctx, OneSegment(x.shape[0]).segments(),
        [&](const Piece& piece, int64_t slot, int thread) {
            kernel::QkNorm a = args;
            a.dw = sums + slot * D;
            kernel(a, angles + thread * 2 * HD, piece.begin, piece.end);
        },
        [&](int64_t first, int64_t last, int64_t /*row*/) {
            add_slots(k, ctx, dw.as<float>(), sums, D, first, last, D);
        });
}

}  // namespace vt::rows
