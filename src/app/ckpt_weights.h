// SPDX-License-Identifier: MIT
// What the commands that take weights out of checkpoints share.
// Floor 7.
#pragma once

#include <string>

#include "ckpt/load.h"
#include "model/wan_params.h"

namespace vt {

inline constexpr const char* kWanSizes = "wan_config";  // CheckpointInfo::extra of bare weights

/// The sizes of the weights in a checkpoint.
[[nodiscard]] WanConfig sizes_of(const CheckpointInfo& info, const fs::path& dir);

/// "model", or the kind "ema<k>" that `ema` names: empty for the weights themselves, a number
/// counted as in optim.ema_decay from 0, or a decay with its point ("0.999"). kUser if the
/// checkpoint has no such average.
[[nodiscard]] std::string weights_kind(const CheckpointReader& checkpoint, const fs::path& dir,
                                       const std::string& ema);

}  // namespace vt
