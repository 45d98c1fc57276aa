// SPDX-License-Identifier: MIT
// Samples during training: captions of the validation set, or of the training set where there is
// none; always the same ones with the same noise, so that a run's pictures can be laid side by
// side. Floor 6.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/loader.h"
#include "sample/sampler.h"
#include "train/memory.h"
#include "train/options.h"

namespace vt {

class RunSampler {
  public:
    /// Takes the captions of log.sample_count samples of `data` that share the first one's shape.
    /// kUser if log.sample_negative_prompt is set and the data's text encoder is not built in.
    RunSampler(const RunConfig& config, Model& model, const Dataset& data, Memory& memory);

    /// Declares the sampler (measuring or real).
    void declare();
    [[nodiscard]] ScratchNeed scratch_need() const { return sampler_->scratch_need(); }
    /// One forward on declarations, for the plan.
    void rehearse(const Ctx& meta, const Weights& weights) { sampler_->rehearse(meta, weights); }

    /// Draws and writes everything into run.out/samples/step-N; returns that folder, or nothing,
    /// with nothing written, if stop() turned true meanwhile.
    std::optional<fs::path> run(const Ctx& ctx, const Weights& weights, int64_t step,
                                const std::function<bool()>& stop);

  private:
    const RunConfig& config_;
    Model& model_;
    const Dataset& data_;
    Memory& memory_;
    LatentShape shape_;
    std::vector<std::vector<float>> texts_;  // (text_len, text_dim) each
    std::vector<std::string> names_;
    std::vector<float> empty_, negative_;
    std::unique_ptr<Sampler> sampler_;
};

}  // namespace vt
