// SPDX-License-Identifier: MIT
// The noise that training draws: its moments, its distribution, and that no two uses share it.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/rng.h"

using namespace vt;

namespace {

std::vector<double> noise(Purpose purpose, uint64_t id, int64_t n, uint64_t seed = 21) {
    std::vector<double> out;
    for (int64_t i = 0; i < n; i += 4) {
        for (const float x : random_normal4(seed, purpose, id, uint64_t(i) / 4)) {
            out.push_back(double(x));
        }
    }
    return out;
}

double correlation(const std::vector<double>& a, const std::vector<double>& b, size_t lag = 0) {
    double sum = 0;
    const size_t n = a.size() - lag;
    for (size_t i = 0; i < n; ++i) sum += a[i] * b[i + lag];
    return sum / std::sqrt(double(n));  // standard normal for independent normals
}

constexpr int64_t kN = 1 << 18;
// Statistics below are standard normal for perfect noise; |z| > 5 has probability 6e-7. Seeds are
// fixed, so that is a statement about the one run that chose them.
constexpr double kZ = 5;

}  // namespace

TEST_CASE("noise: mean, variance, skewness, kurtosis") {
    const std::vector<double> x = noise(Purpose::kNoise, 5000000000, kN);
    double m1 = 0, m2 = 0, m3 = 0, m4 = 0;
    for (const double v : x) {
        m1 += v;
        m2 += v * v;
        m3 += v * v * v;
        m4 += v * v * v * v;
    }
    const auto n = double(kN), root = std::sqrt(n);
    // E x^2k = 1, 3, 15, 105: the variances of the powers are 1, 2, 15 and 96
    CHECK(std::abs(m1 / n) * root < kZ);
    CHECK(std::abs(m2 / n - 1) * root / std::sqrt(2.0) < kZ);
    CHECK(std::abs(m3 / n) * root / std::sqrt(15.0) < kZ);
    CHECK(std::abs(m4 / n - 3) * root / std::sqrt(96.0) < kZ);
}

TEST_CASE("noise: Kolmogorov and Smirnov, and chi-square in the tails") {
    std::vector<double> x = noise(Purpose::kNoise, 12, kN);
    std::sort(x.begin(), x.end());
    double worst = 0;
    const auto n = double(kN);
    const auto cdf = [](double v) { return 0.5 * std::erfc(-v / std::sqrt(2.0)); };
    for (size_t i = 0; i < x.size(); ++i) {
        const double f = cdf(x[i]);
        worst = std::max({worst, f - double(i) / n, double(i + 1) / n - f});
    }
    // sqrt(n) D passes 2.7 with probability 2 exp(-2 * 2.7^2) = 9e-7
    CHECK(worst * std::sqrt(n) < 2.7);
    // equal parts of [-4, 4] and the two tails: 42 bins, 41 degrees of freedom, 1e-6 at 104
    double statistic = 0;
    for (int b = 0; b < 42; ++b) {
        const double low = b == 0 ? -1e9 : -4 + 0.2 * (b - 1), high = b == 41 ? 1e9 : -4 + 0.2 * b;
        const auto count = double(std::lower_bound(x.begin(), x.end(), high) -
                                  std::lower_bound(x.begin(), x.end(), low));
        const double want = n * (cdf(high) - cdf(low));
        statistic += (count - want) * (count - want) / want;
    }
    CHECK(statistic < 104);
    CHECK(x.back() > 4.2);  // the tails are there: P(none of 2^18 above) = 0.03
    CHECK(x.front() < -4.2);
}

TEST_CASE("noise: ordinals, purposes, seeds and neighbours are independent") {
    const std::vector<double> x = noise(Purpose::kNoise, 100, kN);
    for (const uint64_t other :
         {uint64_t{101}, uint64_t{228}, uint64_t{100} + (uint64_t{1} << 32), uint64_t{100} << 32}) {
        CAPTURE(other);
        CHECK(std::abs(correlation(x, noise(Purpose::kNoise, other, kN))) < kZ);
    }
    for (const Purpose p :
         {Purpose::kTimestep, Purpose::kValid, Purpose::kSample, Purpose::kInit}) {
        CAPTURE(int(p));
        CHECK(std::abs(correlation(x, noise(p, 100, kN))) < kZ);
    }
    CHECK(std::abs(correlation(x, noise(Purpose::kNoise, 100, kN, 22))) < kZ);
    for (const size_t lag : {1, 2, 3, 4, 5, 16, 64, 1024}) {
        CAPTURE(lag);
        CHECK(std::abs(correlation(x, x, lag)) < kZ);
    }
    // squares too: Box-Muller's pairs share a radius
    std::vector<double> squares;
    for (const double v : x) squares.push_back((v * v - 1) / std::sqrt(2.0));
    for (const size_t lag : {1, 2, 3, 4}) CHECK(std::abs(correlation(squares, squares, lag)) < kZ);
    // and the timestep of a draw says nothing of its noise
    double sum = 0;
    for (uint64_t i = 0; i < 20000; ++i) {
        const double u = random_unit(21, Purpose::kTimestep, i, 0) - 0.5;
        sum += std::sqrt(12.0) * u * double(random_normal(21, Purpose::kNoise, i, 0));
    }
    CHECK(std::abs(sum) / std::sqrt(20000.0) < kZ);
}
