// SPDX-License-Identifier: MIT
// A folder of shards in the making: series of shards, closed when full, moved to their place only
// when all of it is there.
// Floor 3.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data/shard.h"
#include "data/staging.h"

namespace vt {

// Sums per channel in float64.
class ChannelMoments {
  public:
    explicit ChannelMoments(int64_t channels = 0)
        : sum_(static_cast<size_t>(channels)), square_(static_cast<size_t>(channels)) {}
    /// latent (C, per): `per` numbers of each channel.
    void add(const std::vector<float>& latent);
    [[nodiscard]] double count() const { return n_; }  // numbers per channel
    [[nodiscard]] std::vector<double> mean() const;
    [[nodiscard]] std::vector<double> std() const;

  private:
    double n_ = 0;
    std::vector<double> sum_, square_;
};

// Works in OUT/.encoding (see Staging).
class ShardFolder {
  public:
    /// kUser if `out` already holds shards or another run writes it.
    ShardFolder(const fs::path& out, int64_t samples_per_shard, DType dtype);
    ShardFolder(const ShardFolder&) = delete;
    ShardFolder& operator=(const ShardFolder&) = delete;

    /// Into the open shard of this series: OUT/NAME-NNNNN.h5, or OUT/valid/NAME-NNNNN.h5. The
    /// arguments but the sample are used where a shard is begun. kData as ShardWriter::add says;
    /// the series goes on.
    void add(const std::string& name, bool valid, const LatentFacts& facts,
             std::array<int64_t, 4> shape, const std::vector<float>& empty_text,
             const ShardSample& sample);
    /// Closes the open shards of every series (they hold two files open each).
    void close();
    /// Moves everything to its place, as Staging says.
    void publish();

    [[nodiscard]] int64_t train() const { return samples_[0]; }
    [[nodiscard]] int64_t valid() const { return samples_[1]; }
    [[nodiscard]] int64_t shards() const { return static_cast<int64_t>(published_.size()); }
    [[nodiscard]] int64_t bytes() const { return bytes_; }  // of what is published
    [[nodiscard]] const std::vector<fs::path>& files() const { return published_; }
    [[nodiscard]] const fs::path& workplace() const { return staging_.dir(); }

  private:
    struct Series {
        std::unique_ptr<ShardWriter> writer;
        std::vector<std::string> names;
    };
    Staging staging_;
    int64_t samples_per_shard_ = 0;
    DType dtype_ = DType::kBF16;
    std::map<std::pair<std::string, bool>, Series> series_;
    std::array<int64_t, 2> samples_{};
    std::vector<fs::path> published_;
    int64_t bytes_ = 0;
};

}  // namespace vt
