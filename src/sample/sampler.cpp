// SPDX-License-Identifier: MIT
#include "sample/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "core/rng.h"
#include "sample/guidance.h"

namespace vt {

namespace {

size_t bytes(int64_t floats) {
    return static_cast<size_t>(floats) * sizeof(float);
}

// out (n): standard normals of a sample, from element `first` (a multiple of 4) on.
void draw_noise(float* out, int64_t n, uint64_t seed, uint64_t index, int64_t first) {
    for (int64_t i = 0; i < n; i += 4) {
        const auto e =
            random_normal4(seed, Purpose::kSample, index, static_cast<uint64_t>((first + i) / 4));
        for (int64_t j = i; j < std::min(n, i + 4); ++j) out[j] = e.at(static_cast<size_t>(j - i));
    }
}

// Declared sizes of one kind of forward: with the negative caption beside each sample, or without.
struct Declared {
    BatchShape shape;
    std::unique_ptr<Activations> acts;  // null where no step needs it
};

}  // namespace

struct Sampler::Impl {
    Model& model;
    std::shared_ptr<const Solver> solver;
    SampleOptions options;
    LatentShape latent;
    int64_t St, text_dim;
    std::vector<float> guidance;  // by step
    Declared guided, plain;
    Tensor x, v, tau, text;  // of twice the batch where a step is guided
    Tensor history, noise;   // of the batch; absent where the solver needs none

