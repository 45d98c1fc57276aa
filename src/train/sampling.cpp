// SPDX-License-Identifier: MIT
#include "train/sampling.h"

#include "ckpt/run_dir.h"
#include "core/check.h"
#include "data/codec.h"
#include "sample/choose.h"

namespace vt {

RunSampler::RunSampler(const RunConfig& config, Model& model, const Dataset& data, Memory& memory)
    : config_(config), model_(model), data_(data), memory_(memory) {
    const LatentFacts& f = data.facts();
    const Shape text_shape = {f.text_len, f.text_dim};
    const auto text_size = static_cast<size_t>(text_shape.numel());
    const std::array<int64_t, 4> s = data.sample(0, 0).shape;
    shape_ = {s[0], s[1], s[2], s[3]};
    std::vector<float> latent(static_cast<size_t>(shape_.numel()));
    for (int64_t i = 0;
         i < data.source_size(0) && static_cast<int64_t>(texts_.size()) < config.log.sample_count;
         ++i) {
        if (data.sample(0, i).shape != s) continue;
        std::vector<float> text(text_size);
        data.read(0, i, Tensor(latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32),
                  Tensor(text.data(), text_shape, DType::kF32));
        texts_.push_back(std::move(text));
        names_.push_back(data.caption(0, i));
    }
    empty_.resize(text_size);
    data.read_empty_text(Tensor(empty_.data(), text_shape, DType::kF32));
    negative_ = empty_;
    if (const std::string& prompt = config.log.sample_negative_prompt; !prompt.empty()) {
        if (f.text_encoder != kBuiltinTextEncoder) {
            raise(
                Fault::kUser,
                fmt::format("log.sample_negative_prompt = \"{}\": the data's text encoder '{}' is "
                            "not built in",
                            prompt, f.text_encoder),
                "leave it out here, and give `vtrain sample` embeddings of your own");
        }
        negative_ = embed_caption(prompt, f.text_dim, f.text_len);
        negative_.resize(text_size, 0.0F);
    }
}

void RunSampler::declare() {
    memory_.activations.reset();
    memory_.workspace.reset();
    const SampleOptions options{.seed = static_cast<uint64_t>(config_.run.seed),
                                .guidance = fmt::format("{}", config_.log.sample_guidance),
                                .batch = 1};
    auto solver = choose_solver(config_.objective, shape_,
                                {.solver = config_.log.sample_solver,
                                 .steps = config_.log.sample_steps,
                                 .shift = config_.log.sample_shift});
    const LatentFacts& f = data_.facts();
    sampler_ = std::make_unique<Sampler>(model_, memory_.activations, memory_.workspace, shape_,
                                         f.text_len, f.text_dim, std::move(solver), options);
}

std::optional<fs::path> RunSampler::run(const Ctx& ctx, const Weights& weights, int64_t step,
                                        const std::function<bool()>& stop) {
    memory_.tenant = nullptr;  // the sampler is about to overwrite every slot's constants
    std::vector<SampleRequest> requests;
    for (size_t i = 0; i < texts_.size(); ++i) requests.push_back({i, texts_[i].data()});
    auto latents = sampler_->run(ctx, weights, requests, negative_.data(),
                                 [&](const PathPoint&) { return !stop(); });
    if (latents.empty()) return std::nullopt;
    std::vector<Sample> samples;
    for (size_t i = 0; i < texts_.size(); ++i) {
        samples.push_back({i, names_[i], std::move(latents[i]), texts_[i]});
    }
    const fs::path dir = fs::path(config_.run.out) / "samples" / step_name(step);
    (void)write_samples(dir, data_.facts(), shape_, samples, empty_);
    return dir;
}

}  // namespace vt
