// SPDX-License-Identifier: MIT
#include "train/step.h"

#include <cmath>

#include "ops/ops.h"
#include "ops/transfer.h"

namespace vt {

BatchSlot& BatchSlots::get(const BatchShape& shape) {
    for (BatchSlot& slot : slots_) {
        if (!(slot.shape == shape)) continue;
        if (memory_.tenant != slot.acts.get()) slot.acts->enter();
        memory_.tenant = slot.acts.get();
        return slot;
    }

    model_.check(shape);
    Arena& a = memory_.activations;
    a.reset();
    memory_.workspace.reset();
    const Shape x = {shape.n, shape.latent.C, shape.latent.T, shape.latent.H, shape.latent.W};
    const Shape n = {shape.n};
    BatchSlot slot;
    slot.shape = shape;
    slot.xt = a.alloc("x_t", x, DType::kF32);
    slot.target = a.alloc("target", x, DType::kF32);
    slot.v = a.alloc("prediction", x, DType::kF32);
    if (train_) slot.dv = a.alloc("d prediction", x, DType::kF32);
    slot.mix = a.alloc("noise and target", {shape.n, 4}, DType::kF32);
    slot.tau = a.alloc("tau", n, DType::kF32);
    slot.coef = a.alloc("loss weights", n, DType::kF32);
    slot.sse = a.alloc("squared errors", n, DType::kF64);
    const Chunk whole{.first_block = 0, .last_block = model_.num_blocks()};
    slot.acts = model_.declare(a, memory_.workspace, shape, whole, recompute_, train_);
    memory_.tenant = slot.acts.get();
    return slots_.emplace_back(std::move(slot));
}

Step::Step(const RunConfig& config, Model& model, ParamStore& store, OptimState& optim,
           Memory& memory)
    : config_(config),
      model_(model),
      store_(store),
      optim_(optim),
      memory_(memory),
      slots_(model, memory, config.model.recompute == "full" ? Recompute::kFull : Recompute::kNone,
             true) {}

void Step::declare() {
    slots_.clear();
    scalars_ = memory_.scratch.alloc("step scalars", {kNumStepScalars}, DType::kF32);
    decays_ = memory_.scratch.alloc("ema decays", {optim_.num_ema()}, DType::kF32);
    norm_ = memory_.scratch.alloc("gradient norm", {1}, DType::kF64);
}

StepResult Step::run(const Ctx& ctx, const StepBatch& batch, int64_t step) {
    StepResult r;
    double elements = 0;
    for (const MicroBatch& m : batch.micros) {
        const auto n = static_cast<int64_t>(m.draws.size());
        r.samples += n;
        elements += static_cast<double>(m.x0.numel());
    }
    const bool by_element = config_.objective.loss_reduction == "element";
    const double denominator = by_element ? elements : static_cast<double>(r.samples);

    store_.zero_grads(ctx);
    for (const MicroBatch& m : batch.micros) r.loss += micro(ctx, m, denominator, r);

    fill(ctx, norm_, 0);
    for (size_t i = 0; i < store_.grads().size(); ++i) {
        if (model_.params()[i].trainable) sumsq(ctx, norm_, store_.grads()[i]);
    }
    std::vector<double> norm(1);
    download(ctx, norm, norm_);
    r.grad_norm = std::sqrt(norm[0]);

    if (!std::isfinite(r.loss) || !std::isfinite(r.grad_norm)) {
        raise(Fault::kDiverged,
              fmt::format("step {}: loss {} and gradient norm {} are not both finite; samples {}",
                          step, r.loss, r.grad_norm, name_samples(batch)),
              "the last checkpoint is untouched; lower optim.lr or look at these samples with "
              "`vtrain data verify`");
    }
    update(ctx, step, r);
    return r;
}

double Step::micro(const Ctx& ctx, const MicroBatch& m, double denominator, StepResult& r) {
    const auto n = static_cast<int64_t>(m.draws.size());
    const LatentShape latent{m.shape[0], m.shape[1], m.shape[2], m.shape[3]};
    BatchSlot& slot = slots_.get({n, latent, m.text.shape[1]});
    const auto seed = static_cast<uint64_t>(config_.run.seed);

    // "sample": each sample's mean counts alike; "element": each element does.
    const double per_sample = config_.objective.loss_reduction == "element"
                                  ? 1.0
                                  : 1.0 / static_cast<double>(latent.numel());
    const double coef = per_sample / denominator;
    std::vector<float> mix, tau;
    for (const Draw& d : m.draws) {
        const double s = draw_sigma(config_.objective, seed, d.ordinal);
        for (const float c : flow_mix(s)) mix.push_back(c);
        tau.push_back(static_cast<float>(1000 * s));
    }
    upload(ctx, slot.mix, mix);
    upload(ctx, slot.tau, tau);
    upload(ctx, slot.coef, std::vector<float>(static_cast<size_t>(n), static_cast<float>(coef)));

    flow_noise(ctx, slot.xt, slot.target, m.x0, slot.mix, m.ordinals, seed, Purpose::kNoise);
    const BatchInput in{.x = slot.xt, .tau = slot.tau, .text = m.text};
    const Weights& weights = store_.weights();
    model_.forward(ctx, weights, *slot.acts, in, slot.v);
    flow_loss(ctx, slot.dv, slot.sse, slot.v, slot.target, slot.coef);
    model_.backward(ctx, weights, store_.grads(), *slot.acts, in, slot.dv, {});

    const BatchShape one{1, latent, slot.shape.St};
    r.tokens += n * model_.tokens(latent);
    r.model_flop += 3 * static_cast<double>(n) * model_.forward_flop(one);
    std::vector<double> sse(static_cast<size_t>(n));
    download(ctx, sse, slot.sse);
    double loss = 0;
    for (const double s : sse) loss += coef * s;
    return loss;
}

void Step::update(const Ctx& ctx, int64_t step, StepResult& r) {
    const OptimOptions& o = config_.optim;
    r.lr = learning_rate(o, step, config_.run.train_iters);
    // as torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a zero norm harmless
    const double clip = o.clip_grad > 0 ? std::min(1.0, o.clip_grad / (r.grad_norm + 1e-6)) : 1.0;
    std::vector<float> s(kNumStepScalars, 0.0F);
    const auto t = static_cast<double>(step);
    s[kStepLr] = static_cast<float>(r.lr);
    s[kStepClip] = static_cast<float>(clip);
    s[kStepSkip] = 0;
    s[kStepBias1] = static_cast<float>(1 - std::pow(o.adam_beta1, t));
    s[kStepBias2] = static_cast<float>(1 - std::pow(o.adam_beta2, t));
    upload(ctx, scalars_, s);
    std::vector<float> decays;
    for (const double d : o.ema_decay) decays.push_back(static_cast<float>(d));
    upload(ctx, decays_, decays);
    optim_.update(ctx, store_, scalars_, decays_);
}

std::string Step::name_samples(const StepBatch& batch) const {
    std::string out;
    for (const MicroBatch& m : batch.micros) {
        for (const Draw& d : m.draws) {
            out += fmt::format("{}(source {}, index {}, draw {})", out.empty() ? "" : ", ",
                               d.source, d.index, d.ordinal);
            if (out.size() > 600) return out + ", ...";
        }
    }
    return out;
}

}  // namespace vt
