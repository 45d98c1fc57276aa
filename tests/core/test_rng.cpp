// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/rng.h"

using namespace vt;

TEST_CASE("philox: known answers of the reference implementation") {
    // Random123's kat_vectors, philox4x32 10 rounds: counter and key all zero; all ones.
    // All zero is (seed 0, purpose 0, id 0, index 0).
    CHECK(philox::block(0, Purpose::kInit, 0, 0) ==
          philox::Block{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U});
    CHECK(philox::block(~uint64_t{0}, static_cast<Purpose>(0xff), ~uint64_t{0}, ~uint64_t{0}) ==
          philox::Block{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU});
}

TEST_CASE("philox: normals agree with float64 Box-Muller and have the right moments") {
    double sum = 0, sq = 0, quad = 0;
    const uint64_t n = 200000;
    for (uint64_t i = 0; i < n / 4; ++i) {
        const philox::Block b = philox::block(7, Purpose::kTest, 3, i);
        const std::array<float, 4> z = random_normal4(7, Purpose::kTest, 3, i);
        for (size_t h = 0; h < 2; ++h) {
            const double u = double(b.at(2 * h)) * 0x1p-32 + 0x1p-33;
            const double r = std::sqrt(-2 * std::log(u));
            const double a = 2 * M_PI * double(b.at(2 * h + 1)) * 0x1p-32;
            // 8 u_f32 for the arithmetic; rounding u near 1 moves r^2 by 2u, so r by 2u / 2r,
            // doubled for the polynomial there
            const double tol = 8 * 0x1p-24 * r + std::min(0x1p-11, 2 * 0x1p-24 / std::max(r, 1e-9));
            CHECK(std::abs(z.at(2 * h) - r * std::cos(a)) <= tol);
            CHECK(std::abs(z.at(2 * h + 1) - r * std::sin(a)) <= tol);
        }
        for (const float v : z) {
            sum += double(v);
            sq += double(v) * double(v);
            quad += std::pow(double(v), 4);
        }
    }
    // five standard errors
    CHECK(std::abs(sum / double(n)) < 5 / std::sqrt(double(n)));
    CHECK(std::abs(sq / double(n) - 1) < 5 * std::sqrt(2.0 / double(n)));
    CHECK(std::abs(quad / double(n) - 3) < 5 * std::sqrt(96.0 / double(n)));
}

TEST_CASE("keyed_permutation: a bijection that depends on its key") {
    for (const uint64_t n : {1U, 2U, 3U, 7U, 64U, 65U, 1000U}) {
        CAPTURE(n);
        std::vector<uint64_t> a, b;
        for (uint64_t i = 0; i < n; ++i) {
            a.push_back(keyed_permutation(1, Purpose::kOrder, 0, n, i));
            b.push_back(keyed_permutation(1, Purpose::kOrder, 1, n, i));
        }
        if (n > 7) CHECK(a != b);
        std::sort(a.begin(), a.end());
        for (uint64_t i = 0; i < n; ++i) CHECK(a[i] == i);
    }
}