    [[nodiscard]] int64_t n() const { return latent.numel(); }
    [[nodiscard]] bool follow(const Ctx& ctx, const Weights& weights,
                              const std::vector<SampleRequest>& requests, int64_t first,
                              const float* negative, const Visit& visit);
    void begin(const std::vector<SampleRequest>& requests, int64_t first, const float* negative);
    void forward(const Ctx& ctx, const Weights& weights, Declared& pass);
};

Sampler::Sampler(Model& model, Arena& acts, Arena& work, const LatentShape& shape, int64_t St,
                 int64_t text_dim, std::shared_ptr<const Solver> solver,
                 const SampleOptions& options) {
    VT_CHECK(solver != nullptr && options.batch >= 1, "batch {}", options.batch);
    impl_ = std::make_unique<Impl>(Impl{.model = model,
                                        .solver = std::move(solver),
                                        .options = options,
                                        .latent = shape,
                                        .St = St,
                                        .text_dim = text_dim,
                                        .guidance = {},
                                        .guided = {},
                                        .plain = {},
                                        .x = {},
                                        .v = {},
                                        .tau = {},
                                        .text = {},
                                        .history = {},
                                        .noise = {}});
    Impl& s = *impl_;
    s.guidance = guidance_weights(options.guidance, *s.solver);
    const auto is_guided = [](float w) { return w > 1; };
    const bool any = std::any_of(s.guidance.begin(), s.guidance.end(), is_guided);
    const bool all = std::all_of(s.guidance.begin(), s.guidance.end(), is_guided);
    const int64_t B = options.batch, rows = any ? 2 * B : B;
    s.guided.shape = {.n = 2 * B, .latent = shape, .St = St};
    s.plain.shape = {.n = B, .latent = shape, .St = St};
    model.check(any ? s.guided.shape : s.plain.shape);
    const Shape latent{rows, shape.C, shape.T, shape.H, shape.W};
    s.x = acts.alloc("sample.x", latent, DType::kF32);
    s.v = acts.alloc("sample.v", latent, DType::kF32);
    s.tau = acts.alloc("sample.tau", {rows}, DType::kF32);
    s.text = acts.alloc("sample.text", {rows, St, text_dim}, DType::kF32);
    if (s.solver->history() > 0) {
        s.history =
            acts.alloc("sample.history", {s.solver->history() * B * shape.numel()}, DType::kF32);
    }
    for (int64_t k = 0; k < s.solver->steps() && s.noise.numel() == 0; ++k) {
        if (s.solver->noisy(k)) {
            s.noise = acts.alloc("sample.noise", {B * shape.numel()}, DType::kF32);
        }
    }
    // one forward is alive at a time: both kinds share the memory
    const Chunk whole{
        .first_block = 0, .last_block = model.num_blocks(), .embed = true, .head = true};
    const int64_t acts_mark = acts.mark(), work_mark = work.mark();
    if (any) {
        s.guided.acts = model.declare(acts, work, s.guided.shape, whole, Recompute::kNone, false);
    }
    if (!all) {
        acts.release(acts_mark);
        work.release(work_mark);
        s.plain.acts = model.declare(acts, work, s.plain.shape, whole, Recompute::kNone, false);
    }
}

Sampler::~Sampler() = default;

ScratchNeed Sampler::scratch_need() const {
    const Impl& s = *impl_;
    return s.model.scratch_need(s.guided.acts ? s.guided.shape : s.plain.shape);
}

void Sampler::Impl::forward(const Ctx& ctx, const Weights& weights, Declared& pass) {
    const int64_t rows = pass.shape.n;
    model.forward(ctx, weights, *pass.acts,
                  {.x = x.rows(0, rows), .tau = tau.rows(0, rows), .text = text.rows(0, rows)},
                  v.rows(0, rows));
}

void Sampler::rehearse(const Ctx& meta, const Weights& weights) {
    Impl& s = *impl_;
    if (s.guided.acts) s.forward(meta, weights, s.guided);
    if (s.plain.acts) s.forward(meta, weights, s.plain);
}

// Texts and starting noise of the requests from `first` on; a batch that is not full repeats its
// last one.
void Sampler::Impl::begin(const std::vector<SampleRequest>& requests, int64_t first,
                          const float* negative) {
    const int64_t B = options.batch, text_n = St * text_dim;
    auto* const texts = text.as<float>();
    for (int64_t b = 0; b < B; ++b) {
        const auto last = static_cast<int64_t>(requests.size()) - 1;
        const SampleRequest& r = requests[static_cast<size_t>(std::min(first + b, last))];
        VT_CHECK(r.text != nullptr && negative != nullptr, "a sample without text");
        std::memcpy(texts + b * text_n, r.text, bytes(text_n));
        if (guided.acts) std::memcpy(texts + (B + b) * text_n, negative, bytes(text_n));
        draw_noise(x.as<float>() + b * n(), n(), options.seed, r.index, 0);
    }
}

bool Sampler::Impl::follow(const Ctx& ctx, const Weights& weights,
                           const std::vector<SampleRequest>& requests, int64_t first,
                           const float* negative, const Visit& visit) {
    begin(requests, first, negative);
    const int64_t B = options.batch, total = B * n();
    const int64_t count = std::min(B, static_cast<int64_t>(requests.size()) - first);
    auto *const xs = x.as<float>(), *const vs = v.as<float>();
    const Declared* entered = nullptr;
    for (int64_t k = 0; k < solver->steps(); ++k) {
        const float w = guidance[static_cast<size_t>(k)];
        Declared& pass = w > 1 ? guided : plain;
        if (entered != &pass) pass.acts->enter();  // another has used the memory since
        entered = &pass;
        if (w > 1) std::memcpy(xs + total, xs, bytes(total));
        std::fill_n(tau.as<float>(), pass.shape.n, solver->tau(k));
        forward(ctx, weights, pass);
        if (w > 1) guide(vs, vs, vs + total, total, w);
        if (visit && !visit({.step = k + 1,
                             .first = first,
                             .count = count,
                             .sigma = solver->sigma(k),
                             .next_sigma = solver->sigma(k + 1),
                             .tau = solver->tau(k),
                             .guidance = w,
                             .x = xs,
                             .v = vs})) {
            return false;
        }
        float* fresh = nullptr;
        if (solver->noisy(k)) {
            fresh = noise.as<float>();
            for (int64_t b = 0; b < count; ++b) {
                draw_noise(fresh + b * n(), n(), options.seed,
                           requests[static_cast<size_t>(first + b)].index,
                           (k + 1) * round_up(n(), 4));
            }
        }
        solver->step(k, xs, vs, total, history.as<float>(), fresh);
    }
    return true;
}

std::vector<std::vector<float>> Sampler::run(const Ctx& ctx, const Weights& weights,
                                             const std::vector<SampleRequest>& requests,
                                             const float* negative, const Visit& visit) {
    Impl& s = *impl_;
    VT_CHECK(s.x.data != nullptr, "Sampler::run on measuring arenas");
    std::vector<std::vector<float>> out;
    const auto N = static_cast<int64_t>(requests.size());
    for (int64_t first = 0; first < N; first += s.options.batch) {
        if (!s.follow(ctx, weights, requests, first, negative, visit)) return {};
        for (int64_t b = 0; b < std::min(s.options.batch, N - first); ++b) {
            const float* x = s.x.as<float>() + b * s.n();
            for (int64_t i = 0; i < s.n(); ++i) {
                if (std::isfinite(x[i])) continue;
                raise(
                    Fault::kDiverged,
                    fmt::format("sample {}: the latent is not finite after {} steps",
                                requests[static_cast<size_t>(first + b)].index, s.solver->steps()),
                    "the weights have diverged, or were saved from a run that had");
            }
            out.emplace_back(x, x + s.n());
        }
    }
    return out;
}

}  // namespace vt
