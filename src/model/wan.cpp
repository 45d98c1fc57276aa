// SPDX-License-Identifier: MIT
// Wan's forward pass and its mirror, the backward pass. Each piece is a pair: x_fwd, then x_bwd
// with the same calls in reverse order. From the Wan 2.1 report, arXiv:2503.20314, and diffusers'
// transformer_wan.py; what is computed:
//
//   h = patches W^T + b       temb = MLP(sinusoid(tau))     p = time_proj(SiLU(temb))   c =
//   MLP(text) each block, with (shift1, scale1, gate1, shift2, scale2, gate2) = table + p:
//     h += gate1 * to_out(attention(rope(rms(to_q y)), rope(rms(to_k y)), to_v y)),
//                                                        y = LN(h) (1 + scale1) + shift1
//     h += to_out(attention(rms(to_q y), rms(to_k c), to_v c)),            y = affine LN(h)
//     h += gate2 * W2 gelu(W1 y),                        y = LN(h) (1 + scale2) + shift2
//   v = unpatchify(proj_out(LN(h) (1 + scale) + shift)), (shift, scale) = table + temb
//
// Floor 4.
#include "model/wan.h"

#include <algorithm>
#include <cmath>

#include "meta/meta.h"
#include "model/store.h"
#include "model/wan_acts.h"
#include "model/wan_params.h"

namespace vt {

namespace {

using namespace wan;  // NOLINT(google-build-using-namespace): the family's own names

template <typename View>
View matrix(const View& w) {  // a convolution's weight as a linear's: (out, the rest)
    return w.view({w.shape[0], div_exact(w.shape.numel(), w.shape[0])});
}
template <typename View>
View slots(const View& t) {  // a modulation table (1,J,D) as (J,D)
    return t.view({t.shape[1], t.shape[2]});
}

// x in `dtype`: itself, or a converted copy in `arena`.
CTensor converted(const Ctx& ctx, Arena& arena, CTensor x, DType dtype) {
    if (x.dtype == dtype) return x;
    const Tensor y = arena.alloc("converted", x.shape, dtype);
    cast(ctx, y, x);
    return y;
}

class Wan final : public Model {
  public:
    Wan(const WanConfig& config, const Precision& precision)
        : c_(config),
          precision_(precision),
          table_(param_table(config)),
          scale_(1 / std::sqrt(static_cast<double>(config.attention_head_dim))) {}

    [[nodiscard]] const ParamTable& params() const override { return table_; }
    [[nodiscard]] int64_t num_blocks() const override { return c_.num_layers; }
    [[nodiscard]] const Precision& precision() const override { return precision_; }
    void check(const BatchShape& shape) const override { check_batch(c_, shape); }
    [[nodiscard]] int64_t tokens(const LatentShape& s) const override { return token_count(c_, s); }
    [[nodiscard]] double forward_flop(const BatchShape& one) const override {
        return sample_flop(c_, one);
    }
    [[nodiscard]] ScratchNeed scratch_need(const BatchShape& shape) const override;
    [[nodiscard]] std::unique_ptr<Activations> declare(Arena& acts, Arena& work,
                                                       const BatchShape& shape, const Chunk& chunk,
                                                       Recompute recompute, bool train) override;
    void forward(const Ctx& ctx, const Weights& w, Activations& a, const BatchInput& in,
                 Tensor v) override;
    void backward(const Ctx& ctx, const Weights& w, const Grads& g, Activations& a,
                  const BatchInput& in, CTensor dv, const InputGrads& input_grads) override;

