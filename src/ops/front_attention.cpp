// SPDX-License-Identifier: MIT
// Front desk of ops/attention.h. Floor 1.
#include "ops/front.h"

namespace vt {

using namespace front;

namespace {

// What forward and backward share: q (Sq,D), k and v (Sk,D), heads divide D, segments fit.
void check_qkv(const Desk& desk, const CTensor& q, const CTensor& k, const CTensor& v,
               const Segments& qseg, const Segments& kseg, int64_t NH) {
    desk.rank("q", q, "(Sq,NH*HD)", 2);
    desk.rank("k", k, "(Sk,NH*HD)", 2);
    const int64_t Sq = q.shape[0], Sk = k.shape[0], D = q.shape[1];
    desk.rule(NH > 0 && D % NH == 0, "NH > 0 and NH divides NH*HD (q's width)", NH, D);
    desk.tensor("q", q, "(Sq,NH*HD)", {Sq, D}, kAnyFloat);
    desk.tensor("k", k, "(Sk,NH*HD)", {Sk, D}, only(q.dtype));
    desk.tensor("v", v, "(Sk,NH*HD)", {Sk, D}, only(q.dtype));
    desk.segments("qseg", qseg, "Sq", Sq);
    desk.segments("kseg", kseg, "Sk", Sk);
    desk.rule(qseg.n == kseg.n, "qseg.n == kseg.n", qseg.n, kseg.n);
    for (int64_t i = 0; i < qseg.n; ++i) {
        const bool queries = qseg.begin[i + 1] > qseg.begin[i];
        desk.rule(!queries || kseg.begin[i + 1] > kseg.begin[i],
                  "a segment with queries to have keys; segment and its key rows are", i,
                  kseg.begin[i + 1] - kseg.begin[i]);
    }
}

}  // namespace

void attention_fwd(const Ctx& ctx, Tensor o, Tensor lse, CTensor q, CTensor k, CTensor v,
                   const Segments& qseg, const Segments& kseg, int64_t NH, double scale) {
    const Desk desk(ctx, "attention_fwd", ctx.ops == nullptr || ctx.ops->attention_fwd == nullptr);
    check_qkv(desk, q, k, v, qseg, kseg, NH);
    const int64_t Sq = q.shape[0], D = q.shape[1];
    desk.tensor("o", o, "(Sq,NH*HD)", {Sq, D}, only(q.dtype));
    desk.tensor("lse", lse, "(Sq,NH)", {Sq, NH}, only(wide(q.dtype)));
    const Counted counted(
        ctx, "attention_fwd",
        attention_cost(segment_pairs(qseg, kseg), Sq, k.shape[0], D, size_of(q.dtype), false));
    ctx.ops->attention_fwd(ctx, o, lse, q, k, v, qseg, kseg, NH, scale);
}

void attention_delta(const Ctx& ctx, Tensor delta, CTensor dout, CTensor o, int64_t NH) {
    const Desk desk(ctx, "attention_delta",
                    ctx.ops == nullptr || ctx.ops->attention_delta == nullptr);
    desk.rank("dout", dout, "(Sq,NH*HD)", 2);
    const int64_t Sq = dout.shape[0], D = dout.shape[1];
    desk.rule(NH > 0 && D % NH == 0, "NH > 0 and NH divides NH*HD (dout's width)", NH, D);
    desk.tensor("dout", dout, "(Sq,NH*HD)", {Sq, D}, kAnyFloat);
    desk.tensor("o", o, "(Sq,NH*HD)", {Sq, D}, only(dout.dtype));
    desk.tensor("delta", delta, "(Sq,NH)", {Sq, NH}, only(wide(dout.dtype)));
    const Counted counted(
        ctx, "attention_delta",
        {.flop = 2 * count(dout), .bytes = bytes(dout) + bytes(o) + bytes(delta)});
    ctx.ops->attention_delta(ctx, delta, dout, o, NH);
}

void attention_bwd(const Ctx& ctx, Tensor dq, Tensor dk, Tensor dv, CTensor dout, CTensor q,
                   CTensor k, CTensor v, CTensor lse, CTensor delta, const Segments& qseg,
                   const Segments& kseg, int64_t NH, double scale) {
    const Desk desk(ctx, "attention_bwd", ctx.ops == nullptr || ctx.ops->attention_bwd == nullptr);
    check_qkv(desk, q, k, v, qseg, kseg, NH);
    const int64_t Sq = q.shape[0], Sk = k.shape[0], D = q.shape[1];
    const DTypes operand = only(q.dtype), stat = only(wide(q.dtype));
    desk.tensor("dq", dq, "(Sq,NH*HD)", {Sq, D}, operand);
    desk.tensor("dk", dk, "(Sk,NH*HD)", {Sk, D}, operand);
    desk.tensor("dv", dv, "(Sk,NH*HD)", {Sk, D}, operand);
    desk.tensor("dout", dout, "(Sq,NH*HD)", {Sq, D}, operand);
    desk.tensor("lse", lse, "(Sq,NH)", {Sq, NH}, stat);
    desk.tensor("delta", delta, "(Sq,NH)", {Sq, NH}, stat);
    const Counted counted(
        ctx, "attention_bwd",
        attention_cost(segment_pairs(qseg, kseg), Sq, Sk, D, size_of(q.dtype), true));
    ctx.ops->attention_bwd(ctx, dq, dk, dv, dout, q, k, v, lse, delta, qseg, kseg, NH, scale);
}

}  // namespace vt
