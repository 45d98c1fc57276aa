// SPDX-License-Identifier: MIT
// The part of the CPU table made of matrix products: linear_* and attention_*.
// Floor 2.
#pragma once

#include "cpu/isa.h"

namespace vt {

/// Fills linear_fwd, linear_bwd_input, linear_bwd_weight, attention_fwd, attention_delta and
/// attention_bwd for this instruction set, and appends to ops.instruction_path what of the matrix
/// library's or its own choice changes bits (such as "+amx"). Touches nothing else.
void fill_matmul_slots(Ops& ops, Isa isa);

/// Scratch bytes these ops need for calls up to `need`. The rows' ops and these share ctx.scratch
/// (one user at a time), so the table declares the larger of the two needs.
[[nodiscard]] int64_t matmul_scratch_bytes(const ScratchNeed& need);

}  // namespace vt
