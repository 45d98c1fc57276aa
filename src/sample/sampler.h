// SPDX-License-Identifier: MIT
// Samples of a trained model: latents along a solver's path with guidance, and their files.
// Floor 5.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/shard.h"
#include "model/model.h"
#include "sample/solver.h"

namespace vt {

struct SampleOptions {
    uint64_t seed = 1;
    std::string guidance = "5";  // as guidance_weights() reads it
    int64_t batch = 1;           // samples at a time
};

// One sample to draw. Its starting noise is Philox (seed, Purpose::kSample, id = index, element of
// (C,T,H,W)); what a solver adds after step k (from 0) are the elements from (k + 1) n on, n the
// latent's size rounded up to 4. So a sample depends on nothing but the weights, the options and
// its own request.
struct SampleRequest {
    uint64_t index = 0;
    const float* text = nullptr;  // (St,text_dim), zero-padded; host memory
};

// One point of the paths being followed: what the model was asked and what it said.
struct PathPoint {
    int64_t step = 0;          // from 1 to steps
    int64_t first = 0;         // place in the requests of row 0 of x and v
    int64_t count = 0;         // rows: samples followed together
    float sigma = 0;           // Solver::sigma before this step
    float next_sigma = 0;      // and after it
    float tau = 0;             // the timestep given to the model
    float guidance = 0;        // w of this step; 1 or less: none
    const float* x = nullptr;  // (count,C,T,H,W): x_t
    const float* v = nullptr;  // (count,C,T,H,W): the model's output, after guidance
};
/// Called at every step, after the model and before the solver moves x. x and v are valid until it
/// returns; when it returns false the sampling ends.
using Visit = std::function<bool(const PathPoint&)>;

// Draws samples of one latent shape. Every sample's bits are the same whatever else is asked for
// and however many are drawn at a time. State and steps are f32. Works on backends that share host
// memory.
class Sampler {
  public:
    /// Declares the forwards and the state from the arenas, as Model::declare does: on measuring
    /// arenas this only counts. kUser as Model::check and guidance_weights say. `work` is where
    /// temporaries live during run().
    Sampler(Model& model, Arena& acts, Arena& work, const LatentShape& shape, int64_t St,
            int64_t text_dim, std::shared_ptr<const Solver> solver, const SampleOptions& options);
    ~Sampler();
    Sampler(const Sampler&) = delete;
    Sampler& operator=(const Sampler&) = delete;

    /// What Ctx::scratch must hold: Ops::scratch_bytes of this (threads as the pool's).
    [[nodiscard]] ScratchNeed scratch_need() const;

    /// Each kind of forward once with the meta ops on declarations, so that the arenas see what
    /// run() will take.
    void rehearse(const Ctx& meta, const Weights& weights);

    /// The latents (C,T,H,W) of the requests, in their order. `negative` (St,text_dim) zero-padded
    /// is what guidance leads away from: the empty caption's embedding, or a negative prompt's.
    /// Empty if `visit` (may be null) returned false. kDiverged if a result is not finite.
    [[nodiscard]] std::vector<std::vector<float>> run(const Ctx& ctx, const Weights& weights,
                                                      const std::vector<SampleRequest>& requests,
                                                      const float* negative,
                                                      const Visit& visit = nullptr);

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
    fs::path latents;  // samples.h5
    fs::path sheet;    // samples.png; empty if the codec is not a built-in one
    // sample-NNNNNN.mp4, small ones enlarged; none without libav. An image: sample-NNNNNN.png
    std::vector<fs::path> videos;
    std::vector<fs::path> gifs;  // the same as .gif, where asked for
};

/// Writes samples of one shape into `dir` (made if needed): samples.h5 (f32 latents with the data
/// set's facts), samples.json (captions), and where the data set's codec is built in, a contact
/// sheet and one video each. A codec that is not built in is not an error: the latents are what
/// there is.
SampleFiles write_samples(const fs::path& dir, const LatentFacts& facts, const LatentShape& shape,
                          const std::vector<Sample>& samples,
                          const std::vector<float>& empty_caption_text, bool gif = false);

}  // namespace vt
