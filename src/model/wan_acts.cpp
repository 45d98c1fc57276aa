// SPDX-License-Identifier: MIT
#include "model/wan_acts.h"

#include <cmath>

#include "model/wan_params.h"

namespace vt::wan {

Sizes sizes_of(const WanConfig& c, const Precision& precision, const BatchShape& shape) {
    const LatentShape& l = shape.latent;
    const Patch& p = c.patch_size;
    Sizes z;
    z.n = shape.n;
    z.L = token_count(c, l);
    z.S = z.n * z.L;
    z.St = z.n * shape.St;
    z.D = c.D();
    z.NH = c.num_attention_heads;
    z.HD = c.attention_head_dim;
    z.F = c.ffn_dim;
    z.patch_in = c.in_channels * p.volume();
    z.patch_out = c.out_channels * p.volume();
    z.gt = l.T / p.t;
    z.gh = l.H / p.h;
    z.gw = l.W / p.w;
    z.dtype = precision;
    return z;
}

BlockActs attention_acts(Arena& arena, const Sizes& z) {
    const DType op = z.dtype.operand, st = z.dtype.stat;
    BlockActs a;
    a.attn = arena.alloc("attn1.attn", {z.S, z.D}, op);
    a.lse = arena.alloc("attn1.lse", {z.S, z.NH}, st);
    a.attn2 = arena.alloc("attn2.attn", {z.S, z.D}, op);
    a.lse2 = arena.alloc("attn2.lse", {z.S, z.NH}, st);
    return a;
}

BlockActs block_acts(Arena& arena, const Sizes& z, const BlockActs& kept) {
    const DType op = z.dtype.operand, st = z.dtype.stat;
    const Shape row{z.S, z.D}, text{z.St, z.D}, wide{z.S, z.F};
    BlockActs a = kept.attn.present() ? kept : attention_acts(arena, z);
    a.q = arena.alloc("attn1.q", row, op);
    a.k = arena.alloc("attn1.k", row, op);
    a.v = arena.alloc("attn1.v", row, op);
    a.ssq_q = arena.alloc("attn1.ssq_q", {z.S}, st);
    a.ssq_k = arena.alloc("attn1.ssq_k", {z.S}, st);
    a.o = arena.alloc("attn1.out", row, op);
    a.q2 = arena.alloc("attn2.q", row, op);
    a.k2 = arena.alloc("attn2.k", text, op);
    a.v2 = arena.alloc("attn2.v", text, op);
    a.ssq_q2 = arena.alloc("attn2.ssq_q", {z.S}, st);
    a.ssq_k2 = arena.alloc("attn2.ssq_k", {z.St}, st);
    a.o2 = arena.alloc("attn2.out", row, op);
    a.pre = arena.alloc("ffn.pre", wide, op);
    a.act = arena.alloc("ffn.act", wide, op);
    a.ffn = arena.alloc("ffn.out", row, op);
    return a;
}

BlockTemps block_temps(Arena& arena, const Sizes& z) {
    const DType op = z.dtype.operand, st = z.dtype.stat;
    BlockTemps t;
    t.mod = arena.alloc("modulation", {z.n, 6, z.D}, st);
    t.y = arena.alloc("norm", {z.S, z.D}, op);
    t.mean = arena.alloc("norm.mean", {z.S}, st);
    t.rstd = arena.alloc("norm.rstd", {z.S}, st);
    t.q = arena.alloc("rotated q", {z.S, z.D}, op);
    t.k = arena.alloc("rotated k", {z.S, z.D}, op);
    t.k2 = arena.alloc("normed text k", {z.St, z.D}, op);
    return t;
}

BlockGrads block_grads(Arena& arena, const Sizes& z) {
    const DType op = z.dtype.operand, st = z.dtype.stat;
    const Shape row{z.S, z.D}, text{z.St, z.D}, mod{z.n, 6, z.D};
    BlockGrads g;
    g.mod = arena.alloc("modulation", mod, st);
    g.dmod = arena.alloc("d modulation", mod, st);
    g.h = arena.alloc("residual", row, z.dtype.residual);
    g.mean = arena.alloc("norm.mean", {z.S}, st);
    g.rstd = arena.alloc("norm.rstd", {z.S}, st);
    g.q = arena.alloc("rotated q", row, op);
    g.k = arena.alloc("rotated k", row, op);
    g.k2 = arena.alloc("normed text k", text, op);
    g.t = arena.alloc("d input", row, op);
    g.sum = arena.alloc("d input sum", row, st);
    g.delta = arena.alloc("attention delta", {z.S, z.NH}, st);
    g.dot = arena.alloc("qk norm dot", {z.S}, st);
    g.dot2 = arena.alloc("text k norm dot", {z.St}, st);
    for (Tensor* y : {&g.y1, &g.y2, &g.y3}) *y = arena.alloc("linear inputs", row, op);
    for (Tensor* d : {&g.dq, &g.dk, &g.dv, &g.dout, &g.dq2, &g.dout2, &g.dffn}) {
        *d = arena.alloc("d linear outputs", row, op);
    }
    g.dk2 = arena.alloc("d linear outputs", text, op);
    g.dv2 = arena.alloc("d linear outputs", text, op);
    g.dpre = arena.alloc("d linear outputs", {z.S, z.F}, op);
    return g;
}

namespace {

// cs[pos, i] = (cos, sin) of pos * 10000^(-2i/n): angles in float64, rounded once.
// From Su et al. 2021, arXiv:2104.09864; each axis has its own n in the exponent.
template <typename T>
void write_rope_table(T* cs, int64_t positions, int64_t n) {
    for (int64_t pos = 0; pos < positions; ++pos) {
        for (int64_t i = 0; i < n / 2; ++i) {
            const double w = std::pow(10000.0, -2.0 * double(i) / double(n));
            const double angle = double(pos) * w;
            *cs++ = static_cast<T>(std::cos(angle));
            *cs++ = static_cast<T>(std::sin(angle));
        }
    }
}

void fill_rope_table(const Tensor& t, int64_t n) {
    if (t.data == nullptr) return;
    if (t.dtype == DType::kF64) {
        write_rope_table(t.as<double>(), t.shape[0], n);
    } else {
        write_rope_table(t.as<float>(), t.shape[0], n);
    }
}

}  // namespace

void WanActs::enter() {
    const RopeSplit split = rope_split(z.HD);
    fill_rope_table(cs_t, split.t);
    fill_rope_table(cs_h, split.h);
    fill_rope_table(cs_w, split.w);
    if (pos.data == nullptr) return;
    auto* out = pos.as<int32_t>();
    for (int64_t s = 0; s < z.S; ++s) {
        const int64_t i = s % z.L;
        *out++ = narrow<int32_t>(i / (z.gh * z.gw));
        *out++ = narrow<int32_t>(i / z.gw % z.gh);
        *out++ = narrow<int32_t>(i % z.gw);
    }
}

std::unique_ptr<WanActs> declare_acts(Arena& acts, Arena& work, const WanConfig& c, const Sizes& z,
                                      Recompute recompute, bool train) {
    const DType op = z.dtype.operand, st = z.dtype.stat;
    auto a = std::make_unique<WanActs>();
    a->z = z;
    a->recompute = recompute;
    a->train = train;
    a->work = &work;

    for (int64_t i = 0; i <= z.n; ++i) {
        a->token_begin.push_back(i * z.L);
        a->text_begin.push_back(i * (z.St / z.n));
        a->mod_row.push_back(i);
    }
    a->seg = {z.n, a->token_begin.data(), a->mod_row.data()};
    a->cseg = {z.n, a->text_begin.data(), a->mod_row.data()};

    const RopeSplit split = rope_split(z.HD);
    a->cs_t = acts.alloc("rope", {z.gt, split.t / 2, 2}, st);
    a->cs_h = acts.alloc("rope", {z.gh, split.h / 2, 2}, st);
    a->cs_w = acts.alloc("rope", {z.gw, split.w / 2, 2}, st);
    a->pos = acts.alloc("rope positions", {z.S, 3}, DType::kI32);
    a->rope = {a->cs_t, a->cs_h, a->cs_w, a->pos};

    a->wave = acts.alloc("time", {z.n, c.freq_dim}, st);
    for (Tensor* t : {&a->t_pre, &a->t_act, &a->temb, &a->p_in}) {
        *t = acts.alloc("time", {z.n, z.D}, st);
    }
    a->p = acts.alloc("time", {z.n, 6 * z.D}, st);
    for (Tensor* t : {&a->c_pre, &a->c_act, &a->c}) *t = acts.alloc("text", {z.St, z.D}, op);

    for (int64_t b = 0; b <= c.num_layers; ++b) {
        const bool shared = !train && b > 0;
        a->h.push_back(shared ? a->h.front()
                              : acts.alloc("block input", {z.S, z.D}, z.dtype.residual));
        if (!train || b == c.num_layers || recompute == Recompute::kFull) continue;
        a->blocks.push_back(recompute == Recompute::kNone ? block_acts(acts, z)
                                                          : attention_acts(acts, z));
    }
    a->enter();
    return a;
}

}  // namespace vt::wan
