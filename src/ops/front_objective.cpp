// SPDX-License-Identifier: MIT
// Front desk of ops/objective.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

void flow_noise(const Ctx& ctx, Tensor xt, Tensor target, CTensor x0, CTensor mix, CTensor ids,
                uint64_t seed, Purpose purpose) {
    const Desk desk(ctx, "flow_noise", ctx.ops == nullptr || ctx.ops->flow_noise == nullptr);
    desk.rank("x0", x0, "(B,C,T,H,W)", 5);
    const DTypes stat = only(wide(x0.dtype));
    const int64_t B = x0.shape[0];
    desk.tensor("x0", x0, "(B,C,T,H,W)", x0.shape, kAnyFloat);
    desk.tensor("xt", xt, "(B,C,T,H,W)", x0.shape, stat);
    desk.tensor("target", target, "(B,C,T,H,W)", x0.shape, stat);
    desk.tensor("mix", mix, "(B,4)", {B, 4}, stat);
    desk.tensor("ids", ids, "(B)", {B}, only(DType::kI64));
    const Counted counted(ctx, "flow_noise",
                          {.flop = 6 * count(x0), .bytes = bytes(x0) + bytes(xt) + bytes(target)});
    ctx.ops->flow_noise(ctx, xt, target, x0, mix, ids, seed, purpose);
}

void flow_loss(const Ctx& ctx, Tensor dv, Tensor sse, CTensor v, CTensor target, CTensor coef) {
    const Desk desk(ctx, "flow_loss", ctx.ops == nullptr || ctx.ops->flow_loss == nullptr);
    desk.rank("v", v, "(B,C,T,H,W)", 5);
    const DTypes stat = only(wide(v.dtype));
    const int64_t B = v.shape[0];
    desk.tensor("v", v, "(B,C,T,H,W)", v.shape, stat);
    desk.tensor("target", target, "(B,C,T,H,W)", v.shape, stat);
    desk.optional("dv", dv, "(B,C,T,H,W)", v.shape, stat);
    desk.tensor("sse", sse, "(B)", {B}, only(DType::kF64));
    desk.tensor("coef", coef, "(B)", {B}, stat);
    const Counted counted(ctx, "flow_loss",
                          {.flop = 3 * count(v) + (dv.present() ? count(v) : 0),
                           .bytes = bytes(v) + bytes(target) + bytes(dv)});
    ctx.ops->flow_loss(ctx, dv, sse, v, target, coef);
}

}  // namespace vt