  private:
    void patch_fwd(const Ctx& ctx, const Weights& w, WanActs& a, CTensor x) const;
    void patch_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CTensor x,
                   CTensor dh, Tensor dx) const;
    void time_fwd(const Ctx& ctx, const Weights& w, WanActs& a, CTensor tau) const;
    void time_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CondGrads& d) const;
    void text_fwd(const Ctx& ctx, const Weights& w, WanActs& a, CTensor text) const;
    void text_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CTensor text,
                  CTensor dc, Tensor dtext) const;
    void self_qk(const Ctx& ctx, const Weights& w, int64_t r, const WanActs& a, const BlockActs& s,
                 Tensor q, Tensor k) const;
    void cross_qk(const Ctx& ctx, const Weights& w, int64_t r, const BlockActs& s, Tensor q,
                  Tensor k) const;
    void block_fwd(const Ctx& ctx, const Weights& w, int64_t b, const WanActs& a, BlockActs& s,
                   Tensor h, bool attend = true) const;
    void block_bwd_input(const Ctx& ctx, const Weights& w, const Grads& g, int64_t b,
                         const WanActs& a, const BlockActs& s, BlockGrads& t, Tensor dh,
                         CondGrads& d) const;
    void block_bwd_weight(const Ctx& ctx, const Grads& g, int64_t b, const WanActs& a,
                          const BlockActs& s, const BlockGrads& t) const;
    void head_fwd(const Ctx& ctx, const Weights& w, WanActs& a, Tensor v) const;
    void head_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CTensor dv,
                  Tensor dh, CondGrads& d) const;

    WanConfig c_;
    Precision precision_;
    ParamTable table_;
    double scale_;  // of attention scores, 1 / sqrt(HD)
};

// ---------------------------------------------------------------------------------------------
// Linear layers by their place in the table: weight at i, bias at i + 1. With `x` in the
// statistics' dtype (the time embedder) the master is the operand.

void linear(const Ctx& ctx, const Weights& w, int64_t i, Tensor y, CTensor x, Tensor pre = {}) {
    const auto k = static_cast<size_t>(i);
    linear_fwd(ctx, y, pre, x, matrix(w.operand[k]), w.master[k + 1],
               pre.present() ? Epilogue::kGelu : Epilogue::kNone);
}
void linear_dx(const Ctx& ctx, const Weights& w, int64_t i, Tensor dx, CTensor dy,
               bool accumulate = false) {
    linear_bwd_input(ctx, dx, dy, matrix(w.operand[static_cast<size_t>(i)]), {}, Epilogue::kNone,
                     accumulate);
}
// Through y = W gelu(pre): dpre.
void linear_dpre(const Ctx& ctx, const Weights& w, int64_t i, Tensor dpre, CTensor dy,
                 CTensor pre) {
    linear_bwd_input(ctx, dpre, dy, matrix(w.operand[static_cast<size_t>(i)]), pre, Epilogue::kGelu,
                     false);
}
void linear_dw(const Ctx& ctx, const Grads& g, int64_t i, CTensor dy, CTensor x) {
    const auto k = static_cast<size_t>(i);
    if (!g[k].present()) return;  // not trained
    linear_bwd_weight(ctx, matrix(g[k]), g[k + 1], dy, x);
}
CTensor master(const Weights& w, int64_t i) {
    return w.master[static_cast<size_t>(i)];
}
Tensor grad(const Grads& g, int64_t i) {
    return g[static_cast<size_t>(i)];
}

// ---------------------------------------------------------------------------------------------
// Patches.

void Wan::patch_fwd(const Ctx& ctx, const Weights& w, WanActs& a, CTensor x) const {
    const ArenaScope scope(*a.work);
    const Tensor rows = a.work->alloc("patches", {a.z.S, a.z.patch_in}, precision_.operand);
    patchify(ctx, rows, x, c_.patch_size, PatchOrder::kChannelFirst);
    linear(ctx, w, kPatchW, a.h.front(), rows);
}

