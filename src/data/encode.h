// SPDX-License-Identifier: MIT
// From clips to a data set of shards. The clips' pixels go through a file without a name inside the
// destination, so that every video is decoded once; statistics over all of them, then the shards.
// Nothing is seen at the destination before all of it is there.
// Floor 3.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/codec.h"
#include "data/shapes.h"
#include "data/shard.h"

namespace vt {

struct EncodeSpec {
    HaarCodec codec;
    std::vector<ClipShape> shapes{ClipShape{}};  // every clip has one of them
    double fps = 0;                              // of every clip; 0 = unknown or mixed
    int64_t text_dim = 64, text_len = 32;
    DType dtype = DType::kBF16;
    int64_t samples_per_shard = 1024;
    int threads = 0;  // for writing; 0: all cores
    // Per channel, taken over from another data set of the same codec, so that data sets made apart
    // agree; empty: measured.
    std::vector<double> mean, std;
};
/// kUser naming the option if sizes, levels or the shard size do not fit together.
void check_spec(const EncodeSpec& spec);

struct EncodeItem {
    int64_t file = 0, clip = 0;  // samples are stored in this order, whatever the order of arrival
    std::string id, caption;
    bool valid = false;  // for the validation shards
    const Clip* pixels = nullptr;
};
using ClipSink = std::function<void(const EncodeItem& item)>;

struct EncodeReport {
    struct Part {
        ClipShape shape;
        int64_t train = 0, valid = 0, bytes = 0;
    };
    int64_t train = 0, valid = 0;  // samples
    int64_t shards = 0;
    int64_t bytes = 0;
    std::vector<Part> parts;  // one per shape of the spec, in its order
    LatentFacts facts;
};

/// Calls `source` once with a sink that may be called from several threads. Mean and standard
/// deviation per channel come from the training clips of all shapes; a deviation below 1e-3 counts
/// as 1e-3, so that a channel without content does not turn rounding into signal. Writes
/// out/shard-NNNNN.h5 and out/valid/shard-NNNNN.h5 (with several shapes out/shard-HxWxT-NNNNN.h5)
/// through a folder inside `out` that is gone afterwards, whatever happens; of a run that was
/// killed it is cleared, or if the shards were complete their move is completed, by the next. kUser
/// if `out` already holds shards or cannot be made, kSystem if the disk is too small for what has
/// been cut. `progress` hears how many samples are written. No training clips: nothing is written.
/// Memory: 56 bytes a clip, one shard's ids and captions, and 64 MB or one clip a thread of pixels.
EncodeReport encode_dataset(const fs::path& out, const EncodeSpec& spec,
                            const std::function<void(const ClipSink&)>& source,
                            const std::function<void(int64_t done, int64_t of)>& progress = {});

/// Bytes on disk of `samples` of one shape, without captions and ids.
[[nodiscard]] int64_t stored_bytes(const EncodeSpec& spec, const ClipShape& shape, int64_t samples);

/// kSystem naming both sizes unless the disk of `dir` (or its nearest folder that exists) has room.
void check_space(const fs::path& dir, int64_t bytes, const std::string& what);

/// Makes `dir` if needed. kUser naming `option` if something is in the way or may not be written,
/// kSystem if the machine failed.
void make_folder(const fs::path& dir, const std::string& option);

}  // namespace vt
