// SPDX-License-Identifier: MIT
// What a shard of latents holds and what is known of it. The file format is data/README.md.
// Floor 3.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"

namespace vt {

// The facts without which latents mean nothing. Shards of one run must agree on all of them.
struct LatentFacts {
    std::string codec;  // "haar3d-v1-t2-s4" (built in), "wan2.1-vae", ...
    int64_t channels = 0;
    std::array<int64_t, 3> scale{1, 1, 1};  // pixels per latent along t, h, w
    bool normalised = true;                 // stored latents are (z - mean) / std
    std::vector<double> mean, std;          // per channel, of the raw latents
    std::string text_encoder;               // "vt-hash-v1" (built in), "umt5-xxl", ...
    int64_t text_dim = 0;
    int64_t text_len = 0;  // rows the model sees, zero-padded
    double fps = 0;        // of the encoded clips, 0 = unknown or mixed
    bool operator==(const LatentFacts&) const = default;
};

// One sample to be written.
struct ShardSample {
    std::string id;  // unique inside the data set, e.g. "clips/a.mp4#0"
    std::string caption;
    std::vector<float> latent;  // (C,T,H,W), as normalised says
    std::vector<float> text;    // (rows, text_dim), rows <= text_len, no padding
};

struct ShardOptions {
    DType dtype = DType::kBF16;  // of stored latents and text: f32 or bf16 (as uint16)
};

// Writes one HDF5 shard: one latent shape, contiguous unfiltered payload, appended sample by
// sample, atomically published (written beside `path`, synced, renamed) by close(). Statistics
// (mean/std) must be known before the first sample.
class ShardWriter {
  public:
    ShardWriter(fs::path path, LatentFacts facts, std::array<int64_t, 4> shape /*C,T,H,W*/,
                std::vector<float> empty_caption_text /*(rows,text_dim) of ""*/,
                ShardOptions options);
    ~ShardWriter();  // without close(): the temporary file is removed
    ShardWriter(const ShardWriter&) = delete;
    ShardWriter& operator=(const ShardWriter&) = delete;
    void add(const ShardSample& sample);
    [[nodiscard]] int64_t count() const;
    void close();

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace vt
