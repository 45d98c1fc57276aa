// SPDX-License-Identifier: MIT
// Front desk of ops/pointwise.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

namespace {

// The gate slice j of mod (n_mod,J,D), where there is one.
void check_gate(const Desk& desk, const CTensor& mod, int j, const Segments& seg, int64_t S,
                int64_t D, DTypes stat) {
    desk.segments("seg", seg, "S", S);
    if (!mod.present()) return;
    desk.rank("mod", mod, "(n_mod,J,D)", 3);
    desk.tensor("mod", mod, "(n_mod,J,D)", {mod.shape[0], mod.shape[1], D}, stat);
    desk.rule(j >= 0 && j < mod.shape[1], "0 <= j < J", j, mod.shape[1]);
    desk.mod_rows(seg, mod.shape[0]);
}

double gate_bytes(const CTensor& mod) {
    return mod.present() ? static_cast<double>(mod.shape[0] * mod.shape[2]) * size(mod) : 0;
}

// (B,J,D), or (B,D) when every slice shares it.
void check_per_sample(const Desk& desk, const char* arg, const CTensor& t, const Shape& full,
                      DTypes stat) {
    if (t.present() && t.shape.rank == 2) {
        desk.tensor(arg, t, "(B,D)", {full[0], full[2]}, stat);
    } else {
        desk.tensor(arg, t, "(B,J,D)", full, stat);
    }
}

}  // namespace

void gate_residual_fwd(const Ctx& ctx, Tensor h, CTensor o, CTensor mod, int j,
                       const Segments& seg) {
    const Desk desk(ctx, "gate_residual_fwd",
                    ctx.ops == nullptr || ctx.ops->gate_residual_fwd == nullptr);
    desk.rank("h", h, "(S,D)", 2);
    const int64_t S = h.shape[0], D = h.shape[1];
    const DTypes stat = only(wide(h.dtype)), any = floats(wide(h.dtype));
    desk.tensor("h", h, "(S,D)", {S, D}, any);
    desk.tensor("o", o, "(S,D)", {S, D}, any);
    check_gate(desk, mod, j, seg, S, D, stat);
    const Counted counted(ctx, "gate_residual_fwd",
                          {.flop = (mod.present() ? 2 : 1) * count(h),
                           .bytes = 2 * bytes(h) + bytes(o) + gate_bytes(mod)});
    ctx.ops->gate_residual_fwd(ctx, h, o, mod, j, seg);
}

void gate_residual_bwd(const Ctx& ctx, Tensor dout, Tensor dmod, CTensor dh, CTensor o, CTensor mod,
                       int j, const Segments& seg) {
    const Desk desk(ctx, "gate_residual_bwd",
                    ctx.ops == nullptr || ctx.ops->gate_residual_bwd == nullptr);
    desk.rank("dh", dh, "(S,D)", 2);
    const int64_t S = dh.shape[0], D = dh.shape[1];
    const DTypes stat = only(wide(dh.dtype)), any = floats(wide(dh.dtype));
    desk.tensor("dh", dh, "(S,D)", {S, D}, stat);
    desk.tensor("dout", dout, "(S,D)", {S, D}, any);
    check_gate(desk, mod, j, seg, S, D, stat);
    if (mod.present()) {
        desk.tensor("o", o, "(S,D)", {S, D}, any);
        desk.tensor("dmod", dmod, "(n_mod,J,D)", mod.shape, stat);
    } else {
        desk.absent("o", o, "mod is absent");
        desk.absent("dmod", dmod, "mod is absent");
    }
    const Counted counted(
        ctx, "gate_residual_bwd",
        {.flop = mod.present() ? 3 * count(dh) : 0,
         .bytes = bytes(dh) + bytes(dout) + bytes(o) + gate_bytes(mod) + 2 * gate_bytes(dmod)});
    ctx.ops->gate_residual_bwd(ctx, dout, dmod, dh, o, mod, j, seg);
}

void silu_fwd(const Ctx& ctx, Tensor y, CTensor x) {
    const Desk desk(ctx, "silu_fwd", ctx.ops == nullptr || ctx.ops->silu_fwd == nullptr);
    desk.tensor("x", x, "(n...)", x.shape, kAnyFloat);
    desk.tensor("y", y, "(n...)", x.shape, kAnyFloat);
    const Counted counted(ctx, "silu_fwd", {.flop = 4 * count(x), .bytes = bytes(x) + bytes(y)});
    ctx.ops->silu_fwd(ctx, y, x);
}

