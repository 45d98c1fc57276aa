// SPDX-License-Identifier: MIT
// AdamW's moments and the exponential moving averages of the weights, one tensor per parameter row.
// Floor 4.
#pragma once

#include <cstdint>
#include <vector>

#include "core/arena.h"
#include "model/params.h"
#include "model/store.h"
#include "ops/ops.h"
#include "optim/options.h"

namespace vt {

class OptimState {
  public:
    OptimState(const ParamTable& table, const OptimOptions& options, DType stat);

    /// Declares m and v in `moments`, every EMA in `ema` (measuring or real).
    void declare(Arena& moments, Arena& ema);

    /// Moments to zero, EMAs to a copy of the weights.
    void init(const Ctx& ctx, const ParamStore& store);

    /// EMA k becomes a copy of the weights.
    void start_ema(const Ctx& ctx, const ParamStore& store, int64_t k);

    /// One optimizer step over every trainable row: clip, decay, update, operand cast in one pass
    /// per tensor, then each EMA. scalars (kNumStepScalars) f32, decays (number of EMAs) f32, both
    /// in the backend's memory.
    void update(const Ctx& ctx, ParamStore& store, CTensor scalars, CTensor decays);

    [[nodiscard]] int64_t num_ema() const { return static_cast<int64_t>(ema_.size()); }
    [[nodiscard]] const std::vector<Tensor>& m() const { return m_; }
    [[nodiscard]] const std::vector<Tensor>& v() const { return v_; }
    [[nodiscard]] const std::vector<Tensor>& ema(int64_t k) const {
        return ema_.at(static_cast<size_t>(k));
    }

  private:
    const ParamTable& table_;
    OptimOptions options_;
    DType stat_;
    std::vector<Tensor> m_, v_;
    std::vector<std::vector<Tensor>> ema_;  // [k][row]
};

}  // namespace vt
