// SPDX-License-Identifier: MIT
#include "train/step.h"

#include <array>
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
           Memory& memory, Group& world)
    : config_(config),
      model_(model),
      store_(store),
      optim_(optim),
      memory_(memory),
      world_(world),
      objective_(config.objective),
      slots_(model, memory, recompute_named(config.model.recompute), true) {}

void Step::declare() {
    slots_.clear();
    // a row for each start of moments, at most one a tensor
    const auto rows = static_cast<int64_t>(store_.table().size());
    scalars_ = memory_.scratch.alloc("step scalars", {rows, kNumStepScalars}, DType::kF32);
    decays_ = memory_.scratch.alloc("ema decays", {optim_.num_ema()}, DType::kF32);
    norm_ = memory_.scratch.alloc("gradient norm", {1}, DType::kF64);
}

// What a step's sum of losses is divided by.
double Step::denominator(const StepBatch& batch) const {
    double samples = 0, elements = 0;
    for (const MicroBatch& m : batch.micros) {
        samples += static_cast<double>(m.draws.size());
        elements += static_cast<double>(m.x0.numel());
    }
    return config_.objective.loss_reduction == "element" ? elements : samples;
}

StepResult Step::run(const Ctx& ctx, const StepBatch& batch, const StepStart& start) {
    StepResult r;
    for (const MicroBatch& m : batch.micros) r.samples += static_cast<int64_t>(m.draws.size());
    const double whole = denominator(batch);
    r.each.reserve(static_cast<size_t>(r.samples));

    store_.zero_grads(ctx);
    draws_ = {start.step, batch.first, std::max<uint64_t>(1, batch.next - batch.first)};
    for (const MicroBatch& m : batch.micros) r.loss += micro(ctx, m, whole, r);
    double squares = norm_squared(ctx);
    sum_over_ranks(world_, r.loss, squares, ctx.stream);
    r.grad_norm = std::sqrt(squares);
    r.verdict = judge(r.loss, r.grad_norm, start.limits);
    update(ctx, start, r);
    return r;
}

// Of this rank's gradients.
double Step::norm_squared(const Ctx& ctx) {
    fill(ctx, norm_, 0);
    for (size_t i = 0; i < store_.grads().size(); ++i) {
        if (store_.table()[i].trainable) sumsq(ctx, norm_, store_.grads()[i]);
    }
    std::vector<double> squares(1);
    download(ctx, squares, norm_);
    return squares[0];
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
    std::vector<float> mix, tau, coefs;
    std::vector<double> coef;
    const LevelDensityPtr density = objective_.density(latent);
    for (const Draw& d : m.draws) {
        const NoiseLevel level =
            objective_.at(density->quantile(objective_.unit(seed, d.ordinal, draws_)));
        mix.insert(mix.end(), level.mix.begin(), level.mix.end());
        tau.push_back(level.tau);
        coef.push_back(level.weight * (per_sample / denominator));
        coefs.push_back(static_cast<float>(coef.back()));
    }
    upload(ctx, slot.mix, mix);
    upload(ctx, slot.tau, tau);
    upload(ctx, slot.coef, coefs);

    flow_noise(ctx, slot.xt, slot.target, m.x0, slot.mix, m.ordinals, seed, Purpose::kNoise);
    const BatchInput in{.x = slot.xt, .tau = slot.tau, .text = m.text};
    const Weights& weights = store_.weights();
    model_.forward(ctx.in_pass("forward"), weights, *slot.acts, in, slot.v);
    flow_loss(ctx, slot.dv, slot.sse, slot.v, slot.target, slot.coef);
    model_.backward(ctx.in_pass("backward"), weights, store_.grads(), *slot.acts, in, slot.dv, {});

    const BatchShape one{1, latent, slot.shape.St};
    r.tokens += n * model_.tokens(latent);
    r.model_flop += 3 * static_cast<double>(n) * model_.forward_flop(one);
    std::vector<double> sse(static_cast<size_t>(n));
    download(ctx, sse, slot.sse);
    double loss = 0;
    for (size_t i = 0; i < sse.size(); ++i) {
        loss += coef[i] * sse[i];
        r.each.push_back({.draw = m.draws[i],
                          .loss = sse[i] / static_cast<double>(latent.numel()),
                          .shape = m.shape,
                          .tau = tau[i]});
    }
    return loss;
}

void Step::update(const Ctx& ctx, const StepStart& start, StepResult& r) {
    const OptimOptions& o = config_.optim;
    r.lr = learning_rate(o, {start.step, draws_.first + draws_.count}, config_.run.train_iters);
    // as torch.nn.utils.clip_grad_norm_: the 1e-6 keeps a zero norm harmless
    const double clip = o.clip_grad > 0 ? std::min(1.0, o.clip_grad / (r.grad_norm + 1e-6)) : 1.0;
    numbers_.clear();
    for (const int64_t began : optim_.starts()) {
        std::array<float, kNumStepScalars> s{};
        const auto t = static_cast<double>(start.updates + 1 - began);
        s[kStepLr] = static_cast<float>(r.lr);
        s[kStepClip] = static_cast<float>(clip);
        s[kStepSkip] = r.verdict == Verdict::kGood ? 0.0F : 1.0F;
        s[kStepBias1] = static_cast<float>(1 - std::pow(o.adam_beta1, t));
        s[kStepBias2] = static_cast<float>(1 - std::pow(o.adam_beta2, t));
        numbers_.insert(numbers_.end(), s.begin(), s.end());
    }
    upload(ctx, scalars_.rows(0, static_cast<int64_t>(optim_.starts().size())), numbers_);
    numbers_.clear();
    for (const EmaOptions& e : optim_.emas()) {
        numbers_.push_back(static_cast<float>(ema_decay_at(e, start.step)));
    }
    upload(ctx, decays_, numbers_);
    optim_.update(ctx, store_, scalars_, decays_);
    for (int64_t k = 0; k < optim_.num_ema(); ++k) {
        const int64_t adopt = optim_.emas()[static_cast<size_t>(k)].adopt_step;
        if (adopt == start.step) optim_.adopt_ema(ctx, store_, k);
    }
}

}  // namespace vt