void Wan::patch_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CTensor x,
                    CTensor dh, Tensor dx) const {
    const ArenaScope scope(*a.work);
    const CTensor dy = converted(ctx, *a.work, dh, precision_.operand);
    const Tensor rows = a.work->alloc("patches", {a.z.S, a.z.patch_in}, precision_.operand);
    patchify(ctx, rows, x, c_.patch_size, PatchOrder::kChannelFirst);
    linear_dw(ctx, g, kPatchW, dy, rows);
    if (!dx.present()) return;
    const Tensor drows = a.work->alloc("d patches", {a.z.S, a.z.patch_in}, precision_.stat);
    linear_dx(ctx, w, kPatchW, drows, dy);
    unpatchify(ctx, dx, drows, c_.patch_size, PatchOrder::kChannelFirst);
}

// ---------------------------------------------------------------------------------------------
// Timestep. All in the statistics' dtype: 750 and 752 must differ in every precision.

void Wan::time_fwd(const Ctx& ctx, const Weights& w, WanActs& a, CTensor tau) const {
    sinusoid(ctx, a.wave, tau);
    linear(ctx, w, kTime1W, a.t_pre, a.wave);
    silu_fwd(ctx, a.t_act, a.t_pre);
    linear(ctx, w, kTime2W, a.temb, a.t_act);
    silu_fwd(ctx, a.p_in, a.temb);
    linear(ctx, w, kTimeProjW, a.p, a.p_in);
}

void Wan::time_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a,
                   CondGrads& d) const {
    const ArenaScope scope(*a.work);
    const Tensor dact = a.work->alloc("d time", {a.z.n, a.z.D}, precision_.stat);
    const Tensor dpre = a.work->alloc("d time", {a.z.n, a.z.D}, precision_.stat);
    const CTensor dp = d.dp.view({a.z.n, 6 * a.z.D});
    linear_dw(ctx, g, kTimeProjW, dp, a.p_in);
    linear_dx(ctx, w, kTimeProjW, dact, dp);
    silu_bwd(ctx, d.dtemb, dact, a.temb);
    linear_dw(ctx, g, kTime2W, d.dtemb, a.t_act);
    linear_dx(ctx, w, kTime2W, dact, d.dtemb);
    fill(ctx, dpre, 0);
    silu_bwd(ctx, dpre, dact, a.t_pre);
    linear_dw(ctx, g, kTime1W, dpre, a.wave);
}

// ---------------------------------------------------------------------------------------------
// Text. Every row is attended, the zero rows of the padding too.

void Wan::text_fwd(const Ctx& ctx, const Weights& w, WanActs& a, CTensor text) const {
    const ArenaScope scope(*a.work);
    const CTensor rows =
        converted(ctx, *a.work, text.view({a.z.St, c_.text_dim}), precision_.operand);
    linear(ctx, w, kText1W, a.c_act, rows, a.c_pre);
    linear(ctx, w, kText2W, a.c, a.c_act);
}

void Wan::text_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CTensor text,
                   CTensor dc, Tensor dtext) const {
    const ArenaScope scope(*a.work);
    const CTensor rows =
        converted(ctx, *a.work, text.view({a.z.St, c_.text_dim}), precision_.operand);
    const CTensor dy = converted(ctx, *a.work, dc, precision_.operand);
    const Tensor dpre = a.work->alloc("d text", {a.z.St, a.z.D}, precision_.operand);
    linear_dw(ctx, g, kText2W, dy, a.c_act);
    linear_dpre(ctx, w, kText2W, dpre, dy, a.c_pre);
    linear_dw(ctx, g, kText1W, dpre, rows);
    if (dtext.present()) linear_dx(ctx, w, kText1W, dtext.view({a.z.St, c_.text_dim}), dpre);
}

// ---------------------------------------------------------------------------------------------
// A block. r is its first row in the table; h is its input and becomes its output.

