// SPDX-License-Identifier: MIT
// Front desk of ops/norm.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

namespace {

// Slices shift and scale of mod (n_mod,J,D) and the segments that choose its rows.
void check_mod(const Desk& desk, const CTensor& mod, ModIndex at, const Segments& seg, int64_t S,
               int64_t D, DTypes stat) {
    desk.rank("mod", mod, "(n_mod,J,D)", 3);
    const int64_t n_mod = mod.shape[0], J = mod.shape[1];
    desk.tensor("mod", mod, "(n_mod,J,D)", {n_mod, J, D}, stat);
    desk.rule(at.shift >= 0 && at.shift < J, "0 <= at.shift < J", at.shift, J);
    desk.rule(at.scale >= 0 && at.scale < J, "0 <= at.scale < J", at.scale, J);
    desk.segments("seg", seg, "S", S);
    desk.mod_rows(seg, n_mod);
}

// Shift and scale of every modulation row.
double slice_bytes(const CTensor& mod) {
    return 2 * static_cast<double>(mod.shape[0] * mod.shape[2]) * size(mod);
}

// Tables fit the head and pos the rows, where there is a rotation.
void check_rope(const Desk& desk, const Rope& rope, int64_t S, int64_t Dl, int64_t HD,
                DTypes stat) {
    desk.rule(HD > 0 && Dl % HD == 0, "HD > 0 and HD divides Dl", HD, Dl);
    if (!rope.pos.present()) return;
    desk.tensor("rope.pos", rope.pos, "(S,3)", {S, 3}, only(DType::kI32));
    int64_t n = 0;
    const auto table = [&](const char* arg, const CTensor& cs) {
        desk.rank(arg, cs, "(positions,n/2,2)", 3);
        desk.tensor(arg, cs, "(positions,n/2,2)", {cs.shape[0], cs.shape[1], 2}, stat);
        n += 2 * cs.shape[1];
    };
    table("rope.cs_t", rope.cs_t);
    table("rope.cs_h", rope.cs_h);
    table("rope.cs_w", rope.cs_w);
    desk.rule(n == HD, "n_t + n_h + n_w == HD", n, HD);
}

}  // namespace

void modnorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor mod,
                 ModIndex at, const Segments& seg, double eps) {
    const Desk desk(ctx, "modnorm_fwd", ctx.ops == nullptr || ctx.ops->modnorm_fwd == nullptr);
    desk.rank("h", h, "(S,D)", 2);
    const int64_t S = h.shape[0], D = h.shape[1];
    const DTypes stat = only(wide(h.dtype)), any = floats(wide(h.dtype));
    desk.tensor("h", h, "(S,D)", {S, D}, any);
    desk.tensor("y", y, "(S,D)", {S, D}, any);
    desk.tensor("mean", mean, "(S)", {S}, stat);
    desk.tensor("rstd", rstd, "(S)", {S}, stat);
    check_mod(desk, mod, at, seg, S, D, stat);
    const Counted counted(
        ctx, "modnorm_fwd",
        {.flop = 8 * count(h),
         .bytes = bytes(h) + bytes(y) + bytes(mean) + bytes(rstd) + slice_bytes(mod)});
    ctx.ops->modnorm_fwd(ctx, y, mean, rstd, h, mod, at, seg, eps);
}

void modnorm_bwd(const Ctx& ctx, Tensor dh, Tensor dmod, CTensor dy, CTensor h, CTensor mean,
                 CTensor rstd, CTensor mod, ModIndex at, const Segments& seg) {
    const Desk desk(ctx, "modnorm_bwd", ctx.ops == nullptr || ctx.ops->modnorm_bwd == nullptr);
    desk.rank("h", h, "(S,D)", 2);
    const int64_t S = h.shape[0], D = h.shape[1];
    const DTypes stat = only(wide(h.dtype)), any = floats(wide(h.dtype));
    desk.tensor("h", h, "(S,D)", {S, D}, any);
    desk.tensor("dh", dh, "(S,D)", {S, D}, stat);
    desk.tensor("dy", dy, "(S,D)", {S, D}, any);
    desk.tensor("mean", mean, "(S)", {S}, stat);
    desk.tensor("rstd", rstd, "(S)", {S}, stat);
    check_mod(desk, mod, at, seg, S, D, stat);
    desk.tensor("dmod", dmod, "(n_mod,J,D)", mod.shape, stat);
    // xh, g, two dots, dh, two column sums
    const Counted counted(ctx, "modnorm_bwd",
                          {.flop = 15 * count(h),
                           .bytes = 2 * bytes(dh) + bytes(dy) + bytes(h) + bytes(mean) +
                                    bytes(rstd) + slice_bytes(mod) / 2 + 2 * slice_bytes(dmod)});
    ctx.ops->modnorm_bwd(ctx, dh, dmod, dy, h, mean, rstd, mod, at, seg);
}

void layernorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor w,
                   CTensor b, double eps) {
    const Desk desk(ctx, "layernorm_fwd", ctx.ops == nullptr || ctx.ops->layernorm_fwd == nullptr);
    desk.rank("h", h, "(S,D)", 2);
    const int64_t S = h.shape[0], D = h.shape[1];
    const DTypes stat = only(wide(h.dtype)), any = floats(wide(h.dtype));
    desk.tensor("h", h, "(S,D)", {S, D}, any);
    desk.tensor("y", y, "(S,D)", {S, D}, any);
    desk.tensor("mean", mean, "(S)", {S}, stat);
    desk.tensor("rstd", rstd, "(S)", {S}, stat);
    desk.tensor("w", w, "(D)", {D}, stat);
    desk.tensor("b", b, "(D)", {D}, stat);
    const Counted counted(
        ctx, "layernorm_fwd",
        {.flop = 8 * count(h),
         .bytes = bytes(h) + bytes(y) + bytes(mean) + bytes(rstd) + bytes(w) + bytes(b)});
    ctx.ops->layernorm_fwd(ctx, y, mean, rstd, h, w, b, eps);
}

void layernorm_bwd(const Ctx& ctx, Tensor dh, Tensor dw, Tensor db, CTensor dy, CTensor h,
                   CTensor mean, CTensor rstd, CTensor w) {
    const Desk desk(ctx, "layernorm_bwd", ctx.ops == nullptr || ctx.ops->layernorm_bwd == nullptr);
    desk.rank("h", h, "(S,D)", 2);
    const int64_t S = h.shape[0], D = h.shape[1];
    const DTypes stat = only(wide(h.dtype)), any = floats(wide(h.dtype));
    desk.tensor("h", h, "(S,D)", {S, D}, any);
    desk.tensor("dh", dh, "(S,D)", {S, D}, stat);
    desk.tensor("dw", dw, "(D)", {D}, stat);
    desk.tensor("db", db, "(D)", {D}, stat);
    desk.tensor("dy", dy, "(S,D)", {S, D}, any);
    desk.tensor("mean", mean, "(S)", {S}, stat);
    desk.tensor("rstd", rstd, "(S)", {S}, stat);
    desk.tensor("w", w, "(D)", {D}, stat);
    const Counted counted(ctx, "layernorm_bwd",
                          {.flop = 15 * count(h),
                           .bytes = 2 * (bytes(dh) + bytes(dw) + bytes(db)) + bytes(dy) + bytes(h) +
                                    bytes(mean) + bytes(rstd) + bytes(w)});
    ctx.ops->layernorm_bwd(ctx, dh, dw, db, dy, h, mean, rstd, w);
}

void row_sumsq(const Ctx& ctx, Tensor ssq, CTensor x) {
    const Desk desk(ctx, "row_sumsq", ctx.ops == nullptr || ctx.ops->row_sumsq == nullptr);
    desk.rank("x", x, "(S,Dl)", 2);
    desk.tensor("x", x, "(S,Dl)", x.shape, kAnyFloat);
    desk.tensor("ssq", ssq, "(S)", {x.shape[0]}, only(wide(x.dtype)));
    const Counted counted(ctx, "row_sumsq", {.flop = 2 * count(x), .bytes = bytes(x) + bytes(ssq)});
    ctx.ops->row_sumsq(ctx, ssq, x);
}

