// SPDX-License-Identifier: MIT
// The built-in latent codec (an invertible 3-D Haar wavelet on pixels) and the built-in caption
// embedder (a deterministic stand-in for T5).
// Floor 3.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/shard.h"

namespace vt {

// RGB frames, (T,H,W,3) u8, full range.
struct Clip {
    int64_t T = 0, H = 0, W = 0;
    double fps = 0;
    std::vector<uint8_t> rgb;
};

// Levels: `lt` halvings in time and `ls` in space. C = 3 * 2^lt * 4^ls; a clip of T frames (T = 1
// mod 2^lt) has (T-1)/2^lt + 1 latent frames, the first frame repeated to fill its group, so that
// an image is T = 1. Orthonormal, so the decode of the encode is exact up to rounding.
struct HaarCodec {
    int lt = 1, ls = 2;
    [[nodiscard]] std::string name() const;  // "haar3d-v1-t2-s4": the codec id in LatentFacts
    [[nodiscard]] int64_t channels() const;
    [[nodiscard]] static HaarCodec named(std::string_view codec);  // kUser if it is not one of ours
    /// Raw (not normalised) latents (C,T',H/2^ls,W/2^ls). kUser if the sizes do not divide.
    [[nodiscard]] std::vector<float> encode(const Clip& clip) const;
    /// Inverse; rounds and clamps to u8. The repeats of the first frame are dropped.
    [[nodiscard]] Clip decode(const float* latent, int64_t T, int64_t H,
                              int64_t W) const;  // latent dims
};

/// Deterministic embedding of a caption: (rows, dim) f32, one row per word plus an end row; at most
/// max_rows. A stand-in for T5 that makes equal words equal vectors. "" gives the end row alone.
[[nodiscard]] std::vector<float> embed_caption(std::string_view caption, int64_t dim,
                                               int64_t max_rows);
inline constexpr const char* kBuiltinTextEncoder = "vt-hash-v1";

}  // namespace vt
