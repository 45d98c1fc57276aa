// SPDX-License-Identifier: MIT
// Validation: the loss on fixed samples with fixed noise at fixed timestep quantiles, so that two
// evaluations differ only in the weights.
// Floor 6.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "data/loader.h"
#include "data/watch.h"
#include "train/step.h"

namespace vt {

struct EvalResult {
    double loss = 0;  // mean over samples and quantiles of the weighted per-sample mean error
    std::vector<double> by_quantile;  // the same, one entry per timestep quantile, low noise first
};

class Validator {
  public:
    /// Takes at most log.eval_samples samples, evenly spread over the data set.
    Validator(const RunConfig& config, Model& model, const Dataset& data, Memory& memory);

    /// Batch buffers (measuring or real).
    void declare();

    /// The first call with memory reads every sample; bad ones are named and left out for the whole
    /// run (kData if none is left; a whole bad file ends the run where data.on_bad_file says so).
    /// A later call that meets a bad one warns and gives nullopt, since a mean over fewer samples
    /// would not compare. Sample i, quantile q of Q: sigma = the quantile of the training
    /// distribution for its shape (q + 1/2) / Q, noise = Philox(seed, kValid, i Q + q). No caption
    /// is dropped. nullopt if stop() turned true meanwhile.
    [[nodiscard]] std::optional<EvalResult> run(const Ctx& ctx, const Weights& weights,
                                                const std::function<bool()>& stop);
    [[nodiscard]] int64_t samples() const { return static_cast<int64_t>(picks_.size()); }

  private:
    struct Pick {
        int32_t source;
        int64_t index;
        std::array<int64_t, 4> shape;
        int64_t number;  // i of the noise id
    };
    /// Both false if stop() turned true first.
    [[nodiscard]] bool read(const Pick& pick, const Tensor& latent, const Tensor& text,
                            const std::function<bool()>& stop);
    [[nodiscard]] bool leave_out_bad(const std::function<bool()>& stop);
    const RunConfig& config_;
    Model& model_;
    const Dataset& data_;
    Memory& memory_;
    Objective objective_;
    BatchSlots slots_;
    std::vector<Pick> picks_;  // grouped by shape
    bool looked_ = false;      // every pick has been read once
    StallReport stall_;
    Tensor x0_, text_, ids_;  // flat, large enough for every shape
};

}  // namespace vt