void Wan::self_qk(const Ctx& ctx, const Weights& w, int64_t r, const WanActs& a, const BlockActs& s,
                  Tensor q, Tensor k) const {
    qknorm_rope_fwd(ctx, q, s.q, s.ssq_q, master(w, r + kNormQ1), a.rope, a.z.HD, a.z.D, c_.eps);
    qknorm_rope_fwd(ctx, k, s.k, s.ssq_k, master(w, r + kNormK1), a.rope, a.z.HD, a.z.D, c_.eps);
}
void Wan::cross_qk(const Ctx& ctx, const Weights& w, int64_t r, const BlockActs& s, Tensor q,
                   Tensor k) const {
    const int64_t HD = c_.attention_head_dim, D = c_.D();
    qknorm_rope_fwd(ctx, q, s.q2, s.ssq_q2, master(w, r + kNormQ2), {}, HD, D, c_.eps);
    qknorm_rope_fwd(ctx, k, s.k2, s.ssq_k2, master(w, r + kNormK2), {}, HD, D, c_.eps);
}

// `attend` false: the attentions' outputs are there already.
void Wan::block_fwd(const Ctx& ctx, const Weights& w, int64_t b, const WanActs& a, BlockActs& s,
                    Tensor h, bool attend) const {
    const int64_t r = block_row(b), NH = a.z.NH;
    const ArenaScope scope(*a.work);
    const BlockTemps t = block_temps(*a.work, a.z);
    modulation_fwd(ctx, t.mod, slots(master(w, r + kTable)), a.p.view({a.z.n, 6, a.z.D}));

    modnorm_fwd(ctx, t.y, t.mean, t.rstd, h, t.mod, {kShift1, kScale1}, a.seg, c_.eps);
    linear(ctx, w, r + kQ1W, s.q, t.y);
    linear(ctx, w, r + kK1W, s.k, t.y);
    linear(ctx, w, r + kV1W, s.v, t.y);
    row_sumsq(ctx, s.ssq_q, s.q);
    row_sumsq(ctx, s.ssq_k, s.k);
    if (attend) {
        self_qk(ctx, w, r, a, s, t.q, t.k);
        attention_fwd(ctx, s.attn, s.lse, t.q, t.k, s.v, a.seg, a.seg, NH, scale_);
    }
    linear(ctx, w, r + kO1W, s.o, s.attn);
    gate_residual_fwd(ctx, h, s.o, t.mod, kGate1, a.seg);

    layernorm_fwd(ctx, t.y, t.mean, t.rstd, h, master(w, r + kNorm2W), master(w, r + kNorm2W + 1),
                  c_.eps);
    linear(ctx, w, r + kQ2W, s.q2, t.y);
    linear(ctx, w, r + kK2W, s.k2, a.c);
    linear(ctx, w, r + kV2W, s.v2, a.c);
    row_sumsq(ctx, s.ssq_q2, s.q2);
    row_sumsq(ctx, s.ssq_k2, s.k2);
    if (attend) {
        cross_qk(ctx, w, r, s, t.q, t.k2);
        attention_fwd(ctx, s.attn2, s.lse2, t.q, t.k2, s.v2, a.seg, a.cseg, NH, scale_);
    }
    linear(ctx, w, r + kO2W, s.o2, s.attn2);
    gate_residual_fwd(ctx, h, s.o2, {}, 0, a.seg);

    modnorm_fwd(ctx, t.y, t.mean, t.rstd, h, t.mod, {kShift2, kScale2}, a.seg, c_.eps);
    linear(ctx, w, r + kUpW, s.act, t.y, s.pre);
    linear(ctx, w, r + kDownW, s.ffn, s.act);
    gate_residual_fwd(ctx, h, s.ffn, t.mod, kGate2, a.seg);
}

