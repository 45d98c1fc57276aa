// SPDX-License-Identifier: MIT
#include "core/rng.h"

#include "core/check.h"

namespace vt {

uint64_t keyed_permutation(uint64_t seed, Purpose purpose, uint64_t id, uint64_t n,
                           uint64_t index) {
    VT_CHECK(index < n, "permutation index {} of {}", index, n);
    if (n == 1) return 0;
    // Half the bits each side; the domain is at most 4n, so the walk takes four tries on average
    // at worst, and it ends because the network is a bijection.
    const auto bits = static_cast<unsigned>(64 - std::countl_zero(n - 1));
    const unsigned half = (bits + 1) / 2;
    const uint64_t mask = (uint64_t{1} << half) - 1;
    uint64_t x = index;
    do {
        uint64_t left = x >> half, right = x & mask;
        for (uint64_t round = 0; round < 6; ++round) {
            const philox::Block b = philox::block(seed, purpose, id, (right << 3) | round);
            const uint64_t f = ((static_cast<uint64_t>(b[0]) << 32) | b[1]) & mask;
            const uint64_t next = left ^ f;
            left = right;
            right = next;
        }
        x = (left << half) | right;
    } while (x >= n);
    return x;
}

}  // namespace vt
