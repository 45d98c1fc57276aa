// SPDX-License-Identifier: MIT
// The matrix library behind f32 products: that it is used where it is said to be, computes what it
// should, and gives the same bits from several threads at once.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/pool.h"
#include "core/rng.h"
#include "cpu/isa.h"
#include "cpu/onednn.h"

using namespace vt;

namespace {

std::vector<float> numbers(int64_t n, uint64_t id) {
    std::vector<float> v(static_cast<size_t>(n));
    for (size_t i = 0; i < v.size(); ++i) v[i] = random_normal(7, Purpose::kTest, id, i);
    return v;
}

}  // namespace

TEST_CASE("cpu/onednn: blocks of every form, from three threads at once") {
    if (best_isa() < Isa::kAvx512) return;
    const int64_t M = 37, N = 70, K = 100;
    const auto u = [](int64_t i) { return static_cast<size_t>(i); };
    const std::vector<float> a = numbers(M * K, 1), b = numbers(K * N, 2), c0 = numbers(M * N, 3);
    for (int form = 0; form < 8; ++form) {
        CAPTURE(form);
        BlockProduct p;
        p.M = M;
        p.N = N;
        p.K = K;
        p.a_across = (form & 1) != 0;
        p.b_across = (form & 2) != 0;
        p.add = (form & 4) != 0;
        p.lda = p.a_across ? M : K;
        p.ldb = p.b_across ? N : K;
        p.ldc = N;
        std::vector<std::vector<float>> results(6, c0);
        Pool pool(3);
        // 64-byte alignment is the caller's part
        std::vector<char> scratch(u(3 * kLibraryScratch + 64));
        char* aligned = scratch.data() + (64 - reinterpret_cast<uintptr_t>(scratch.data()) % 64);
        std::vector<char> done(6);
        pool.parallel_for(6, [&](int64_t i, int thread) {
            done[u(i)] = static_cast<char>(library_product(
                p, a.data(), b.data(), results[u(i)].data(), aligned + thread * kLibraryScratch));
        });
        for (int64_t i = 0; i < 6; ++i) {
            CHECK(done[u(i)] == 1);  // a fall back to other kernels would be silent
            CHECK(results[u(i)] == results[0]);
        }
        double worst = 0;  // in units of what rounding each of K terms once could make
        for (int64_t m = 0; m < M; ++m) {
            for (int64_t n = 0; n < N; ++n) {
                double sum = p.add ? c0[u(m * N + n)] : 0, size = std::fabs(sum);
                for (int64_t k = 0; k < K; ++k) {
                    const double term = double{a[u(p.a_across ? k * M + m : m * K + k)]} *
                                        double{b[u(p.b_across ? k * N + n : n * K + k)]};
                    sum += term;
                    size += std::fabs(term);
                }
                worst = std::max(worst, std::fabs(double{results[0][u(m * N + n)]} - sum) / size);
            }
        }
        CHECK(worst <= 4 * std::sqrt(static_cast<double>(K)) * 0x1p-24);
    }
}
