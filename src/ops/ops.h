// SPDX-License-Identifier: MIT
// Every operation the trainer can ask for. Floor 1: backends (floor 2) fill the table, models
// (floor 4) call the free functions of the family headers. The front desk (ops/front_*.cpp) checks
// shapes and dtypes once, counts flop and bytes (ops/cost.h), and jumps through the table.
//
// Letters, here and in every file:
//   B batch   T H W latent frames, rows, columns   C latent channels   S token rows (all samples)
//   St text tokens   D model width   NH heads   HD head width (D = NH*HD)   F feed-forward width
//   L layers   E experts   K experts per token   (M N K sizes only inside matrix products)
//   capital = global size, an added l = this rank's share (NHl = NH/tp); gradient of x is dx
// Each argument says how it is written: in (read), out (overwritten), acc (added to), buf
// (scratch). Outputs first, then inputs, then numbers. A tensor has dims; a mesh has axes.
//
// Dtypes. "operand" = dtype of matrix operands and saved activations: f32 or bf16 by run.precision.
// "residual" = dtype of block inputs: f32 or bf16 by model.residual. Statistics, modulation,
// biases, gradients of parameters: f32. In tests everything may be f64 at once (then "f32" reads
// "f64"). Every op is asynchronous on ctx.stream; on the cpu that is program order.
#pragma once

#include <string>

#include "ops/attention.h"
#include "ops/ctx.h"
#include "ops/embed.h"
#include "ops/linear.h"
#include "ops/norm.h"
#include "ops/objective.h"
#include "ops/optimize.h"
#include "ops/pointwise.h"

namespace vt {

// The one list of ops. The table, its names and the completeness check are made from it.
// clang-format off
#define VT_OPS(X) \
    X(linear_fwd) X(linear_bwd_input) X(linear_bwd_weight) X(modnorm_fwd) X(modnorm_bwd) \
    X(layernorm_fwd) X(layernorm_bwd) X(row_sumsq) X(qknorm_rope_fwd) X(qknorm_rope_bwd_dot) \
    X(qknorm_rope_bwd) X(attention_fwd) X(attention_delta) X(attention_bwd) X(gate_residual_fwd) \
    X(gate_residual_bwd) X(silu_fwd) X(silu_bwd) X(modulation_fwd) X(modulation_bwd) X(cast) \
    X(fill) X(add) X(patchify) X(unpatchify) X(sinusoid) X(flow_noise) X(flow_loss) X(adamw) \
    X(sumsq) X(ema_update)
// clang-format on

// What bounds a backend's scratch need; the model fills it from its largest call.
struct ScratchNeed {
    int64_t rows = 0;      // largest S of any row op or linear
    int64_t width = 0;     // largest row width (N or K of a linear, D)
    int64_t head_dim = 0;  // HD
    int64_t heads = 0;     // NH
    int threads = 1;
};

// A backend. Slots have the signatures of the free functions; the front desk has checked the
// arguments before a slot is called.
struct Ops {
    const char* backend = "?";     // "cpu" "meta" "cuda" "ref"
    std::string instruction_path;  // "avx512+amx" ...; recorded in checkpoints, may change the bits
    int64_t (*scratch_bytes)(const ScratchNeed&) = nullptr;
    // Between host memory and the backend's, on ctx.stream; null where they are the same.
    void (*copy_in)(const Ctx&, void* to, const void* host, int64_t bytes) = nullptr;
    void (*copy_out)(const Ctx&, void* host, const void* from, int64_t bytes) = nullptr;
// NOLINTNEXTLINE(bugprone-macro-parentheses): a name that is declared takes none
#define VT_OP_SLOT(name) decltype(&::vt::name) name = nullptr;
    VT_OPS(VT_OP_SLOT)
#undef VT_OP_SLOT
};

/// The names of the empty slots, with ", " between them; "" for a complete table.
[[nodiscard]] std::string missing_ops(const Ops& ops);

/// Throws kBug naming every empty slot. Called once at start-up, so that a missing op is not found
/// at the thousandth step.
void check_complete(const Ops& ops);

}  // namespace vt
