// SPDX-License-Identifier: MIT
// A loader over small shards, as the trainer runs it, and what its steps hold.
#pragma once

#include <fstream>
#include <memory>

#include "core/hash.h"
#include "data/index.h"
#include "data/order.h"
#include "tests/data/make.h"
#include "tests/paths.h"

namespace vt::test {

inline const IndexOptions kChild{.program = program(), .timeout_s = 60, .cache = false};

// A loader on an arena that was measured and reserved, as the trainer does it.
struct Running {
    Arena arena{"data", MemCategory::kData};
    std::unique_ptr<Loader> loader;
    Running(const Dataset& d, const LoaderOptions& o, uint64_t cursor) {
        { const Loader measure(d, o, cursor, arena); }
        arena.reserve();
        loader = std::make_unique<Loader>(d, o, cursor, arena);
    }
};

// Everything a step holds, as one hash.
inline uint64_t hash_of(const StepBatch& s) {
    Xxh3Stream h;
    const auto tensor = [&](const Tensor& t) { h.update(t.data, t.bytes()); };
    h.update(&s.first, 8);
    h.update(&s.next, 8);
    h.update(&s.replaced, 8);
    for (const MicroBatch& m : s.micros) {
        h.update(m.shape.data(), 32);
        for (const Draw& d : m.draws) {
            h.update(&d.ordinal, 8);
            h.update(&d.source, 4);
            h.update(&d.index, 8);
        }
        tensor(m.x0);
        tensor(m.text);
        tensor(m.ordinals);
    }
    return h.digest();
}

struct Shards {
    TempDir dir;
    LatentFacts facts = small_facts();
    std::vector<SourceSpec> specs;
    std::unique_ptr<Dataset> data;
    // two sources; the first has two shapes
    Shards() {
        const fs::path a = write_small(dir / "a.h5", facts, {3, 2, 4, 4}, 1, 13, DType::kBF16);
        const fs::path b = write_small(dir / "b.h5", facts, {3, 1, 6, 4}, 2, 9);
        const fs::path c = write_small(dir / "c.h5", facts, {3, 2, 4, 4}, 3, 21);
        specs = {source_of({a, b}, 2, "first"), source_of({c}, 1, "second")};
        data = Dataset::open(specs, kChild);
    }
    // Flips a bit in the latent of one row of a file; the data set stays open.
    void damage(const std::string& name, int64_t row) {
        const fs::path path = dir / name;
        const ShardIndex x = *index_files({path}, kChild)[0].index;
        const int64_t bytes = x.latents.bytes / x.count;
        std::fstream f(path, std::ios::in | std::ios::out | std::ios::binary);
        f.seekg(x.latents.offset + row * bytes + 3);
        const char c = static_cast<char>(f.get() ^ 1);
        f.seekp(x.latents.offset + row * bytes + 3);
        f.put(c);
        f.close();
        data = Dataset::open(specs, kChild);
    }
};

inline const LoaderOptions kOptions{.seed = 6,
                                    .global_batch_size = 11,
                                    .micro_batch_size = 4,
                                    .cfg_dropout_prob = 0.3,
                                    .reader_threads = 3,
                                    .max_bad_samples = 16};

}  // namespace vt::test
