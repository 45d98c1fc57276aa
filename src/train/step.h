// SPDX-License-Identifier: MIT
// One optimizer step: micro-batches forward and backward, the global norm, one decision, the
// update. Floor 6.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "data/loader.h"
#include "fault/health.h"
#include "model/model.h"
#include "model/store.h"
#include "optim/state.h"
#include "train/breakdown.h"
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

// What is known of a step before it begins.
struct StepStart {
    int64_t step = 1;     // from 1; a step without an update counts too
    int64_t updates = 0;  // done before it: the moments' bias correction counts these
    StepLimits limits;    // a loss or gradient norm beyond them is a spike
};

struct StepResult {
    double loss = 0;       // architecture-wide definition: see Step::run
    double grad_norm = 0;  // of the whole gradient, before clipping
    Verdict verdict = Verdict::kGood;
    double lr = 0;
    std::vector<SampleLoss> each;  // this rank's samples, in the order of the micro-batches
    int64_t samples = 0, tokens = 0;
    double model_flop = 0;  // 3 x forward; recompute is not counted
};

class Step {
  public:
    Step(const RunConfig& config, Model& model, ParamStore& store, OptimState& optim,
         Memory& memory, Group& world);

    /// Per-step numbers in backend memory (measuring or real).
    void declare();

    /// One optimizer step on a loaded batch.
    ///   L = (1/N) sum_i w(sigma_i) (1/n_i) sum_elements (v_hat - v)^2      N = samples in the step
    /// with n_i the latent elements of sample i and w of the objective; loss_reduction "element"
    /// divides by sum n_i instead. All ranks judge the same sums. Where they are not finite or
    /// spike, the update is left out: weights, operand copies, moments and EMAs keep their bits.
    [[nodiscard]] StepResult run(const Ctx& ctx, const StepBatch& batch, const StepStart& start);

    /// Runs a step that was not finite once more, without an update, every output checked: one
    /// sentence that names the first value that is not finite, the op it came out of, the part of
    /// the model and the sample. Says so if all is finite this time. Call before anything else has
    /// touched weights or batch; `data` names samples.
    [[nodiscard]] std::string explain(const Ctx& ctx, const StepBatch& batch, const Dataset& data);

  private:
    [[nodiscard]] double denominator(const StepBatch& batch) const;
    double micro(const Ctx& ctx, const MicroBatch& m, double denominator, StepResult& result);
    double norm_squared(const Ctx& ctx);
    void update(const Ctx& ctx, const StepStart& start, StepResult& result);

    const RunConfig& config_;
    Model& model_;
    ParamStore& store_;
    OptimState& optim_;
    Memory& memory_;
    Group& world_;
    Objective objective_;
    StepDraws draws_;  // of the last run()
    BatchSlots slots_;
    Tensor scalars_, decays_, norm_;
    std::vector<float> numbers_;  // what goes into the first two; kept, so that a step takes none
};

}  // namespace vt
