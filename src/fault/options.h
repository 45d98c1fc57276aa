// SPDX-License-Identifier: MIT
// [health]: when a step counts as bad, and what follows. Floor 5.
#pragma once

#include <cstdint>
#include <vector>

#include "config/field.h"

namespace vt {

struct HealthOptions {
    bool enabled = true;
    int64_t window = 128;
    int64_t min_history = 32;
    double loss_z = 6;
    double grad_norm_z = 6;
    int64_t max_consecutive = 3;
    bool rollback = true;
    int64_t settle_iters = 10;
    int64_t max_rollbacks = 3;
};
[[nodiscard]] std::vector<Field> fields(HealthOptions& o);

}  // namespace vt
