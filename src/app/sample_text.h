// SPDX-License-Identifier: MIT
// What `vtrain sample` is asked to draw: captions and their embeddings.
// Floor 7.
#pragma once

#include <string>
#include <vector>

#include "data/shard.h"

namespace vt {

struct PromptFlags {
    std::vector<std::string> prompts;
    std::string prompts_file, negative, embeddings;
};

// Captions and, in the same order, their embeddings, each (text_len, text_dim) zero-padded.
struct Texts {
    std::vector<std::string> captions;
    std::vector<std::vector<float>> embedded;
    std::vector<float> empty;     // of the empty caption
    std::vector<float> negative;  // what guidance leads away from; the empty one if none is given
};

/// From the captions given and the built-in embedder, or from the safetensors file `embeddings`:
///   text      (captions, rows, text_dim)   rows <= text_len; zero rows at the end are padding
///   empty     (rows, text_dim)             of the empty caption
///   negative  (rows, text_dim)             optional
/// With a file, captions are only names for the samples and may be left out. kUser if there is
/// nothing to draw, the model's text encoder is not built in and no file is given, or a tensor does
/// not fit.
[[nodiscard]] Texts read_texts(const PromptFlags& flags, const LatentFacts& facts);

}  // namespace vt
