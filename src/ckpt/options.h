// SPDX-License-Identifier: MIT
// [checkpoint]. Floor 5.
#pragma once

#include <string>
#include <vector>

#include "config/field.h"

namespace vt {

struct CheckpointOptions {
    int64_t save_interval = 0;            // steps; 0: only at the end and on signals
    int64_t keep_last = 3;                // at least 2
    int64_t keep_every = 0;               // steps that stay for ever; 0: none
    std::string resume = "auto";          // auto | none | a path
    std::string async = "auto";           // auto | on | off
    double deadline_s = 1800;             // seconds; 0: none
    std::string on_failure = "continue";  // continue | stop
    int64_t max_failures = 3;             // in a row
};
[[nodiscard]] std::vector<Field> fields(CheckpointOptions& o);

}  // namespace vt
