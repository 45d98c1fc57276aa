// SPDX-License-Identifier: MIT
// Front desk of ops/linear.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

void linear_fwd(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b, Epilogue f) {
    const Desk desk(ctx, "linear_fwd", ctx.ops == nullptr || ctx.ops->linear_fwd == nullptr);
    desk.rank("x", x, "(S,K)", 2);
    desk.rank("w", w, "(N,K)", 2);
    const int64_t S = x.shape[0], K = x.shape[1], N = w.shape[0];
    const DType stat = wide(x.dtype);
    desk.tensor("x", x, "(S,K)", {S, K}, kAnyFloat);
    desk.tensor("w", w, "(N,K)", {N, K}, only(x.dtype));
    desk.optional("b", b, "(N)", {N}, only(stat));
    desk.tensor("y", y, "(S,N)", {S, N}, only(x.dtype) | only(stat));
    if (f == Epilogue::kGelu) {
        desk.tensor("pre", pre, "(S,N)", {S, N}, only(x.dtype));
    } else {
        desk.absent("pre", pre, "the epilogue is none");
    }
    Cost cost = linear_cost(S, N, K, size_of(x.dtype), size_of(y.dtype));
    cost.bytes += bytes(pre) + bytes(b);
    const Counted counted(ctx, "linear_fwd", cost);
    ctx.ops->linear_fwd(ctx, y, pre, x, w, b, f);
}

void linear_bwd_input(const Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor pre, Epilogue f,
                      bool accumulate) {
    const Desk desk(ctx, "linear_bwd_input",
                    ctx.ops == nullptr || ctx.ops->linear_bwd_input == nullptr);
    desk.rank("dy", dy, "(S,N)", 2);
    desk.rank("w", w, "(N,K)", 2);
    const int64_t S = dy.shape[0], N = dy.shape[1], K = w.shape[1];
    const DType stat = wide(dy.dtype);
    desk.tensor("dy", dy, "(S,N)", {S, N}, kAnyFloat);
    desk.tensor("w", w, "(N,K)", {N, K}, only(dy.dtype));
    desk.tensor("dx", dx, "(S,K)", {S, K}, accumulate ? only(stat) : only(dy.dtype) | only(stat));
    if (f == Epilogue::kGelu) {
        desk.tensor("pre", pre, "(S,K)", {S, K}, only(dy.dtype));
    } else {
        desk.absent("pre", pre, "the epilogue is none");
    }
    Cost cost = linear_cost(S, K, N, size_of(dy.dtype), size_of(dx.dtype));
    cost.bytes += bytes(pre) + (accumulate ? bytes(dx) : 0);
    const Counted counted(ctx, "linear_bwd_input", cost);
    ctx.ops->linear_bwd_input(ctx, dx, dy, w, pre, f, accumulate);
}

void linear_bwd_weight(const Ctx& ctx, Tensor dw, Tensor db, CTensor dy, CTensor x) {
    const Desk desk(ctx, "linear_bwd_weight",
                    ctx.ops == nullptr || ctx.ops->linear_bwd_weight == nullptr);
    desk.rank("dy", dy, "(S,N)", 2);
    desk.rank("x", x, "(S,K)", 2);
    const int64_t S = dy.shape[0], N = dy.shape[1], K = x.shape[1];
    const DType stat = wide(dy.dtype);
    desk.tensor("dy", dy, "(S,N)", {S, N}, kAnyFloat);
    desk.tensor("x", x, "(S,K)", {S, K}, only(dy.dtype));
    desk.tensor("dw", dw, "(N,K)", {N, K}, only(stat));
    desk.optional("db", db, "(N)", {N}, only(stat));
    const double flop = 2 * count(dy) * static_cast<double>(K);
    const Cost cost{.flop = flop + (db.present() ? count(dy) : 0),
                    .matmul = flop,
                    .bytes = bytes(dy) + bytes(x) + 2 * bytes(dw) + 2 * bytes(db)};
    const Counted counted(ctx, "linear_bwd_weight", cost);
    ctx.ops->linear_bwd_weight(ctx, dw, db, dy, x);
}

}  // namespace vt