void silu_bwd(const Ctx& ctx, Tensor dx, CTensor dy, CTensor x) {
    const Desk desk(ctx, "silu_bwd", ctx.ops == nullptr || ctx.ops->silu_bwd == nullptr);
    desk.tensor("x", x, "(n...)", x.shape, kAnyFloat);
    desk.tensor("dy", dy, "(n...)", x.shape, kAnyFloat);
    desk.tensor("dx", dx, "(n...)", x.shape, kF32OrF64);
    const Counted counted(ctx, "silu_bwd",
                          {.flop = 8 * count(x), .bytes = 2 * bytes(dx) + bytes(dy) + bytes(x)});
    ctx.ops->silu_bwd(ctx, dx, dy, x);
}

void modulation_fwd(const Ctx& ctx, Tensor out, CTensor table, CTensor p) {
    const Desk desk(ctx, "modulation_fwd",
                    ctx.ops == nullptr || ctx.ops->modulation_fwd == nullptr);
    desk.rank("out", out, "(B,J,D)", 3);
    const DTypes stat = only(out.dtype);
    desk.tensor("out", out, "(B,J,D)", out.shape, kF32OrF64);
    desk.tensor("table", table, "(J,D)", {out.shape[1], out.shape[2]}, stat);
    check_per_sample(desk, "p", p, out.shape, stat);
    const Counted counted(ctx, "modulation_fwd",
                          {.flop = count(out), .bytes = bytes(out) + bytes(table) + bytes(p)});
    ctx.ops->modulation_fwd(ctx, out, table, p);
}

void modulation_bwd(const Ctx& ctx, Tensor dtable, Tensor dp, CTensor dout) {
    const Desk desk(ctx, "modulation_bwd",
                    ctx.ops == nullptr || ctx.ops->modulation_bwd == nullptr);
    desk.rank("dout", dout, "(B,J,D)", 3);
    const DTypes stat = only(dout.dtype);
    desk.tensor("dout", dout, "(B,J,D)", dout.shape, kF32OrF64);
    desk.tensor("dtable", dtable, "(J,D)", {dout.shape[1], dout.shape[2]}, stat);
    check_per_sample(desk, "dp", dp, dout.shape, stat);
    const Counted counted(
        ctx, "modulation_bwd",
        {.flop = 2 * count(dout), .bytes = 2 * (bytes(dtable) + bytes(dp)) + bytes(dout)});
    ctx.ops->modulation_bwd(ctx, dtable, dp, dout);
}

void cast(const Ctx& ctx, Tensor y, CTensor x) {
    const Desk desk(ctx, "cast", ctx.ops == nullptr || ctx.ops->cast == nullptr);
    desk.tensor("x", x, "(n...)", x.shape, kAnyFloat);
    desk.tensor("y", y, "(n...)", x.shape, kAnyFloat);
    const Counted counted(ctx, "cast", {.bytes = bytes(x) + bytes(y)});
    ctx.ops->cast(ctx, y, x);
}

void fill(const Ctx& ctx, Tensor y, double value) {
    const Desk desk(ctx, "fill", ctx.ops == nullptr || ctx.ops->fill == nullptr);
    desk.tensor("y", y, "(n...)", y.shape,
                kAnyFloat | only(DType::kI64) | only(DType::kI32) | only(DType::kU8));
    const Counted counted(ctx, "fill", {.bytes = bytes(y)});
    ctx.ops->fill(ctx, y, value);
}

void add(const Ctx& ctx, Tensor y, CTensor x) {
    const Desk desk(ctx, "add", ctx.ops == nullptr || ctx.ops->add == nullptr);
    desk.tensor("y", y, "(n...)", y.shape, kF32OrF64);
    desk.tensor("x", x, "(n...)", y.shape, kAnyFloat);
    const Counted counted(ctx, "add", {.flop = count(y), .bytes = 2 * bytes(y) + bytes(x)});
    ctx.ops->add(ctx, y, x);
}

}  // namespace vt
