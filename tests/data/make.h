// SPDX-License-Identifier: MIT
// Small seeded shards for tests, and what they must read back as.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "core/rng.h"
#include "data/loader.h"
#include "data/shard.h"

namespace vt::test {

inline LatentFacts small_facts(int64_t channels = 3) {
    LatentFacts f;
    f.codec = "test-codec";
    f.channels = channels;
    f.scale = {2, 4, 4};
    f.normalised = true;
    f.mean.assign(static_cast<size_t>(channels), 0.25);
    f.std.assign(static_cast<size_t>(channels), 1.5);
    f.text_encoder = "test-encoder";
    f.text_dim = 6;
    f.text_len = 4;
    f.fps = 12;
    return f;
}

inline std::vector<float> normals(uint64_t id, int64_t n) {
    std::vector<float> out(static_cast<size_t>(n));
    for (size_t i = 0; i < out.size(); ++i) out[i] = random_normal(77, Purpose::kTest, id, i);
    return out;
}

/// Sample `i` of the shard with this tag; rows of text vary from 0 to text_len.
inline ShardSample small_sample(const LatentFacts& f, std::array<int64_t, 4> shape, uint64_t tag,
                                int64_t i) {
    const uint64_t id = tag * 1000003 + static_cast<uint64_t>(i) * 2;
    ShardSample s;
    s.id = "t" + std::to_string(tag) + "/" + std::to_string(i);
    s.caption = "caption " + std::to_string(i);
    s.latent = normals(id, shape[0] * shape[1] * shape[2] * shape[3]);
    s.text = normals(id + 1, ((static_cast<int64_t>(tag) + i) % (f.text_len + 1)) * f.text_dim);
    return s;
}

inline std::vector<float> small_empty(const LatentFacts& f) {
    return normals(5, f.text_dim);
}

inline fs::path write_small(const fs::path& path, const LatentFacts& f,
                            std::array<int64_t, 4> shape, uint64_t tag, int64_t count,
                            DType dtype = DType::kF32) {
    ShardWriter w(path, f, shape, small_empty(f), {.dtype = dtype});
    for (int64_t i = 0; i < count; ++i) w.add(small_sample(f, shape, tag, i));
    w.close();
    return path;
}

inline SourceSpec source_of(std::vector<fs::path> files, double weight = 1,
                            std::string name = "test") {
    return {.files = std::move(files), .weight = weight, .name = std::move(name)};
}

}  // namespace vt::test
