// SPDX-License-Identifier: MIT
// [checkpoint]. Floor 5.
#pragma once

#include <string>
#include <vector>

#include "config/field.h"

namespace vt {

struct CheckpointOptions {
    int64_t save_interval = 0;    // steps; 0: only at the end and on signals
    int64_t keep_last = 3;        // at least 2
    std::string resume = "auto";  // auto | none | a path
};
[[nodiscard]] std::vector<Field> fields(CheckpointOptions& o);

}  // namespace vt
