// SPDX-License-Identifier: MIT
// Wan's parameter table and where each parameter stands in it.
// Floor 4.
#pragma once

#include "model/params.h"
#include "model/wan.h"

namespace vt::wan {

// Table indices, in diffusers' state_dict order. A name ending in W is a weight whose bias follows
// at + 1. 13 rows, then kRowsPerBlock for each block, then kProjOut's two: 15 + 27 N.
enum GlobalRow : int64_t {
    kHeadTable = 0,  // scale_shift_table (1,2,D): shift, scale of the head
    kPatchW = 1,     // patch_embedding (D,C,pt,ph,pw)
    kTime1W = 3,     // condition_embedder.time_embedder.linear_1 (D,freq_dim)
    kTime2W = 5,     // condition_embedder.time_embedder.linear_2 (D,D)
    kTimeProjW = 7,  // condition_embedder.time_proj (6D,D)
    kText1W = 9,     // condition_embedder.text_embedder.linear_1 (D,text_dim)
    kText2W = 11,    // condition_embedder.text_embedder.linear_2 (D,D)
    kFirstBlock = 13,
};
enum BlockRow : int64_t {
    kTable = 0,  // scale_shift_table (1,6,D), see Slot
    kQ1W = 1,
    kK1W = 3,
    kV1W = 5,
    kO1W = 7,  // attn1: to_q to_k to_v to_out.0, all (D,D)
    kNormQ1 = 9,
    kNormK1 = 10,  // attn1: norm_q norm_k (D)
    kQ2W = 11,
    kK2W = 13,
    kV2W = 15,
    kO2W = 17,  // attn2, keys and values from the text
    kNormQ2 = 19,
    kNormK2 = 20,  //
    kNorm2W = 21,  // norm2, the affine norm before attn2 (D)
    kUpW = 23,     // ffn.net.0.proj (F,D)
    kDownW = 25,   // ffn.net.2 (D,F)
    kRowsPerBlock = 27,
};
// Slices of a block's modulation (n,6,D).
enum Slot : int { kShift1, kScale1, kGate1, kShift2, kScale2, kGate2 };

[[nodiscard]] inline int64_t block_row(int64_t block) {
    return kFirstBlock + kRowsPerBlock * block;
}
[[nodiscard]] inline int64_t proj_out_row(const WanConfig& c) {
    return block_row(c.num_layers);
}

/// Every parameter with its initial distribution: Xavier-uniform weights and zero biases of linears
/// (bound sqrt(6 / (in + out))), the patch bias left at a convolution's U(+-1/sqrt(fan_in)), text
/// and time embedder weights N(0, 0.02^2), modulation tables N(0, 1/D), the output layer zero, norm
/// weights one. So the gates are open from the start and only the output is zero.
/// From the Wan 2.1 reference code, WanModel.init_weights (read 2026-03).
[[nodiscard]] ParamTable param_table(const WanConfig& config);

/// kUser naming the field and the rule for sizes that cannot work.
void check_config(const WanConfig& config);

/// Model::check and Model::forward_flop.
void check_batch(const WanConfig& config, const BatchShape& shape);
[[nodiscard]] double sample_flop(const WanConfig& config, const BatchShape& one);
[[nodiscard]] inline int64_t token_count(const WanConfig& c, const LatentShape& s) {
    return (s.T / c.patch_size.t) * (s.H / c.patch_size.h) * (s.W / c.patch_size.w);
}

// How the channels of a head are shared among the axes of the rotation: w and h get an even sixth
// rounded down each, twice; t what remains. 128 -> 44, 42, 42.
struct RopeSplit {
    int64_t t, h, w;
};
[[nodiscard]] inline RopeSplit rope_split(int64_t head_dim) {
    const int64_t hw = 2 * (head_dim / 6);
    return {head_dim - 2 * hw, hw, hw};
}

}  // namespace vt::wan
