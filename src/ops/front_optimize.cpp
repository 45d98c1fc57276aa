// SPDX-License-Identifier: MIT
// Front desk of ops/optimize.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

void adamw(const Ctx& ctx, Tensor p, Tensor m, Tensor v, Tensor low, CTensor g, CTensor scalars,
           const AdamW& hyper) {
    const Desk desk(ctx, "adamw", ctx.ops == nullptr || ctx.ops->adamw == nullptr);
    const DTypes stat = only(p.dtype);
    desk.tensor("p", p, "(n)", p.shape, kF32OrF64);
    desk.tensor("m", m, "(n)", p.shape, stat);
    desk.tensor("v", v, "(n)", p.shape, stat);
    desk.optional("low", low, "(n)", p.shape, only(DType::kBF16));
    desk.tensor("g", g, "(n)", p.shape, stat);
    desk.tensor("scalars", scalars, "(kNumStepScalars)", {kNumStepScalars}, stat);
    const Counted counted(ctx, "adamw",
                          {.flop = 14 * count(p), .bytes = 7 * bytes(p) + bytes(low)});
    ctx.ops->adamw(ctx, p, m, v, low, g, scalars, hyper);
}

void sumsq(const Ctx& ctx, Tensor sum, CTensor x) {
    const Desk desk(ctx, "sumsq", ctx.ops == nullptr || ctx.ops->sumsq == nullptr);
    desk.tensor("sum", sum, "(1)", {1}, only(DType::kF64));
    desk.tensor("x", x, "(n)", x.shape, kF32OrF64);
    const Counted counted(ctx, "sumsq", {.flop = 2 * count(x), .bytes = bytes(x)});
    ctx.ops->sumsq(ctx, sum, x);
}

void ema_update(const Ctx& ctx, Tensor e, CTensor p, CTensor decay, CTensor scalars) {
    const Desk desk(ctx, "ema_update", ctx.ops == nullptr || ctx.ops->ema_update == nullptr);
    const DTypes stat = only(e.dtype);
    desk.tensor("e", e, "(n)", e.shape, kF32OrF64);
    desk.tensor("p", p, "(n)", e.shape, stat);
    desk.tensor("decay", decay, "(1)", {1}, stat);
    desk.tensor("scalars", scalars, "(kNumStepScalars)", {kNumStepScalars}, stat);
    const Counted counted(ctx, "ema_update",
                          {.flop = 3 * count(e), .bytes = 2 * bytes(e) + bytes(p)});
    ctx.ops->ema_update(ctx, e, p, decay, scalars);
}

}  // namespace vt