void qknorm_rope_fwd(const Ctx& ctx, Tensor y, CTensor x, CTensor ssq, CTensor w, const Rope& rope,
                     int64_t HD, int64_t D_global, double eps) {
    const Desk desk(ctx, "qknorm_rope_fwd",
                    ctx.ops == nullptr || ctx.ops->qknorm_rope_fwd == nullptr);
    desk.rank("x", x, "(S,Dl)", 2);
    const int64_t S = x.shape[0], Dl = x.shape[1];
    const DTypes stat = only(wide(x.dtype));
    desk.tensor("x", x, "(S,Dl)", {S, Dl}, kAnyFloat);
    desk.tensor("y", y, "(S,Dl)", {S, Dl}, only(x.dtype));
    desk.tensor("ssq", ssq, "(S)", {S}, stat);
    desk.tensor("w", w, "(Dl)", {Dl}, stat);
    check_rope(desk, rope, S, Dl, HD, stat);
    desk.rule(D_global >= Dl, "D_global >= Dl", D_global, Dl);
    const Counted counted(ctx, "qknorm_rope_fwd",
                          {.flop = 6 * count(x),
                           .bytes = bytes(x) + bytes(y) + bytes(ssq) + bytes(w) + bytes(rope.pos)});
    ctx.ops->qknorm_rope_fwd(ctx, y, x, ssq, w, rope, HD, D_global, eps);
}

void qknorm_rope_bwd_dot(const Ctx& ctx, Tensor dot, CTensor dy, CTensor x, CTensor w,
                         const Rope& rope, int64_t HD) {
    const Desk desk(ctx, "qknorm_rope_bwd_dot",
                    ctx.ops == nullptr || ctx.ops->qknorm_rope_bwd_dot == nullptr);
    desk.rank("x", x, "(S,Dl)", 2);
    const int64_t S = x.shape[0], Dl = x.shape[1];
    const DTypes stat = only(wide(x.dtype));
    desk.tensor("x", x, "(S,Dl)", {S, Dl}, kAnyFloat);
    desk.tensor("dy", dy, "(S,Dl)", {S, Dl}, only(x.dtype));
    desk.tensor("dot", dot, "(S)", {S}, stat);
    desk.tensor("w", w, "(Dl)", {Dl}, stat);
    check_rope(desk, rope, S, Dl, HD, stat);
    const Counted counted(
        ctx, "qknorm_rope_bwd_dot",
        {.flop = 6 * count(x),
         .bytes = bytes(x) + bytes(dy) + bytes(dot) + bytes(w) + bytes(rope.pos)});
    ctx.ops->qknorm_rope_bwd_dot(ctx, dot, dy, x, w, rope, HD);
}

void qknorm_rope_bwd(const Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor ssq,
                     CTensor dot, CTensor w, const Rope& rope, int64_t HD, int64_t D_global,
                     double eps) {
    const Desk desk(ctx, "qknorm_rope_bwd",
                    ctx.ops == nullptr || ctx.ops->qknorm_rope_bwd == nullptr);
    desk.rank("x", x, "(S,Dl)", 2);
    const int64_t S = x.shape[0], Dl = x.shape[1];
    const DTypes stat = only(wide(x.dtype));
    desk.tensor("x", x, "(S,Dl)", {S, Dl}, kAnyFloat);
    desk.tensor("dx", dx, "(S,Dl)", {S, Dl}, only(x.dtype));
    desk.tensor("dw", dw, "(Dl)", {Dl}, stat);
    desk.tensor("dy", dy, "(S,Dl)", {S, Dl}, only(x.dtype));
    desk.tensor("ssq", ssq, "(S)", {S}, stat);
    desk.tensor("dot", dot, "(S)", {S}, stat);
    desk.tensor("w", w, "(Dl)", {Dl}, stat);
    check_rope(desk, rope, S, Dl, HD, stat);
    desk.rule(D_global >= Dl, "D_global >= Dl", D_global, Dl);
    const Counted counted(ctx, "qknorm_rope_bwd",
                          {.flop = 12 * count(x),
                           .bytes = bytes(dx) + 2 * bytes(dw) + bytes(dy) + bytes(x) + bytes(ssq) +
                                    bytes(dot) + bytes(w) + bytes(rope.pos)});
    ctx.ops->qknorm_rope_bwd(ctx, dx, dw, dy, x, ssq, dot, w, rope, HD, D_global, eps);
}

}  // namespace vt