// dh holds the gradient of the block's output and becomes that of its input. The parameters that
// are not matrices (tables, norms) get their gradients here: they fall out of the row passes.
void Wan::block_bwd_input(const Ctx& ctx, const Weights& w, const Grads& g, int64_t b,
                          const WanActs& a, const BlockActs& s, BlockGrads& t, Tensor dh,
                          CondGrads& d) const {
    const int64_t r = block_row(b), NH = a.z.NH, HD = a.z.HD, D = a.z.D;
    const CTensor h0 = a.h[static_cast<size_t>(b)];
    modulation_fwd(ctx, t.mod, slots(master(w, r + kTable)), a.p.view({a.z.n, 6, D}));
    fill(ctx, t.dmod, 0);

    // feed-forward; t.h is its input, made again from the block's
    cast(ctx, t.h, h0);
    gate_residual_fwd(ctx, t.h, s.o, t.mod, kGate1, a.seg);
    gate_residual_fwd(ctx, t.h, s.o2, {}, 0, a.seg);
    modnorm_fwd(ctx, t.y3, t.mean, t.rstd, t.h, t.mod, {kShift2, kScale2}, a.seg, c_.eps);
    gate_residual_bwd(ctx, t.dffn, t.dmod, dh, s.ffn, t.mod, kGate2, a.seg);
    linear_dpre(ctx, w, r + kDownW, t.dpre, t.dffn, s.pre);
    linear_dx(ctx, w, r + kUpW, t.t, t.dpre);
    modnorm_bwd(ctx, dh, t.dmod, t.t, t.h, t.mean, t.rstd, t.mod, {kShift2, kScale2}, a.seg);

    // cross-attention
    cast(ctx, t.h, h0);
    gate_residual_fwd(ctx, t.h, s.o, t.mod, kGate1, a.seg);
    layernorm_fwd(ctx, t.y2, t.mean, t.rstd, t.h, master(w, r + kNorm2W),
                  master(w, r + kNorm2W + 1), c_.eps);
    cross_qk(ctx, w, r, s, t.q, t.k2);
    gate_residual_bwd(ctx, t.dout2, {}, dh, {}, {}, 0, a.seg);
    linear_dx(ctx, w, r + kO2W, t.t, t.dout2);
    attention_delta(ctx, t.delta, t.t, s.attn2, NH);
    attention_bwd(ctx, t.dq2, t.dk2, t.dv2, t.t, t.q, t.k2, s.v2, s.lse2, t.delta, a.seg, a.cseg,
                  NH, scale_);
    qknorm_rope_bwd_dot(ctx, t.dot, t.dq2, s.q2, master(w, r + kNormQ2), {}, HD);
    qknorm_rope_bwd(ctx, t.dq2, grad(g, r + kNormQ2), t.dq2, s.q2, s.ssq_q2, t.dot,
                    master(w, r + kNormQ2), {}, HD, D, c_.eps);
    qknorm_rope_bwd_dot(ctx, t.dot2, t.dk2, s.k2, master(w, r + kNormK2), {}, HD);
    qknorm_rope_bwd(ctx, t.dk2, grad(g, r + kNormK2), t.dk2, s.k2, s.ssq_k2, t.dot2,
                    master(w, r + kNormK2), {}, HD, D, c_.eps);
    linear_dx(ctx, w, r + kV2W, d.dc, t.dv2, true);
    linear_dx(ctx, w, r + kK2W, d.dc, t.dk2, true);
    linear_dx(ctx, w, r + kQ2W, t.t, t.dq2);
    layernorm_bwd(ctx, dh, grad(g, r + kNorm2W), grad(g, r + kNorm2W + 1), t.t, t.h, t.mean, t.rstd,
                  master(w, r + kNorm2W));

    // self-attention
    modnorm_fwd(ctx, t.y1, t.mean, t.rstd, h0, t.mod, {kShift1, kScale1}, a.seg, c_.eps);
    self_qk(ctx, w, r, a, s, t.q, t.k);
    gate_residual_bwd(ctx, t.dout, t.dmod, dh, s.o, t.mod, kGate1, a.seg);
    linear_dx(ctx, w, r + kO1W, t.t, t.dout);
    attention_delta(ctx, t.delta, t.t, s.attn, NH);
    attention_bwd(ctx, t.dq, t.dk, t.dv, t.t, t.q, t.k, s.v, s.lse, t.delta, a.seg, a.seg, NH,
                  scale_);
    qknorm_rope_bwd_dot(ctx, t.dot, t.dq, s.q, master(w, r + kNormQ1), a.rope, HD);
    qknorm_rope_bwd(ctx, t.dq, grad(g, r + kNormQ1), t.dq, s.q, s.ssq_q, t.dot,
                    master(w, r + kNormQ1), a.rope, HD, D, c_.eps);
    qknorm_rope_bwd_dot(ctx, t.dot, t.dk, s.k, master(w, r + kNormK1), a.rope, HD);
    qknorm_rope_bwd(ctx, t.dk, grad(g, r + kNormK1), t.dk, s.k, s.ssq_k, t.dot,
                    master(w, r + kNormK1), a.rope, HD, D, c_.eps);
    linear_dx(ctx, w, r + kV1W, t.sum, t.dv);
    linear_dx(ctx, w, r + kK1W, t.sum, t.dk, true);
    linear_dx(ctx, w, r + kQ1W, t.sum, t.dq, true);
    cast(ctx, t.t, t.sum);
    modnorm_bwd(ctx, dh, t.dmod, t.t, h0, t.mean, t.rstd, t.mod, {kShift1, kScale1}, a.seg);

    modulation_bwd(ctx, slots(grad(g, r + kTable)), d.dp, t.dmod);
}

