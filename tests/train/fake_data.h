// SPDX-License-Identifier: MIT
// A data set in memory, a pure function of its seed, for tests of what stands on data.
#pragma once

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/rng.h"
#include "data/loader.h"

namespace vt::test {

class FakeData : public Dataset {
  public:
    /// count samples whose shapes go round `shapes` (C,T,H,W, equal C).
    FakeData(int64_t count, std::vector<std::array<int64_t, 4>> shapes, uint64_t seed = 11)
        : count_(count), shapes_(std::move(shapes)), seed_(seed) {
        facts_.codec = "test";
        facts_.channels = shapes_[0][0];
        facts_.text_encoder = "test";
        facts_.text_dim = 8;
        facts_.text_len = 5;
    }
    const LatentFacts& facts() const override { return facts_; }
    int num_sources() const override { return 1; }
    int64_t source_size(int) const override { return count_; }
    double source_weight(int) const override { return 1; }
    Sample sample(int, int64_t index) const override {
        return {0, 0, index, shapes_[static_cast<size_t>(index) % shapes_.size()]};
    }
    std::string sample_id(int, int64_t index) const override { return std::to_string(index); }
    std::string caption(int, int64_t index) const override { return sample_id(0, index); }
    std::vector<std::array<int64_t, 4>> shapes() const override {
        auto s = shapes_;
        std::sort(s.begin(), s.end());
        return s;
    }
    uint64_t fingerprint() const override { return seed_; }
    void read(int, int64_t index, Tensor latent, Tensor text) const override {
        normals(latent, static_cast<uint64_t>(index) * 2);
        normals(text, static_cast<uint64_t>(index) * 2 + 1);
    }
    void read_empty_text(Tensor text) const override { normals(text, ~uint64_t{0}); }

  private:
    void normals(const Tensor& t, uint64_t id) const {
        for (int64_t i = 0; i < t.numel(); ++i) {
            t.as<float>()[i] = random_normal(seed_, Purpose::kTest, id, static_cast<uint64_t>(i));
        }
    }
    int64_t count_;
    std::vector<std::array<int64_t, 4>> shapes_;
    uint64_t seed_;
    LatentFacts facts_;
};

}  // namespace vt::test
