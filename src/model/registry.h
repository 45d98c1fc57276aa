// SPDX-License-Identifier: MIT
// From [model] and the data's facts to a model. Floor 4.
#pragma once

#include <memory>

#include "data/shard.h"
#include "model/model.h"
#include "model/options.h"
#include "model/wan.h"

namespace vt {

/// The preset with the options' own sizes over it; channels and text width from the data. kUser
/// naming the key if the preset is unknown or contradicts the data.
[[nodiscard]] WanConfig wan_config(const ModelOptions& o, const LatentFacts& facts);

/// May a run with the sizes `run` take weights of the sizes `stored`, which lie at `where`? kUser
/// naming every key of [model] that differs.
void require_same_sizes(const WanConfig& stored, const WanConfig& run, const std::string& where);

[[nodiscard]] std::unique_ptr<Model> make_model(const ModelOptions& o, const LatentFacts& facts,
                                                const Precision& precision);

/// run.precision ("fp32" | "bf16") and model.residual as dtypes.
[[nodiscard]] Precision make_precision(const std::string& precision, const ModelOptions& o);

}  // namespace vt
