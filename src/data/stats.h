// SPDX-License-Identifier: MIT
// What is in a data set, beyond its facts: shapes, durations, text, values, captions, ids, and what
// contradicts what is said of it.
// Floor 3.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "data/index.h"

namespace vt {

struct StatsOptions {
    int64_t samples = 256;  // whose values are read, spread over all; 0: every one
    IndexOptions index;
};

struct ChannelStats {
    double mean = 0, std = 0, min = 0, max = 0;
};

/// How often the latents read take which values, as they are stored and so as training sees them.
/// Whole numbers: the order of reading does not matter.
struct ValueCounts {
    static constexpr int kLow = -4, kHigh = 4, kPerUnit = 2;  // bins of 1/2
    static constexpr int kBins = (kHigh - kLow) * kPerUnit;
    std::array<int64_t, kBins> bins{};  // bin b: [kLow + b/2, kLow + (b+1)/2)
    int64_t below = 0, above = 0;       // v < kLow; v >= kHigh
    int64_t zeros = 0;                  // exactly 0; in their bin too
    int64_t not_finite = 0;             // infinite or NaN, in no bin; their samples are bad
    /// In `bins`, `below` and `above`.
    [[nodiscard]] int64_t finite() const;
    void add(float v);
};

struct DataStats {
    int64_t files = 0, empty_files = 0, samples = 0;
    std::vector<std::string> bad_files, bad_samples;   // each with the reason
    std::map<std::array<int64_t, 4>, int64_t> shapes;  // (C,T,H,W) -> samples
    std::map<double, int64_t> seconds;                 // of a clip -> samples; fps known only
    std::map<int64_t, int64_t> text_rows;              // -> samples
    int64_t text_len = 0;
    int64_t read = 0;                    // samples whose values were read
    std::vector<ChannelStats> channels;  // of the stored latents
    ValueCounts values;                  // over all channels
    int64_t empty_captions = 0, distinct_captions = 0, most_repeated = 0;
    std::string most_repeated_caption, longest_caption;
    std::vector<std::string> repeated_ids;  // at most 20
    int64_t repeated_id_count = 0;
    int64_t valid_in_train = 0;  // validation samples whose id, and if none, caption, is trained on
    double bytes_read_per_used = 1;
    std::vector<LatentFacts> facts;     // distinct
    std::vector<std::string> warnings;  // contradictions, in words
};

/// `valid` are the files kept out of training; ids of both are compared. Bad files and samples are
/// counted and named, never an error.
[[nodiscard]] DataStats data_stats(const std::vector<fs::path>& train,
                                   const std::vector<fs::path>& valid, const StatsOptions& options);

/// Bytes read for a sample over the bytes its numbers need as f32: above 1 for f64.
[[nodiscard]] double read_ratio(const ShardIndex& index);

/// The whole as a JSON object.
[[nodiscard]] std::string stats_json(const DataStats& stats);

}  // namespace vt
