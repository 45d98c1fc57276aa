// SPDX-License-Identifier: MIT
#include <atomic>
#include <cmath>
#include <limits>
#include <vector>

#include <doctest/doctest.h>

#include "core/arena.h"
#include "core/dtype.h"
#include "core/hash.h"
#include "core/pool.h"

using namespace vt;

TEST_CASE("bf16: rounds to nearest even, keeps specials") {
    CHECK(to_float(to_bf16(1.0F)) == 1.0F);
    CHECK(to_float(to_bf16(1.00390625F)) == 1.0F);       // 1 + 2^-8: tie, even is 1
    CHECK(to_float(to_bf16(1.01171875F)) == 1.015625F);  // 1 + 3 2^-8: tie, even is 1 + 2^-6
    CHECK(std::isnan(to_float(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
    CHECK(std::isinf(to_float(to_bf16(std::numeric_limits<float>::infinity()))));
    CHECK(std::isinf(to_float(to_bf16(3.4e38F))));
    CHECK(to_float(to_bf16(750.0F)) == 752.0F);  // why timesteps never pass through bf16
}

TEST_CASE("arena: measuring and real passes give the same layout; overflow is named") {
    Arena arena("acts", MemCategory::kActivations);
    const auto declare = [&] {
        const Tensor a = arena.alloc("a", {3, 5}, DType::kF32);
        const int64_t m = arena.mark();
        const Tensor b = arena.alloc("b", {1000}, DType::kBF16);
        arena.release(m);
        const Tensor c = arena.alloc("c", {7}, DType::kF64);
        return std::vector<Tensor>{a, b, c};
    };
    CHECK(declare()[0].data == nullptr);
    CHECK(arena.high_water() == 64 + 2048);
    const auto items = arena.high_water_list();
    REQUIRE(items.size() == 2);
    CHECK(items[1].what == "b");
    arena.reserve();
    const auto t = declare();
    REQUIRE(t[0].data != nullptr);
    CHECK(static_cast<char*>(t[1].data) - static_cast<char*>(t[0].data) == 64);
    CHECK(t[2].data == t[1].data);
    CHECK_THROWS_WITH_AS((void)arena.alloc("d", {4096}, DType::kF32), doctest::Contains("acts: d"),
                         Error);
}

TEST_CASE("pool: many short jobs, threads that come late") {
    // More threads than cores and than items: most workers find a job over, or the next one begun.
    for (const int threads : {2, 3, 16}) {
        Pool pool(threads);
        std::atomic<int64_t> sum{0};
        int64_t want = 0;
        for (int64_t job = 0; job < 3000; ++job) {
            const int64_t n = 1 + job % 5;
            std::atomic<int64_t> mine{0};  // gone when the job is over: a late claim would show
            pool.parallel_for(n, [&](int64_t i, int thread) {
                if (thread < 0 || thread >= threads) mine += 1000000;
                mine += i + job;
            });
            CHECK(mine == n * job + n * (n - 1) / 2);
            sum += mine;
            want += n * job + n * (n - 1) / 2;
        }
        CHECK(sum == want);
    }
}

TEST_CASE("pool: every item once, exceptions come back") {
    for (const int threads : {1, 2, 5}) {
        Pool pool(threads);
        std::vector<std::atomic<int>> hits(1000);
        pool.parallel_for(1000, [&](int64_t i, int) { ++hits[size_t(i)]; });
        for (const auto& h : hits) CHECK(h == 1);
        CHECK_THROWS_AS(pool.parallel_for(10,
                                          [](int64_t i, int) {
                                              if (i == 3) raise(Fault::kData, "three");
                                          }),
                        Error);
    }
}

TEST_CASE("xxh3: known answer") {
    CHECK(hex64(xxh3("")) == "2d06800538d394c2");
}
