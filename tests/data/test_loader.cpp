// SPDX-License-Identifier: MIT
// The loader: its batches are the pure functions of order.h applied to the shards, whatever the
// threads do, wherever it starts, and whichever samples are bad.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <thread>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/hash.h"
#include "data/index.h"
#include "data/order.h"
#include "tests/data/running.h"
#include "tests/paths.h"

using namespace vt;
using namespace vt::test;

TEST_CASE("loader: steps hold what plan, draws and shards say") {
    const Shards s;
    Running run(*s.data, kOptions, 0);
    std::vector<float> empty(24), text(24);
    s.data->read_empty_text({empty.data(), {4, 6}, DType::kF32});
    int64_t dropped = 0, mixed = 0;
    double wait = 0;
    for (uint64_t step = 0; step < 6; ++step) {
        const StepBatch& b = run.loader->next(&wait);
        CHECK(b.first == step * 11);
        CHECK(b.next == step * 11 + 11);
        CHECK(b.replaced == 0);
        const auto plan = plan_step(*s.data, 6, b.first, 11, 4);
        REQUIRE(plan.size() == b.micros.size());
        std::set<std::array<int64_t, 4>> shapes;
        for (size_t k = 0; k < plan.size(); ++k) {
            const MicroBatch& m = b.micros[k];
            shapes.insert(m.shape);
            CHECK(m.shape == plan[k].shape);
            REQUIRE(m.draws.size() == plan[k].slots.size());
            const auto n = static_cast<int64_t>(m.draws.size());
            CHECK(m.x0.shape == Shape{n, 3, m.shape[1], m.shape[2], m.shape[3]});
            CHECK(reinterpret_cast<uintptr_t>(m.x0.data) % 64 == 0);
            CHECK(reinterpret_cast<uintptr_t>(m.text.data) % 64 == 0);
            const auto elements = static_cast<size_t>(m.x0.numel() / n);
            std::vector<float> latent(elements);
            for (size_t i = 0; i < m.draws.size(); ++i) {
                const Draw& d = m.draws[i];
                const Draw want =
                    draw_at(*s.data, 6, b.first + static_cast<uint64_t>(plan[k].slots[i]));
                CHECK(d.ordinal == want.ordinal);
                CHECK(d.source == want.source);
                CHECK(d.index == want.index);
                CHECK(m.ordinals.as<int64_t>()[i] == static_cast<int64_t>(d.ordinal));
                s.data->read(d.source, d.index,
                             {latent.data(), {3, m.shape[1], m.shape[2], m.shape[3]}, DType::kF32},
                             {text.data(), {4, 6}, DType::kF32});
                CHECK(std::memcmp(latent.data(), m.x0.as<float>() + i * elements, elements * 4) ==
                      0);
                const bool drop = caption_dropped(6, d.ordinal, 0.3);
                dropped += drop ? 1 : 0;
                CHECK(std::memcmp(drop ? empty.data() : text.data(), m.text.as<float>() + i * 24,
                                  96) == 0);
            }
        }
        mixed += shapes.size() > 1 ? 1 : 0;
    }
    CHECK(dropped > 5);  // of 66, 20 expected
    CHECK(mixed > 0);
    CHECK(wait >= 0);
}

TEST_CASE("loader: any start, any number of threads, the same steps") {
    const Shards s;
    std::vector<uint64_t> want;
    {
        LoaderOptions o = kOptions;
        o.reader_threads = 1;
        Running run(*s.data, o, 5);
        for (int i = 0; i < 12; ++i) want.push_back(hash_of(run.loader->next(nullptr)));
    }
    for (const int threads : {1, 2, 8}) {
        LoaderOptions o = kOptions;
        o.reader_threads = threads;
        for (const size_t start : {0U, 1U, 7U}) {
            Running run(*s.data, o, 5 + start * 11);
            for (size_t i = start; i < 12; ++i) {
                REQUIRE(hash_of(run.loader->next(nullptr)) == want[i]);
            }
        }
    }
}

TEST_CASE("loader: a batch larger than the data set, and steps left unread") {
    const Shards s;
    LoaderOptions o = kOptions;
    o.global_batch_size = 150;  // more than the 43 samples: epochs inside one step
    o.micro_batch_size = 64;
    Running run(*s.data, o, 0);
    const StepBatch& b = run.loader->next(nullptr);
    int64_t n = 0;
    for (const MicroBatch& m : b.micros) n += static_cast<int64_t>(m.draws.size());
    CHECK(n == 150);
    // ended while the next step is being read: no hang, nothing leaks (seen by the sanitizers)
    for (int i = 0; i < 20; ++i) Running(*s.data, o, 0);
}

TEST_CASE("loader: a growing batch takes every draw once and resumes at any of its cursors") {
    const Shards s;
    LoaderOptions o = kOptions;
    o.ramp = {.start = 2, .increment = 3, .samples = 40};
    std::vector<uint64_t> cursors{0}, hashes;
    std::vector<int64_t> batches;
    {
        Running run(*s.data, o, 0);
        for (int i = 0; i < 14; ++i) {
            const StepBatch& b = run.loader->next(nullptr);
            CHECK(b.first == cursors.back());
            int64_t n = 0;
            std::set<uint64_t> ordinals;
            for (const MicroBatch& m : b.micros) {
                n += std::ssize(m.draws);
                for (const Draw& d : m.draws) ordinals.insert(d.ordinal);
            }
            CHECK(n == o.batch_at(b.first));
            CHECK(static_cast<int64_t>(b.next - b.first) == n);
            CHECK(static_cast<int64_t>(ordinals.size()) == n);
            CHECK(*ordinals.begin() == b.first);
            CHECK(*ordinals.rbegin() + 1 == b.next);
            batches.push_back(n);
            cursors.push_back(b.next);
            hashes.push_back(hash_of(b));
        }
    }
    // levels of 40 / 3 samples: 2 to draw 13, 5 to 26, 8 to 39
    CHECK(batches == std::vector<int64_t>{2, 2, 2, 2, 2, 2, 2, 5, 5, 5, 8, 8, 11, 11});
    for (size_t start = 0; start < hashes.size(); ++start) {
        Running run(*s.data, o, cursors[start]);
        for (size_t i = start; i < std::min(hashes.size(), start + 3); ++i) {
            REQUIRE(hash_of(run.loader->next(nullptr)) == hashes[i]);
        }
    }
}

