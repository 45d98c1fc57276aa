// SPDX-License-Identifier: MIT
// Wan's memory: what a micro-batch keeps between forward and backward, and the temporaries of each
// pass. Shapes use the legend of ops/ops.h; St here counts the text rows of all samples. The third
// column is the dtype by role: op operand, res residual, st statistic (model/model.h, Precision).
// Floor 4.
#pragma once

#include <vector>

#include "model/model.h"
#include "model/wan.h"

namespace vt::wan {

struct Sizes {
    int64_t n = 0;                         // samples
    int64_t L = 0, S = 0, St = 0;          // tokens of one sample; token rows, text rows of all
    int64_t D = 0, NH = 0, HD = 0, F = 0;  //
    int64_t patch_in = 0, patch_out = 0;   // features of a patch: channels x patch volume
    int64_t gt = 0, gh = 0, gw = 0;        // the token grid
    Precision dtype;
};

[[nodiscard]] Sizes sizes_of(const WanConfig& config, const Precision& precision,
                             const BatchShape& shape);

// What the backward pass of one block reads, besides the block's input. Norm outputs, rotated q and
// k, and the residual stream inside the block are made again instead: each is one cheap pass.
struct BlockActs {
    Tensor q, k, v;       // (S,D)   op  to_q to_k to_v, before the norm
    Tensor ssq_q, ssq_k;  // (S)     st
    Tensor attn;          // (S,D)   op  attention, before to_out
    Tensor lse;           // (S,NH)  st
    Tensor o;             // (S,D)   op  to_out
    Tensor q2;            // (S,D)   op  the same of the cross-attention
    Tensor k2, v2;        // (St,D)  op
    Tensor ssq_q2;        // (S)     st
    Tensor ssq_k2;        // (St)    st
    Tensor attn2, o2;     // (S,D)   op
    Tensor lse2;          // (S,NH)  st
    Tensor pre, act;      // (S,F)   op  ffn.net.0.proj before and after GELU
    Tensor ffn;           // (S,D)   op  ffn.net.2
};
// Those of `kept` that are there are taken from it.
[[nodiscard]] BlockActs block_acts(Arena& arena, const Sizes& z, const BlockActs& kept = {});
/// What Recompute::kSelective keeps: attn, lse, attn2, lse2.
[[nodiscard]] BlockActs attention_acts(Arena& arena, const Sizes& z);

// Temporaries of a block's forward.
struct BlockTemps {
    Tensor mod;         // (n,6,D)  st  the block's modulation
    Tensor y;           // (S,D)    op  a norm's output
    Tensor mean, rstd;  // (S)      st  of that norm
    Tensor q, k;        // (S,D)    op  normed and rotated
    Tensor k2;          // (St,D)   op
};
[[nodiscard]] BlockTemps block_temps(Arena& arena, const Sizes& z);

// Temporaries of a block's backward. The input pass fills the inputs (y) and output gradients (d..)
// of the block's linears; the weight pass reads them.
struct BlockGrads {
    Tensor mod, dmod;   // (n,6,D)  st
    Tensor h;           // (S,D)    res  the residual stream where the pass stands
    Tensor mean, rstd;  // (S)      st
    Tensor q, k;        // (S,D)    op   normed and rotated
    Tensor k2;          // (St,D)   op
    Tensor t;           // (S,D)    op   gradient of an attention's or a norm's output
    Tensor sum;         // (S,D)    st   the same, summed over three linears
    Tensor delta;       // (S,NH)   st
    Tensor dot;         // (S)      st
    Tensor dot2;        // (St)     st
    Tensor y1, y2, y3;  // (S,D)    op   inputs of to_q.., attn2.to_q, ffn.net.0.proj
    Tensor dq, dk, dv;  // (S,D)    op
    Tensor dout;        // (S,D)    op   of to_out
    Tensor dq2, dout2;  // (S,D)    op
    Tensor dk2, dv2;    // (St,D)   op
    Tensor dpre;        // (S,F)    op
    Tensor dffn;        // (S,D)    op
};
[[nodiscard]] BlockGrads block_grads(Arena& arena, const Sizes& z);

// Running gradients of what all blocks read, summed in the statistics' dtype.
struct CondGrads {
    Tensor dtemb;  // (n,D)    st
    Tensor dp;     // (n,6,D)  st
    Tensor dc;     // (St,D)   st
};

struct WanActs : Activations {
    void enter() override;

    Sizes z;
    Recompute recompute = Recompute::kNone;
    bool train = false;
    Arena* work = nullptr;

    // The arrays behind seg and cseg.
    std::vector<int64_t> token_begin, text_begin, mod_row;
    Segments seg, cseg;       // tokens, text
    Tensor cs_t, cs_h, cs_w;  // (positions, n_a/2, 2) st  rotation tables
    Tensor pos;               // (S,3) i32  each row's t, h, w
    Rope rope;                // views of the four

    // Conditioning.
    Tensor wave;                // (n,freq_dim)  st  sinusoids
    Tensor t_pre, t_act, temb;  // (n,D)         st  time embedder
    Tensor p_in;                // (n,D)         st  SiLU(temb)
    Tensor p;                   // (n,6D)        st  time_proj
    Tensor c_pre, c_act, c;     // (St,D)        op  text embedder

    // Block inputs, then the head's: L+1 tensors (S,D) res. Without `train` all are one buffer.
    std::vector<Tensor> h;
    // With `train`: L of them, whole (Recompute::kNone) or the attentions' (kSelective). Else none.
    std::vector<BlockActs> blocks;
};

/// Allocates all that is kept. The rotation's tables and positions are computed on the host where
/// `acts` has memory; forward and backward never touch tensor memory except through ops.
[[nodiscard]] std::unique_ptr<WanActs> declare_acts(Arena& acts, Arena& work, const WanConfig& c,
                                                    const Sizes& z, Recompute recompute,
                                                    bool train);

}  // namespace vt::wan
