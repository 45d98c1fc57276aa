// SPDX-License-Identifier: MIT
// One optimizer step: micro-batches forward and backward, the global norm, one decision, the
// update. Floor 6.
#pragma once

#include <deque>
#include <memory>
#include <vector>

#include "data/loader.h"
#include "model/model.h"
#include "model/store.h"
#include "optim/state.h"
#include "train/memory.h"
#include "train/options.h"

namespace vt {

// What a forward pass of one shape needs around the model: noisy input, target, prediction.
struct BatchSlot {
    BatchShape shape;
    Tensor xt, target, v;  // (n,C,T,H,W) f32
    Tensor dv;             // the same; absent for validation
    Tensor mix;            // (n,4) f32: ops/objective.h
    Tensor tau, coef;      // (n) f32
    Tensor sse;            // (n) f64
    std::unique_ptr<Activations> acts;
};

// The slots of every shape met, all in the same memory: one micro-batch is alive at a time.
class BatchSlots {
  public:
    BatchSlots(Model& model, Memory& memory, Recompute recompute, bool train)
        : model_(model), memory_(memory), recompute_(recompute), train_(train) {}
    /// Declared at the first call for a shape, reused ever after.
    BatchSlot& get(const BatchShape& shape);
    /// Forget the declarations (between the measuring and the real pass).
    void clear() { slots_.clear(); }

  private:
    Model& model_;
    Memory& memory_;
    Recompute recompute_;
    bool train_;
    std::deque<BatchSlot> slots_;  // references stay valid; a handful of shapes
};

struct StepResult {
    double loss = 0;       // architecture-wide definition: see Step::run
    double grad_norm = 0;  // of the whole gradient, before clipping
    double lr = 0;
    int64_t samples = 0, tokens = 0;
    double model_flop = 0;  // 3 x forward; recompute is not counted
};

class Step {
  public:
    Step(const RunConfig& config, Model& model, ParamStore& store, OptimState& optim,
         Memory& memory);

    /// Per-step numbers in backend memory (measuring or real).
    void declare();

    /// Optimizer step number `step` (from 1) on a loaded batch.
    ///   L = (1/N) sum_i w(sigma_i) (1/n_i) sum_elements (v_hat - v)^2      N = samples in the step
    /// with n_i the latent elements of sample i and w = 1; loss_reduction "element" divides by sum
    /// n_i instead. kDiverged naming the samples if the loss or the gradient norm is not finite;
    /// the parameters are then as they were before.
    [[nodiscard]] StepResult run(const Ctx& ctx, const StepBatch& batch, int64_t step);

  private:
    double micro(const Ctx& ctx, const MicroBatch& m, double denominator, StepResult& result);
    void update(const Ctx& ctx, int64_t step, StepResult& result);
    [[nodiscard]] std::string name_samples(const StepBatch& batch) const;

    const RunConfig& config_;
    Model& model_;
    ParamStore& store_;
    OptimState& optim_;
    Memory& memory_;
    BatchSlots slots_;
    Tensor scalars_, decays_, norm_;
};

}  // namespace vt
