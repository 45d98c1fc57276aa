// SPDX-License-Identifier: MIT
// From clips to a data set of shards: one pass for the statistics, one that writes normalised
// latents. Nothing is seen at the destination before all of it is there.
// Floor 3.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/codec.h"
#include "data/shard.h"

namespace vt {

struct EncodeSpec {
    HaarCodec codec;
    int64_t T = 17, H = 64, W = 64;  // pixels of every clip
    double fps = 0;                  // of every clip; 0 = unknown or mixed
    int64_t text_dim = 64, text_len = 32;
    DType dtype = DType::kBF16;
    int64_t samples_per_shard = 1024;
    // Per channel, taken over from another data set of the same codec, so that shards of several
    // shapes agree; empty: measured.
    std::vector<double> mean, std;
};
/// kUser naming the option if sizes, levels or the shard size do not fit together.
void check_spec(const EncodeSpec& spec);

struct EncodeItem {
    std::string id, caption;
    bool valid = false;  // for the validation shards
    const Clip* clip = nullptr;
};
using ClipSink = std::function<void(const EncodeItem& item)>;

struct EncodeReport {
    int64_t train = 0, valid = 0;  // samples
    int64_t shards = 0;
    int64_t bytes = 0;
    LatentFacts facts;
};

/// Runs `source` twice; each time it hands the same clips to the sink it is given (`pass` is 1 for
/// statistics, left out where the spec brings them, 2 for writing; a clip may be missing from the
/// second). Mean and standard deviation
/// per channel come from the training clips; a deviation below 1e-3 counts as 1e-3, so that a
/// channel without content does not turn rounding into signal. Writes out/shard-NNNNN.h5 and
/// out/valid/shard-NNNNN.h5 through a folder inside `out` that is gone afterwards, whatever
/// happens. kUser if `out` already holds shards. No clips: an empty report and nothing written.
EncodeReport encode_dataset(const fs::path& out, const EncodeSpec& spec,
                            const std::function<void(int pass, const ClipSink&)>& source);

}  // namespace vt
