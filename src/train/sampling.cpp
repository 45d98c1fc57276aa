// SPDX-License-Identifier: MIT
#include "train/sampling.h"

#include "ckpt/run_dir.h"

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
}

void RunSampler::declare() {
    memory_.activations.reset();
    memory_.workspace.reset();
    const SampleOptions options{.seed = static_cast<uint64_t>(config_.run.seed),
                                .steps = config_.log.sample_steps,
                                .shift = Objective(config_.objective).shift(shape_),
                                .guidance = config_.log.sample_guidance};
    const LatentFacts& f = data_.facts();
    sampler_ = std::make_unique<Sampler>(model_, memory_.activations, memory_.workspace, shape_,
                                         f.text_len, f.text_dim, options);
}

std::optional<fs::path> RunSampler::run(const Ctx& ctx, const Weights& weights, int64_t step,
                                        const std::function<bool()>& stop) {
    memory_.tenant = nullptr;  // the sampler is about to overwrite every slot's constants
    std::vector<Sample> samples;
    for (size_t i = 0; i < texts_.size(); ++i) {
        Sample s{i, names_[i], {}, texts_[i]};
        s.latent = sampler_->run(ctx, weights, {i, names_[i], texts_[i].data()}, empty_.data(),
                                 [&](int64_t) { return !stop(); });
        if (s.latent.empty()) return std::nullopt;
        samples.push_back(std::move(s));
    }
    const fs::path dir = fs::path(config_.run.out) / "samples" / step_name(step);
    (void)write_samples(dir, data_.facts(), shape_, samples, empty_);
    return dir;
}

}  // namespace vt