void Wan::block_bwd_weight(const Ctx& ctx, const Grads& g, int64_t b, const WanActs& a,
                           const BlockActs& s, const BlockGrads& t) const {
    const int64_t r = block_row(b);
    linear_dw(ctx, g, r + kDownW, t.dffn, s.act);
    linear_dw(ctx, g, r + kUpW, t.dpre, t.y3);
    linear_dw(ctx, g, r + kO2W, t.dout2, s.attn2);
    linear_dw(ctx, g, r + kV2W, t.dv2, a.c);
    linear_dw(ctx, g, r + kK2W, t.dk2, a.c);
    linear_dw(ctx, g, r + kQ2W, t.dq2, t.y2);
    linear_dw(ctx, g, r + kO1W, t.dout, s.attn);
    linear_dw(ctx, g, r + kV1W, t.dv, t.y1);
    linear_dw(ctx, g, r + kK1W, t.dk, t.y1);
    linear_dw(ctx, g, r + kQ1W, t.dq, t.y1);
}

// ---------------------------------------------------------------------------------------------
// Head. Its two slots share temb itself: no SiLU, no projection.

void Wan::head_fwd(const Ctx& ctx, const Weights& w, WanActs& a, Tensor v) const {
    const ArenaScope scope(*a.work);
    const Tensor mod = a.work->alloc("modulation", {a.z.n, 2, a.z.D}, precision_.stat);
    const Tensor mean = a.work->alloc("norm.mean", {a.z.S}, precision_.stat);
    const Tensor rstd = a.work->alloc("norm.rstd", {a.z.S}, precision_.stat);
    const Tensor y = a.work->alloc("norm", {a.z.S, a.z.D}, precision_.operand);
    const Tensor rows = a.work->alloc("v rows", {a.z.S, a.z.patch_out}, precision_.stat);
    modulation_fwd(ctx, mod, slots(master(w, kHeadTable)), a.temb);
    modnorm_fwd(ctx, y, mean, rstd, a.h.back(), mod, {0, 1}, a.seg, c_.eps);
    linear(ctx, w, proj_out_row(c_), rows, y);
    unpatchify(ctx, v, rows, c_.patch_size, PatchOrder::kChannelLast);
}