TEST_CASE("loader: bad samples are replaced by a pure function, whoever reads them") {
    Shards s;
    s.damage("a.h5", 4);
    s.damage("a.h5", 5);
    s.damage("c.h5", 0);
    const std::set<std::pair<int32_t, int64_t>> bad{{0, 4}, {0, 5}, {1, 0}};
    std::vector<uint64_t> want;
    for (const int threads : {1, 2, 7}) {
        LoaderOptions o = kOptions;
        o.reader_threads = threads;
        o.max_bad_samples = 3;  // all three are met often, but count once each
        Running run(*s.data, o, 0);
        int64_t replaced = 0;
        for (uint64_t step = 0; step < 20; ++step) {
            const StepBatch& b = run.loader->next(nullptr);
            replaced += b.replaced;
            int64_t differ = 0;
            for (const MicroBatch& m : b.micros) {
                for (const Draw& d : m.draws) {
                    const Draw drawn = draw_at(*s.data, 6, d.ordinal);
                    CHECK(!bad.contains({d.source, d.index}));
                    CHECK(d.source == drawn.source);
                    CHECK(s.data->sample(d.source, d.index).shape == m.shape);
                    CHECK((d.index != drawn.index) == bad.contains({drawn.source, drawn.index}));
                    differ += d.index != drawn.index ? 1 : 0;
                }
            }
            CHECK(differ == b.replaced);
            if (threads == 1) want.push_back(hash_of(b));
            CHECK(hash_of(b) == want[step]);
        }
        CHECK(replaced > 5);
        // a resume meets the same substitutes
        Running later(*s.data, o, 11 * 13);
        CHECK(hash_of(later.loader->next(nullptr)) == want[13]);
    }
}

TEST_CASE("loader: too many bad samples, or none left of a shape, end the run with kData") {
    Shards s;
    for (const int64_t row : {1, 3, 5, 7}) s.damage("c.h5", row);
    LoaderOptions o = kOptions;
    o.max_bad_samples = 3;
    const auto message_of = [&](const LoaderOptions& options) {
        Running run(*s.data, options, 0);
        for (int step = 0; step < 60; ++step) {
            try {
                (void)run.loader->next(nullptr);
            } catch (const Error& e) {
                CHECK(e.fault() == Fault::kData);
                // and it stays so
                CHECK_THROWS_AS((void)run.loader->next(nullptr), Error);
                return e.message();
            }
        }
        return std::string();
    };
    CHECK(message_of(o).find("more than data.max_bad_samples = 3") != std::string::npos);
    o.max_bad_samples = 4;
    CHECK(message_of(o).empty());
    for (int64_t row = 0; row < 9; ++row) s.damage("b.h5", row);
    o.max_bad_samples = 100;
    CHECK(message_of(o).find("no readable sample of shape 3,1,6,4") != std::string::npos);
}

TEST_CASE("loader: the measured arena is what is used") {
    const Shards s;
    Arena arena("data", MemCategory::kData);
    { const Loader measure(*s.data, kOptions, 0, arena); }
    // three steps of 11 samples with the largest latent (3x2x4x4) and 4x6 text, f32, and ordinals,
    // the empty caption and the table of a mixture; rounding adds at most 64 bytes a micro-batch
    const int64_t payload = 3 * 11 * (96 * 4 + 24 * 4 + 8) + 24 * 4 + 65536 * 8;
    CHECK(arena.high_water() >= payload);
    CHECK(arena.high_water() <= payload + 3 * 3 * 11 * 64 + 8 * 64);
}

TEST_CASE("data: info and verify") {
    Shards s;
    const std::string vtrain = program().string();
    const std::string all = s.dir.path().string();
    Ran ran = run(vtrain + " data info " + all);
    CHECK(ran.code == 0);
    for (const char* part : {"test-codec", "3,2,4,4: 34 samples", "3,1,6,4: 9 samples", "t1/0",
                             "\"caption 2\"", "43 samples in 3 shards"}) {
        CHECK_MESSAGE(ran.output.find(part) != std::string::npos, ran.output);
    }
    CHECK(run(vtrain + " data verify " + all).code == 0);
    s.damage("b.h5", 7);
    ran = run(vtrain + " data verify " + all);
    CHECK(ran.code == 3);
    CHECK(ran.output.find("b.h5, row 7") != std::string::npos);
    CHECK(ran.output.find("43 samples in 3 shards: 1 bad samples, 0 bad shards") !=
          std::string::npos);
    std::ofstream(s.dir / "a.h5") << "not HDF5";
    ran = run(vtrain + " data verify " + all);
    CHECK(ran.code == 3);
    CHECK(ran.output.find("a.h5: BAD SHARD") != std::string::npos);
    CHECK(ran.output.find("1 bad samples, 1 bad shards") != std::string::npos);
    CHECK(run(vtrain + " data info " + all + "/nothing.h5").code == 2);
}
