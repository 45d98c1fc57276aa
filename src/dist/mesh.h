// SPDX-License-Identifier: MIT
// Ranks and their coordinates on the axes. World = pp x dp x cp x tp,
// rank = ((pp_i * DP + dp_i) * CP + cp_i) * TP + tp_i; ep is taken out of dp x cp, fastest first.
// Floor 3.
#pragma once

#include <string>
#include <vector>

#include "config/field.h"

namespace vt {

// [parallel]
struct ParallelOptions {
    int64_t tp = 1, cp = 1, pp = 1, ep = 1;  // dp is what remains of the ranks
    int64_t zero_stage = 1;
};
[[nodiscard]] std::vector<Field> fields(ParallelOptions& o);

struct Mesh {
    int world = 1, rank = 0;
    int dp = 1, tp = 1, cp = 1, pp = 1, ep = 1;
    int dp_i = 0, tp_i = 0, cp_i = 0, pp_i = 0, ep_i = 0;
    [[nodiscard]] std::string str() const;  // "dp 1 x tp 1 x cp 1 x pp 1 (ep 1), 1 rank"
};

/// The one place where degrees are validated. kUser with the equation and the fix.
[[nodiscard]] Mesh make_mesh(const ParallelOptions& o, int world, int rank);

}  // namespace vt