void Wan::head_bwd(const Ctx& ctx, const Weights& w, const Grads& g, WanActs& a, CTensor dv,
                   Tensor dh, CondGrads& d) const {
    const ArenaScope scope(*a.work);
    const Tensor mod = a.work->alloc("modulation", {a.z.n, 2, a.z.D}, precision_.stat);
    const Tensor dmod = a.work->alloc("d modulation", {a.z.n, 2, a.z.D}, precision_.stat);
    const Tensor mean = a.work->alloc("norm.mean", {a.z.S}, precision_.stat);
    const Tensor rstd = a.work->alloc("norm.rstd", {a.z.S}, precision_.stat);
    const Tensor y = a.work->alloc("norm", {a.z.S, a.z.D}, precision_.operand);
    const Tensor dy = a.work->alloc("d norm", {a.z.S, a.z.D}, precision_.operand);
    const Tensor drows = a.work->alloc("d v rows", {a.z.S, a.z.patch_out}, precision_.operand);
    modulation_fwd(ctx, mod, slots(master(w, kHeadTable)), a.temb);
    modnorm_fwd(ctx, y, mean, rstd, a.h.back(), mod, {0, 1}, a.seg, c_.eps);
    fill(ctx, dmod, 0);
    patchify(ctx, drows, dv, c_.patch_size, PatchOrder::kChannelLast);
    linear_dx(ctx, w, proj_out_row(c_), dy, drows);
    linear_dw(ctx, g, proj_out_row(c_), drows, y);
    modnorm_bwd(ctx, dh, dmod, dy, a.h.back(), mean, rstd, mod, {0, 1}, a.seg);
    modulation_bwd(ctx, slots(grad(g, kHeadTable)), d.dtemb, dmod);
}

// ---------------------------------------------------------------------------------------------
// The whole.

void Wan::forward(const Ctx& ctx, const Weights& w, Activations& acts, const BatchInput& in,
                  Tensor v) {
    auto& a = dynamic_cast<WanActs&>(acts);
    patch_fwd(ctx.in("patches"), w, a, in.x);
    time_fwd(ctx.in("time"), w, a, in.tau);
    text_fwd(ctx.in("text"), w, a, in.text);
    for (int64_t b = 0; b < c_.num_layers; ++b) {
        const auto i = static_cast<size_t>(b);
        if (a.train) cast(ctx, a.h[i + 1], a.h[i]);
        const ArenaScope scope(*a.work);
        BlockActs s = a.blocks.empty() ? BlockActs{} : a.blocks[i];
        if (!s.q.present()) s = block_acts(*a.work, a.z, s);
        block_fwd(ctx.in("block", b), w, b, a, s, a.h[i + 1]);
    }
    head_fwd(ctx.in("head"), w, a, v);
}

void Wan::backward(const Ctx& ctx, const Weights& w, const Grads& g, Activations& acts,
                   const BatchInput& in, CTensor dv, const InputGrads& input_grads) {
    auto& a = dynamic_cast<WanActs&>(acts);
    VT_CHECK(a.train, "backward of activations declared for inference");
    const ArenaScope scope(*a.work);
    const Tensor dh = a.work->alloc("d residual", {a.z.S, a.z.D}, precision_.stat);
    CondGrads d{a.work->alloc("d conditioning", {a.z.n, a.z.D}, precision_.stat),
                a.work->alloc("d conditioning", {a.z.n, 6, a.z.D}, precision_.stat),
                a.work->alloc("d conditioning", {a.z.St, a.z.D}, precision_.stat)};
    for (const Tensor& t : {dh, d.dtemb, d.dp, d.dc}) fill(ctx, t, 0);

    head_bwd(ctx.in("head"), w, g, a, dv, dh, d);
    for (int64_t b = c_.num_layers - 1; b >= 0; --b) {
        const auto i = static_cast<size_t>(b);
        const Ctx here = ctx.in("block", b);
        const ArenaScope block_scope(*a.work);
        BlockActs s = a.blocks.empty() ? BlockActs{} : a.blocks[i];
        if (!s.q.present()) {
            const bool attend = !s.attn.present();
            s = block_acts(*a.work, a.z, s);
            const ArenaScope again(*a.work);
            const Tensor h = a.work->alloc("residual", a.h[i].shape, precision_.residual);
            cast(ctx, h, a.h[i]);
            block_fwd(here, w, b, a, s, h, attend);
        }
        BlockGrads t = block_grads(*a.work, a.z);
        block_bwd_input(here, w, g, b, a, s, t, dh, d);
        block_bwd_weight(here, g, b, a, s, t);
    }
    text_bwd(ctx.in("text"), w, g, a, in.text, d.dc, input_grads.dtext);
    time_bwd(ctx.in("time"), w, g, a, d);
    patch_bwd(ctx.in("patches"), w, g, a, in.x, dh, input_grads.dx);
}

