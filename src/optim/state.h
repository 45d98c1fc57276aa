// SPDX-License-Identifier: MIT
// AdamW's moments and the exponential moving averages of the weights, one tensor per parameter row.
// Floor 4.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/arena.h"
#include "model/params.h"
#include "model/store.h"
#include "ops/ops.h"
#include "optim/options.h"

namespace vt {

class OptimState {
  public:
    /// `table` outlives this. kUser where a group's pattern names no parameter.
    OptimState(const ParamTable& table, const OptimOptions& options, DType stat);

    /// Declares m and v of trainable rows in `moments`, every EMA in `ema` (measuring or real).
    void declare(Arena& moments, Arena& ema);

    /// Moments to zero, EMAs to a copy of the weights.
    void init(const Ctx& ctx, const ParamStore& store);

    /// EMA k becomes a copy of the weights.
    void start_ema(const Ctx& ctx, const ParamStore& store, int64_t k);

    /// The moments of row i begin at zero after `updates` updates of the others: its bias
    /// correction counts from there, as that of a parameter that is new to PyTorch's AdamW.
    void start_moments(const Ctx& ctx, int64_t i, int64_t updates);
    /// After how many updates moments began, each number once; {0} as a rule.
    [[nodiscard]] const std::vector<int64_t>& starts() const { return starts_; }
    /// Where the moments of every row began, in table order: "0x40,1200x12". Empty if all at 0.
    [[nodiscard]] std::string encode_starts() const;
    /// kData naming `where` if the text is none of these for this table.
    void decode_starts(const std::string& text, const std::string& where);

    /// One optimizer step: clip, decay, update, operand cast in one pass per trainable tensor; then
    /// each EMA over every row. scalars (rows >= starts().size(), kNumStepScalars) f32, row k with
    /// the bias corrections of moments that began at starts()[k], and decays (number of EMAs) f32:
    /// both in the backend's memory.
    void update(const Ctx& ctx, ParamStore& store, CTensor scalars, CTensor decays);

    /// The trainable weights become EMA k.
    void adopt_ema(const Ctx& ctx, ParamStore& store, int64_t k) const;

    [[nodiscard]] const std::vector<EmaOptions>& emas() const { return emas_; }
    [[nodiscard]] int64_t num_ema() const { return static_cast<int64_t>(ema_.size()); }
    /// Absent for rows that are not trained.
    [[nodiscard]] const std::vector<Tensor>& m() const { return m_; }
    [[nodiscard]] const std::vector<Tensor>& v() const { return v_; }
    [[nodiscard]] const std::vector<Tensor>& ema(int64_t k) const {
        return ema_.at(static_cast<size_t>(k));
    }

  private:
    void set_starts(const std::vector<int64_t>& of_rows);
    [[nodiscard]] std::vector<int64_t> starts_of_rows() const;

    const ParamTable& table_;
    std::vector<AdamW> hyper_;  // by row
    std::vector<EmaOptions> emas_;
    DType stat_;
    std::vector<Tensor> m_, v_;
    std::vector<std::vector<Tensor>> ema_;  // [k][row]
    std::vector<int64_t> starts_;
    std::vector<int64_t> start_;  // by row, an index of starts_
};

}  // namespace vt
