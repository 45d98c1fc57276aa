// SPDX-License-Identifier: MIT
// One row per parameter is the only list of parameters in the program. Allocation, initialisation,
// weight decay, sharding, gradient groups, checkpoint, import, export and test tolerances are all
// read from it, so they cannot disagree.
// Floor 4.
#pragma once

#include <string>
#include <vector>

#include "core/tensor.h"

namespace vt {

enum class Init : uint8_t {
    kZeros,
    kOnes,
    kNormal,   // N(0, init_scale^2)
    kUniform,  // U(-init_scale, init_scale)
};

// How tp or ep cut the global tensor.
enum class Cut : uint8_t { kNone, kRows, kCols, kExpert };

struct ParamRow {
    std::string name;  // the diffusers name, e.g. "blocks.7.attn1.to_q.weight"; the checkpoint key
    Shape shape;  // global, before any cut, as diffusers stores it (conv weights in conv shape)
    Init init = Init::kZeros;
    double init_scale = 0;  // standard deviation or bound
    bool decay = false;     // does AdamW shrink it
    bool trainable = true;
    bool matmul = false;  // an operand of matrix products: has a copy in the operand dtype
    Cut cut = Cut::kNone;
    int64_t stage = 0;  // -1 before the first block, block index, or L after the last
    bool keep_f32 =
        false;  // exported in f32 whatever the export dtype (diffusers' keep-in-fp32 list)
};

using ParamTable = std::vector<ParamRow>;

/// Index of the row of that name; kBug if there is none.
[[nodiscard]] int64_t find_row(const ParamTable& table, const std::string& name);
[[nodiscard]] int64_t count_elements(const ParamTable& table);

/// Writes the initial value of one row: a pure function of (seed, name, element), Philox
/// Purpose::kInit with id = XXH3-64 of the name. `out` is f32 (or f64) host memory of row.shape.
void init_param(const ParamRow& row, uint64_t seed, Tensor out);
/// The same for flat elements [begin, end) of the global shape: any shard draws its own slice.
/// `out` holds end - begin elements.
void init_param_slice(const ParamRow& row, uint64_t seed, int64_t begin, int64_t end, Tensor out);

// The operand-dtype and master views of all parameters, in table order. For rows without `matmul`,
// and for all rows when the operand dtype is the master's, both views are the same memory.
struct Weights {
    std::vector<CTensor> operand;
    std::vector<CTensor> master;  // f32 (f64 in tests)
};
// f32 accumulators in table order. Those of matrices that are not trained are absent: the backward
// pass leaves their products out.
using Grads = std::vector<Tensor>;

}  // namespace vt
