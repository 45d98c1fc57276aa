// SPDX-License-Identifier: MIT
// What the trainer, the sampler and the pipeline know of a model family.
// Floor 4.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "model/params.h"
#include "ops/ops.h"

namespace vt {

struct Precision {
    DType operand =
        DType::kF32;  // matrix operands and saved activations: f32 | bf16 (f64 in tests)
    DType residual = DType::kF32;  // block inputs: f32 | bf16 (f64 in tests)
    DType stat =
        DType::kF32;  // statistics, modulation, gradients of parameters, master (f64 in tests)
};

// What the backward pass makes again: nothing; each block but its attentions, whose outputs are
// kept (with the rows' log-sum-exp); each block whole, from its input.
enum class Recompute : uint8_t { kNone, kSelective, kFull };
/// "none" "selective" "full"; kBug for another name.
[[nodiscard]] Recompute recompute_named(const std::string& name);

// One latent sample, unpadded.
struct LatentShape {
    int64_t C = 0, T = 0, H = 0, W = 0;
    [[nodiscard]] int64_t numel() const { return C * T * H * W; }
    bool operator==(const LatentShape&) const = default;
    auto operator<=>(const LatentShape&) const = default;
};

// The sizes of one micro-batch: n samples of one shape with St text rows each.
struct BatchShape {
    int64_t n = 0;
    LatentShape latent;
    int64_t St = 0;
    bool operator==(const BatchShape&) const = default;
};

// One micro-batch in the backend's memory.
struct BatchInput {
    CTensor x;     // (n,C,T,H,W) f32: x_t
    CTensor tau;   // (n) f32: timestep 0..1000, never through bf16
    CTensor text;  // (n,St,text_dim) f32 or operand dtype; every row is attended
};

// A run of consecutive blocks. The first chunk also embeds (patches, time, text: the conditioning),
// the last also holds the head. One chunk spans everything on one rank.
struct Chunk {
    int64_t first_block = 0, last_block = 0;  // [first, last)
    bool embed = true, head = true;
};

enum class Pass : uint8_t { kInput = 1, kWeight = 2, kBoth = 3 };

// What one micro-batch keeps between forward and backward in one chunk. Made by Model::declare;
// the tensors look into the arenas given there.
//
// Activations of several shapes may be declared in the same memory and used in turn. Whoever does
// so calls enter() when the memory was last used by another.
class Activations {
  public:
    virtual ~Activations() = default;
    /// Writes again what declare() put into the memory (constants such as rotation tables).
    virtual void enter() {}
};

// Gradients of the inputs, for the parity tool; absent tensors are not computed.
struct InputGrads {
    Tensor dx;     // (n,C,T,H,W) f32, out
    Tensor dtext;  // (n,St,text_dim) f32, out
};

class Model {
  public:
    virtual ~Model() = default;

    [[nodiscard]] virtual const ParamTable& params() const = 0;
    [[nodiscard]] virtual int64_t num_blocks() const = 0;
    [[nodiscard]] virtual const Precision& precision() const = 0;

    /// kUser naming the key and the rule if the model cannot take such a batch (patch does not
    /// divide, more positions than rope_max_seq_len, wrong channels or text width).
    virtual void check(const BatchShape& shape) const = 0;
    /// Token rows of one sample.
    [[nodiscard]] virtual int64_t tokens(const LatentShape& shape) const = 0;
    /// Model flop of one sample forward (models.md I; backward counts twice that).
    [[nodiscard]] virtual double forward_flop(const BatchShape& one) const = 0;
    [[nodiscard]] virtual ScratchNeed scratch_need(const BatchShape& shape) const = 0;

    /// Declares everything a micro-batch of this shape needs in one chunk: saved tensors from
    /// `acts`, and records where temporaries may begin in `work` (used with stack discipline during
    /// forward and backward). Works on measuring arenas. `train` false: nothing is kept for a
    /// backward. The same call on reserved arenas yields real memory; the object is reused every
    /// step.
    [[nodiscard]] virtual std::unique_ptr<Activations> declare(Arena& acts, Arena& work,
                                                               const BatchShape& shape,
                                                               const Chunk& chunk,
                                                               Recompute recompute, bool train) = 0;

    /// v out (n,C_out,T,H,W) f32 where chunk.head. With the meta ops nothing is read or written.
    virtual void forward(const Ctx& ctx, const Weights& w, Activations& a, const BatchInput& in,
                         Tensor v) = 0;
    /// dv in (n,C_out,T,H,W) f32. grads acc, in table order. Runs each block's input-gradient pass
    /// and, if asked, its weight-gradient pass (two separate functions inside, so that zero-bubble
    /// schedules can take them apart).
    virtual void backward(const Ctx& ctx, const Weights& w, const Grads& grads, Activations& a,
                          const BatchInput& in, CTensor dv, const InputGrads& input_grads) = 0;
};

}  // namespace vt
