// SPDX-License-Identifier: MIT
// LatentFacts as JSON, the form they have in a checkpoint: a model is of no use without the codec
// and the text encoder it was trained with. Floor 3.
#pragma once

#include <string>

#include "data/shard.h"

namespace vt {

[[nodiscard]] std::string facts_json(const LatentFacts& facts);
/// kData naming `where` and the field if the text is not what facts_json writes.
[[nodiscard]] LatentFacts facts_from_json(const std::string& text, const std::string& where);

}  // namespace vt
