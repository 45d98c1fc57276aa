// SPDX-License-Identifier: MIT
// Whether shards can be used together.
// Floor 3.
#pragma once

#include <string>
#include <vector>

#include "data/index.h"

namespace vt {

/// The first fact on which two shards differ, "name: a and b", or "".
[[nodiscard]] std::string difference(const LatentFacts& a, const LatentFacts& b);

/// Are these embeddings of the empty caption one? Shards may store it at different widths, so
/// bfloat16's roundoff is allowed (twice: it may have been rounded by way of another format).
[[nodiscard]] bool same_text(const std::vector<float>& a, const std::vector<float>& b);

// One shard as its neighbours see it.
struct ShardOf {
    const fs::path* path = nullptr;
    const std::string* entry = nullptr;  // of the configuration
    const ShardIndex* index = nullptr;
};

/// kData naming both files unless every shard agrees with the first on facts and empty caption.
void require_agreement(const std::vector<ShardOf>& shards);

/// Warns where a file, or another with the same samples, is there twice.
void warn_twice(const std::vector<ShardOf>& shards);

/// Warns where samples of `valid` are in `train`.
void warn_leak(const std::vector<ShardOf>& train, const std::vector<ShardOf>& valid);

}  // namespace vt
