// SPDX-License-Identifier: MIT
// What `vtrain data stats` counts, against numbers put there.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/file.h"
#include "data/stats.h"
#include "tests/data/make.h"
#include "tests/data/refused.h"
#include "tests/paths.h"

using namespace vt;
using namespace vt::test;

TEST_CASE("stats: a histogram of the latents' values, counted exactly") {
    const TempDir dir;
    const LatentFacts f = small_facts(2);
    const auto next = [](float v, float to) { return std::nextafter(v, to); };
    // values on both sides of edges, per bin; what is left of a sample is 0.25
    const std::vector<float> edges{-1e30F,  next(-4, -5),  -4.0F, next(-3.5F, -4), -3.5F,
                                   -1e-38F, -0.0F,         0.0F,  1e-38F,          0.5F,
                                   1.0F,    next(1.5F, 1), 1.5F,  3.75F,           next(4, 3),
                                   4.0F,    5.0F,          1e30F};
    const auto write = [&](const fs::path& path, std::array<int64_t, 4> shape) {
        ShardWriter w(path, f, shape, small_empty(f), {.dtype = DType::kF32});
        for (int64_t i = 0; i < 3; ++i) {
            ShardSample sample = small_sample(f, shape, 9, i);
            std::fill(sample.latent.begin(), sample.latent.end(), 0.25F);
            // in both channels
            for (size_t k = 0; k < edges.size(); ++k) sample.latent[k * 2] = edges[k];
            w.add(sample);
        }
        w.close();
    };
    write(dir / "a.h5", {2, 2, 3, 4});
    write(dir / "b.h5", {2, 1, 4, 5});
    StatsOptions o;
    o.index = kFresh;
    const DataStats s = data_stats({dir / "a.h5", dir / "b.h5"}, {}, o);
    const ValueCounts& v = s.values;
    constexpr int64_t kTimes = 6, kFill = 3 * (48 - 18) + 3 * (40 - 18);
    std::array<int64_t, ValueCounts::kBins> want{};
    want[0] = 2 * kTimes;          // -4 and the last before -3.5
    want[1] = kTimes;              // -3.5
    want[7] = kTimes;              // the least below 0
    want[8] = 3 * kTimes + kFill;  // 0 of both signs, the least above, 0.25
    want[9] = kTimes;              // 0.5
    want[10] = 2 * kTimes;         // 1 and the last before 1.5
    want[11] = kTimes;             // 1.5
    want[15] = 2 * kTimes;         // 3.75 and the last before 4
    CHECK(v.bins == want);
    CHECK(v.below == 2 * kTimes);
    CHECK(v.above == 3 * kTimes);
    CHECK(v.zeros == 2 * kTimes);
    CHECK(v.not_finite == 0);
    CHECK(v.finite() == 3 * (48 + 40));

    // two of a sample's numbers are none: that sample is bad, the others are counted
    std::string bytes = read_file(dir / "a.h5");
    const std::string four("\0\0\x80\x40", 4);  // 4.0F, of the first sample
    const size_t at = bytes.find(four);
    REQUIRE(at != std::string::npos);
    bytes.replace(at, 4, std::string("\0\0\xc0\x7f", 4));      // NaN
    bytes.replace(at + 8, 4, std::string("\0\0\x80\x7f", 4));  // infinity
    write_atomic(dir / "c.h5", bytes);
    const DataStats bad = data_stats({dir / "c.h5"}, {}, o);
    CHECK(bad.bad_samples.size() == 1);
    CHECK(bad.values.not_finite == 2);
    CHECK(bad.values.finite() == 2 * 48);
    CHECK(bad.values.zeros == 4);

    const std::string paths = " " + (dir / "a.h5").string() + " " + (dir / "b.h5").string();
    Ran ran = run(program().string() + " data stats --json" + paths);
    CHECK(ran.code == 0);
    for (const char* part : {"\"latent_values\"", "\"below\": 12", "\"above\": 18", "\"zeros\": 12",
                             "\"not_finite\": 0"}) {
        CHECK_MESSAGE(has(ran.output, part), ran.output);
    }
    ran = run(program().string() + " data stats" + paths);
    for (const char* part :
         {"264 latent values of all channels, as stored", "4.0 and above", " 6.818 %",
          "exactly 0: 12 (4.545 %); infinite or NaN, in bad samples: 0"}) {
        CHECK_MESSAGE(has(ran.output, part), ran.output);
    }
}
