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
// Channel ((kt * 2^ls + kh) * 2^ls + kw) * 3 + colour; k = 0 is the mean along that axis, so
// channels 0..2 are a small picture. Pixels enter as u8 / 127.5 - 1.
struct HaarCodec {
    int lt = 1, ls = 2;
    [[nodiscard]] std::string name() const;  // e.g. "haar3d-v1-t2-s4": the id in LatentFacts
    [[nodiscard]] int64_t channels() const;
    [[nodiscard]] static HaarCodec named(std::string_view codec);  // kUser if it is not one of ours
    /// Raw (not normalised) latents (C,T',H/2^ls,W/2^ls). kUser if the sizes do not divide.
    [[nodiscard]] std::vector<float> encode(const Clip& clip) const;
    /// Inverse; rounds and clamps to u8. The repeats of the first frame are dropped.
    [[nodiscard]] Clip decode(const float* latent, int64_t T, int64_t H,
                              int64_t W) const;  // latent dims
};

[[nodiscard]] bool is_builtin_codec(std::string_view codec);

/// Pixels of a stored latent (C,T,H,W): undoes the normalisation that `facts` states, then decodes.
/// The clip's fps is the data set's. kUser naming the codec if it is not a built-in one.
[[nodiscard]] Clip decode_latent(const LatentFacts& facts, const float* latent, int64_t T,
                                 int64_t H, int64_t W);

/// Deterministic embedding of a caption: (rows, dim) f32, one row per word plus an end row; at most
/// max_rows. A stand-in for T5, not a language model: words are lower-cased runs of letters and
/// digits; the first dim - dim/4 numbers of a row depend on the word alone (equal words, equal
/// numbers), the rest on its place in the caption (sinusoids). "" gives the end row alone.
[[nodiscard]] std::vector<float> embed_caption(std::string_view caption, int64_t dim,
                                               int64_t max_rows);
inline constexpr const char* kBuiltinTextEncoder = "vt-hash-v1";

}  // namespace vt
