// SPDX-License-Identifier: MIT
// Where an interval's loss comes from: by timestep, by bucket (latent shape) and by data set.
// Floor 6.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/loader.h"

namespace vt {

// One training sample's share of a step.
struct SampleLoss {
    Draw draw;
    double loss = 0;                 // (1/n_i) sum_elements (v_hat - v)^2, without w(sigma)
    std::array<int64_t, 4> shape{};  // C,T,H,W
    float tau = 0;                   // timestep given to the model, 0..1000
};

// Sums and counts over the samples since restart(). Takes no memory after construction. The sums of
// several ranks add up.
class Breakdown {
  public:
    static constexpr int kBins = 10;  // of timestep / 1000, equally wide
    explicit Breakdown(const Dataset& train);

    void add(const SampleLoss& s);
    void restart();
    /// Means of what had samples: "loss/t_0.2-0.3", "loss/bucket/16x5x32x32" (C x T x H x W) and
    /// "loss/data/NAME".
    void report(std::vector<std::pair<std::string, double>>& out) const;

  private:
    struct Mean {
        std::string name;
        double sum = 0;
        int64_t count = 0;
    };
    std::vector<Mean> bins_, buckets_, sources_;
    std::vector<std::array<int64_t, 4>> shapes_;
};

// How many of the draws before the cursor were each data set's: a pure function of the data set,
// the seed and the cursor. A replaced sample counts for the one it stands in for.
class Consumed {
  public:
    Consumed(const Dataset& train, uint64_t seed);
    /// "consumed/data/NAME" at `cursor`. Counts on from the call before where it can.
    void report(uint64_t cursor, std::vector<std::pair<std::string, double>>& out);
    [[nodiscard]] const std::vector<int64_t>& at(uint64_t cursor);

  private:
    uint64_t seed_;
    uint64_t cursor_ = 0;
    std::vector<int64_t> of_block_;  // draws of each block of 65,536
    std::vector<int64_t> counts_;
    std::vector<std::string> names_;
};

/// Short distinct names of the entries of data.train, fit for a metric's name: a shard's stem, or
/// its folder where the pattern takes all of it.
[[nodiscard]] std::vector<std::string> source_labels(const Dataset& data);

}  // namespace vt