// ---------------------------------------------------------------------------------------------
// Sizes.

std::unique_ptr<Activations> Wan::declare(Arena& acts, Arena& work, const BatchShape& shape,
                                          const Chunk& chunk, Recompute recompute, bool train) {
    check(shape);
    VT_CHECK(
        chunk.first_block == 0 && chunk.last_block == c_.num_layers && chunk.embed && chunk.head,
        "a chunk must be the whole model, got blocks [{},{}) of {}", chunk.first_block,
        chunk.last_block, c_.num_layers);
    const LatentShape& l = shape.latent;
    const Sizes z = sizes_of(c_, precision_, shape);
    auto a = declare_acts(acts, work, c_, z, recompute, train);

    // The passes themselves say how high the work arena rises: run once on declarations.
    if (work.measuring()) {
        const Ops nothing = meta_ops(Ops{});
        Ctx ctx;
        ctx.ops = &nothing;
        const ParamStore store(table_, precision_, train);
        const DType st = precision_.stat;
        const Shape v{z.n, c_.out_channels, l.T, l.H, l.W};
        const BatchInput in{CTensor(nullptr, {z.n, l.C, l.T, l.H, l.W}, st),
                            CTensor(nullptr, {z.n}, st),
                            CTensor(nullptr, {z.n, shape.St, c_.text_dim}, st)};
        forward(ctx, store.weights(), *a, in, Tensor(nullptr, v, st));
        if (train) {
            const InputGrads all{Tensor(nullptr, in.x.shape, st),
                                 Tensor(nullptr, in.text.shape, st)};
            backward(ctx, store.weights(), store.grads(), *a, in, CTensor(nullptr, v, st), all);
        }
    }
    return a;
}

ScratchNeed Wan::scratch_need(const BatchShape& shape) const {
    const int64_t D = c_.D(), p = c_.patch_size.volume();
    ScratchNeed need;
    need.rows = shape.n * std::max(tokens(shape.latent), shape.St);
    need.width = std::max(
        {6 * D, c_.ffn_dim, c_.text_dim, c_.freq_dim, c_.in_channels * p, c_.out_channels * p});
    need.head_dim = c_.attention_head_dim;
    need.heads = c_.num_attention_heads;
    return need;
}

}  // namespace

std::unique_ptr<Model> make_wan(const WanConfig& config, const Precision& precision) {
    check_config(config);
    const Precision& p = precision;
    const bool bf16 = p.operand == DType::kBF16 && p.stat == DType::kF32 &&
                      (p.residual == DType::kF32 || p.residual == DType::kBF16);
    const bool alike = p.operand == p.stat && p.residual == p.stat &&
                       (p.stat == DType::kF32 || p.stat == DType::kF64);
    if (!bf16 && !alike) {
        raise(
            Fault::kUser,
            fmt::format("model.residual = {} does not go with operands in {} and statistics in {}",
                        name_of(p.residual), name_of(p.operand), name_of(p.stat)),
            "model.residual = \"bf16\" needs run.precision = \"bf16\"");
    }
    return std::make_unique<Wan>(config, precision);
}

}  // namespace vt
