// SPDX-License-Identifier: MIT
// Samples of a trained model: latents by Euler steps with guidance, and their files.
// Floor 5.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/shard.h"
#include "model/model.h"

namespace vt {

struct SampleOptions {
    uint64_t seed = 1;
    int64_t steps = 30;
    double shift = 1.0;
    double guidance = 5.0;  // w of v = vu + w (vc - vu); 1 or less: the caption alone, one forward
};

// One sample to draw. Its starting noise is Philox (seed, Purpose::kSample, id = index, element of
// (C,T,H,W)), so a sample depends on nothing but the weights, the options and its own request.
struct SampleRequest {
    uint64_t index = 0;
    std::string caption;          // for files; the model sees `text`
    const float* text = nullptr;  // (St,text_dim), zero-padded; host memory
};

// Draws samples of one latent shape, one after another: the two halves of guidance share a forward
// of two, so that what else is asked for cannot change a sample's bits. State and steps are f32.
// Works on backends that share host memory.
class Sampler {
  public:
    /// Declares a forward (two samples, or one without guidance) and the state from the arenas, as
    /// Model::declare does: on measuring arenas this only counts. kUser as Model::check says.
    /// `work` is where temporaries live during run().
    Sampler(Model& model, Arena& acts, Arena& work, const LatentShape& shape, int64_t St,
            int64_t text_dim, const SampleOptions& options);
    ~Sampler();
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    /// What Ctx::scratch must hold: Ops::scratch_bytes of this (threads as the pool's).
    [[nodiscard]] ScratchNeed scratch_need() const;

    /// One forward with the meta ops on declarations, so that the arenas see what run() will take.
    void rehearse(const Ctx& meta, const Weights& weights);

    /// The latent (C,T,H,W) of one request. `empty_text` is the embedding of the empty caption,
    /// (St,text_dim) zero-padded. `step` (may be null) is called after each step with its number
    /// from 1; when it returns false the sampling ends and the result is empty. kDiverged if the
    /// result is not finite.
    [[nodiscard]] std::vector<float> run(const Ctx& ctx, const Weights& weights,
                                         const SampleRequest& request, const float* empty_text,
                                         const std::function<bool(int64_t step)>& step = nullptr);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct Sample {
    uint64_t index = 0;
    std::string caption;
    std::vector<float> latent;  // (C,T,H,W), as the data set stores it
    std::vector<float> text;  // (rows,text_dim) without padding, kept with the latent; may be empty
};

struct SampleFiles {
    fs::path latents;              // samples.h5
    fs::path sheet;                // samples.png; empty if the codec is not a built-in one
    std::vector<fs::path> videos;  // sample-NNNNNN.mp4, small ones enlarged; empty without libav
    std::vector<fs::path> gifs;    // the same as .gif, where asked for
};

/// Writes samples of one shape into `dir` (made if needed): samples.h5 (f32 latents with the data
/// set's facts), and where the data set's codec is built in, a contact sheet and one video each. A
/// codec that is not built in is not an error: the latents are what there is.
SampleFiles write_samples(const fs::path& dir, const LatentFacts& facts, const LatentShape& shape,
                          const std::vector<Sample>& samples,
                          const std::vector<float>& empty_caption_text, bool gif = false);

}  // namespace vt
