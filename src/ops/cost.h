// SPDX-License-Identifier: MIT
// Flop and bytes of each op as functions of its sizes: the bench, the plan and the log read these.
// Conventions of the docstrings in ops/*.h: a multiply-add is 2 flop; each tensor is moved once.
// Floor 1.
#pragma once

#include <cstdint>

#include "ops/ctx.h"

namespace vt {

struct Cost {
    double flop = 0;    // all
    double matmul = 0;  // the part done by matrix products and attention
    double bytes = 0;
};

[[nodiscard]] Cost linear_cost(int64_t S, int64_t N, int64_t K, int64_t in_size, int64_t out_size);
/// pairs = sum over segments of Sq_i * Sk_i.
[[nodiscard]] Cost attention_cost(double pairs, int64_t Sq, int64_t Sk, int64_t D, int64_t size,
                                  bool backward);
[[nodiscard]] double segment_pairs(const Segments& q, const Segments& k);

}  // namespace vt
