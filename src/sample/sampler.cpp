// SPDX-License-Identifier: MIT
#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/rng.h"
#include "sample/solver.h"

namespace vt {

struct Sampler::Impl {
    Model& model;
    SampleOptions options;
    BatchShape batch;
    int64_t text_dim;
    std::vector<float> sigmas;
    std::unique_ptr<Activations> acts;
    Tensor x, v, tau, text;
};

Sampler::Sampler(Model& model, Arena& acts, Arena& work, const LatentShape& shape, int64_t St,
                 int64_t text_dim, const SampleOptions& options) {
    const bool guided = options.guidance > 1;
    impl_ = std::make_unique<Impl>(Impl{.model = model,
                                        .options = options,
                                        .batch = {.n = guided ? 2 : 1, .latent = shape, .St = St},
                                        .text_dim = text_dim,
                                        .sigmas = flow_euler_sigmas(options.steps, options.shift),
                                        .acts = nullptr,
                                        .x = {},
                                        .v = {},
                                        .tau = {},
                                        .text = {}});
    Impl& s = *impl_;
    model.check(s.batch);
    const int64_t n = s.batch.n;
    const Shape latent{n, shape.C, shape.T, shape.H, shape.W};
    s.x = acts.alloc("sample.x", latent, DType::kF32);
    s.v = acts.alloc("sample.v", latent, DType::kF32);
    s.tau = acts.alloc("sample.tau", {n}, DType::kF32);
    s.text = acts.alloc("sample.text", {n, St, text_dim}, DType::kF32);
    const Chunk whole{
        .first_block = 0, .last_block = model.num_blocks(), .embed = true, .head = true};
    s.acts = model.declare(acts, work, s.batch, whole, Recompute::kNone, false);
}

Sampler::~Sampler() = default;

ScratchNeed Sampler::scratch_need() const {
    return impl_->model.scratch_need(impl_->batch);
}

void Sampler::rehearse(const Ctx& meta, const Weights& weights) {
    Impl& s = *impl_;
    s.model.forward(meta, weights, *s.acts, {.x = s.x, .tau = s.tau, .text = s.text}, s.v);
}

std::vector<float> Sampler::run(const Ctx& ctx, const Weights& weights,
                                const SampleRequest& request, const float* empty_text,
                                const std::function<bool(int64_t step)>& step) {
    Impl& s = *impl_;
    VT_CHECK(s.x.data != nullptr, "Sampler::run on measuring arenas");
    VT_CHECK(request.text != nullptr && empty_text != nullptr, "a sample without text");
    s.acts->enter();  // others may have used the memory since
    const int64_t n = s.batch.latent.numel(), copies = s.batch.n;
    auto* x = static_cast<float*>(s.x.data);
    auto* v = static_cast<float*>(s.v.data);
    auto* tau = static_cast<float*>(s.tau.data);
    const int64_t text_n = s.batch.St * s.text_dim;
    const auto bytes = [](int64_t floats) { return static_cast<size_t>(floats) * sizeof(float); };
    std::memcpy(s.text.data, request.text, bytes(text_n));
    if (copies == 2) {
        std::memcpy(static_cast<float*>(s.text.data) + text_n, empty_text, bytes(text_n));
    }
    for (int64_t i = 0; i < n; i += 4) {
        const auto e = random_normal4(s.options.seed, Purpose::kSample, request.index,
                                      static_cast<uint64_t>(i / 4));
        for (int64_t j = i; j < std::min(n, i + 4); ++j) x[j] = e.at(static_cast<size_t>(j - i));
    }
    for (int64_t k = 0; k < s.options.steps; ++k) {
        const float now = s.sigmas[static_cast<size_t>(k)];
        if (copies == 2) std::memcpy(x + n, x, bytes(n));
        for (int64_t i = 0; i < copies; ++i) tau[i] = 1000.0F * now;
        s.model.forward(ctx, weights, *s.acts, {.x = s.x, .tau = s.tau, .text = s.text}, s.v);
        if (copies == 2) guide(v, v, v + n, n, static_cast<float>(s.options.guidance));
        flow_euler_step(x, v, n, now, s.sigmas[static_cast<size_t>(k + 1)]);
        if (step && !step(k + 1)) return {};
    }
    for (int64_t i = 0; i < n; ++i) {
        if (!std::isfinite(x[i])) {
            raise(Fault::kDiverged,
                  fmt::format("sample {}: the latent is not finite after {} steps", request.index,
                              s.options.steps),
                  "the weights have diverged, or were saved from a run that had");
        }
    }
    return {x, x + n};
}

}  // namespace vt
