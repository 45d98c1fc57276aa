// SPDX-License-Identifier: MIT
// Floor 1. See ops/cost.h.
#include "ops/cost.h"

namespace vt {

namespace {
double d(int64_t n) {
    return static_cast<double>(n);
}
}  // namespace

Cost linear_cost(int64_t S, int64_t N, int64_t K, int64_t in_size, int64_t out_size) {
    const double flop = 2 * d(S) * d(N) * d(K);
    return {.flop = flop,
            .matmul = flop,
            .bytes = d(in_size) * (d(S) * d(K) + d(N) * d(K)) + d(out_size) * d(S) * d(N)};
}

// The row statistics (lse, delta: 1/HD of q each) are not counted in bytes.
Cost attention_cost(double pairs, int64_t Sq, int64_t Sk, int64_t D, int64_t size, bool backward) {
    const double flop = (backward ? 8 : 4) * pairs * d(D);
    // forward: q, o and k, v; backward: dout, q, dq and k, v, dk, dv
    const double rows = backward ? 3 * d(Sq) + 4 * d(Sk) : 2 * d(Sq) + 2 * d(Sk);
    return {.flop = flop, .matmul = flop, .bytes = rows * d(D) * d(size)};
}

double segment_pairs(const Segments& q, const Segments& k) {
    double pairs = 0;
    for (int64_t i = 0; i < q.n; ++i) {
        pairs += d(q.begin[i + 1] - q.begin[i]) * d(k.begin[i + 1] - k.begin[i]);
    }
    return pairs;
}

}  // namespace vt
