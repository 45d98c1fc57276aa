// SPDX-License-Identifier: MIT
// The memory of one model's parameters: master values, operand copies, gradients.
// Floor 4.
#pragma once

#include <memory>
#include <vector>

#include "core/arena.h"
#include "core/pool.h"
#include "model/model.h"
#include "model/params.h"

namespace vt {

// Three arenas, declared by the constructor and filled by reserve():
//   master     (kMaster)     every parameter in precision.stat (f32; f64 in tests)
//   weights    (kWeights)    a copy in precision.operand of each `matmul` row, only where the
//                            operand dtype differs from the master's; else the master is the
//                            operand
//   gradients  (kGradients)  one accumulator in precision.stat per trainable row; absent without
//                            `train`. Of rows that are not trained, matrices have none (their
//                            products are left out); what row passes yield for the others on their
//                            way goes to two spare pieces that nobody reads
// Until reserve() every tensor is a declaration (null data), which is all that the meta ops need.
class ParamStore {
  public:
    ParamStore(const ParamTable& table, const Precision& precision, bool train,
               const Allocator& allocator = host_allocator());

    /// Takes the memory, zeroed. Views taken before are stale afterwards.
    void reserve();

    [[nodiscard]] const ParamTable& table() const { return table_; }
    [[nodiscard]] const Weights& weights() const { return weights_; }
    [[nodiscard]] const Grads& grads() const { return grads_; }
    [[nodiscard]] const std::vector<Tensor>& master() const { return master_; }
    /// The operand copy of row i, which AdamW writes as its `low`; absent where there is none.
    [[nodiscard]] Tensor operand_copy(int64_t i) const { return copy_[static_cast<size_t>(i)]; }
    /// All gradients as one run of elements, the zero padding between rows included, for
    /// collectives. Absent without `train`.
    [[nodiscard]] Tensor flat_grads() const { return flat_grads_; }

    /// Initial master values: pure functions of (seed, name, element). Host memory only. Call
    /// refresh_operands() afterwards.
    void init(uint64_t seed, Pool* pool = nullptr);
    /// Operand copies from the master.
    void refresh_operands(const Ctx& ctx) { (void)show(ctx, master_); }
    /// Zeroes every gradient.
    void zero_grads(const Ctx& ctx);
    /// Views of another set of master values (an EMA, in table order), cast into the operand
    /// copies. weights() is stale until the next refresh_operands().
    [[nodiscard]] Weights show(const Ctx& ctx, const std::vector<Tensor>& master);

    [[nodiscard]] std::vector<const Arena*> arenas() const {
        return {master_arena_.get(), weights_arena_.get(), grads_arena_.get()};
    }

  private:
    void declare();
    [[nodiscard]] bool left_out(size_t i) const;
    void declare_grads();
    [[nodiscard]] Weights weights_of(const std::vector<Tensor>& master) const;

    ParamTable table_;
    Precision precision_;
    bool train_;
    std::unique_ptr<Arena> master_arena_, weights_arena_, grads_arena_;
    std::vector<Tensor> master_, copy_;
    Weights weights_;  // views of the two above; kept, so that a step builds none
    Grads grads_;
    Tensor flat_grads_;
};

}  // namespace vt
