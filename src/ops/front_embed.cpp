// SPDX-License-Identifier: MIT
// Front desk of ops/embed.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

namespace {

// Shape of the token rows of x (B,C,T,H,W); both tensors f64, or each f32 or bf16.
void check_patches(const Desk& desk, const CTensor& rows, const CTensor& x, Patch patch) {
    desk.rank("x", x, "(B,C,T,H,W)", 5);
    const int64_t T = x.shape[2], H = x.shape[3], W = x.shape[4];
    desk.rule(patch.t > 0 && T % patch.t == 0, "patch.t to divide T", patch.t, T);
    desk.rule(patch.h > 0 && H % patch.h == 0, "patch.h to divide H", patch.h, H);
    desk.rule(patch.w > 0 && W % patch.w == 0, "patch.w to divide W", patch.w, W);
    const int64_t n = x.shape[0] * (T / patch.t) * (H / patch.h) * (W / patch.w);
    const DTypes any = floats(wide(x.dtype));
    desk.tensor("x", x, "(B,C,T,H,W)", x.shape, any);
    desk.tensor("rows", rows, "(B*gt*gh*gw,C*pt*ph*pw)", {n, x.shape[1] * patch.volume()}, any);
}

}  // namespace

void patchify(const Ctx& ctx, Tensor rows, CTensor x, Patch patch, PatchOrder order) {
    const Desk desk(ctx, "patchify", ctx.ops == nullptr || ctx.ops->patchify == nullptr);
    check_patches(desk, rows, x, patch);
    const Counted counted(ctx, "patchify", {.bytes = bytes(x) + bytes(rows)});
    ctx.ops->patchify(ctx, rows, x, patch, order);
}

void unpatchify(const Ctx& ctx, Tensor x, CTensor rows, Patch patch, PatchOrder order) {
    const Desk desk(ctx, "unpatchify", ctx.ops == nullptr || ctx.ops->unpatchify == nullptr);
    check_patches(desk, rows, x, patch);
    const Counted counted(ctx, "unpatchify", {.bytes = bytes(x) + bytes(rows)});
    ctx.ops->unpatchify(ctx, x, rows, patch, order);
}

void sinusoid(const Ctx& ctx, Tensor out, CTensor t) {
    const Desk desk(ctx, "sinusoid", ctx.ops == nullptr || ctx.ops->sinusoid == nullptr);
    desk.rank("out", out, "(B,n)", 2);
    const int64_t B = out.shape[0], n = out.shape[1];
    desk.tensor("out", out, "(B,n)", {B, n}, kF32OrF64);
    desk.tensor("t", t, "(B)", {B}, only(out.dtype));
    desk.rule(n % 2 == 0, "n even; B and n are", B, n);
    const Counted counted(ctx, "sinusoid", {.flop = 2 * count(out), .bytes = bytes(out)});
    ctx.ops->sinusoid(ctx, out, t);
}

}  // namespace vt
