// SPDX-License-Identifier: MIT
// Everything vtrain asks of the HDF5 library: describe one shard, lay one out. h5.cpp is the only
// file that includes hdf5.h.
// Floor 3.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/index.h"

namespace vt {

/// Opens a file of unknown origin with the HDF5 library and describes it. Only ever called in the
/// index child: a bad file may crash the library. kData with the broken rule and the fix; the
/// file's name is left to the caller. Reads attributes and tables, no payload. Files of the format
/// say so; others need `foreign`.
[[nodiscard]] ShardIndex h5_describe(const fs::path& path, const Foreign& foreign);

// A file of any legal layout, read sample by sample through the library. In the child only.
struct H5Head {
    FactsGiven facts;                // of its attributes
    std::array<int64_t, 4> shape{};  // C,T,H,W
    int64_t count = 0, text_dim = 0;
    Stored stored = Stored::kF32;  // of its latents
    bool has_checksums = false, has_empty = false;
    std::vector<float> empty_text;  // without padding
};
struct H5Sample {
    std::string id, caption;  // "" where the file has none
    bool damaged = false;     // its checksum does not fit
    std::vector<float> latent, text;
};
/// Hands the head on, then every sample in order. kData with the reason and the fix.
void h5_read_all(const fs::path& path, const Foreign& foreign,
                 const std::function<void(const H5Head&)>& head,
                 const std::function<void(const H5Sample&)>& sample);

// A shard that is about to be laid out; the payload is written by the caller afterwards.
struct H5Layout {
    LatentFacts facts;
    std::array<int64_t, 4> shape{};  // C,T,H,W
    Stored stored = Stored::kBF16;
    int64_t count = 0;
    const std::vector<int64_t>* text_start = nullptr;  // (count+1)
    const std::vector<uint64_t>* checksums = nullptr;  // (count)
    const std::vector<int64_t>* id_offsets = nullptr;  // (count+1)
    const std::string* ids = nullptr;
    const std::vector<int64_t>* caption_offsets = nullptr;  // (count+1)
    const std::string* captions = nullptr;
    const std::string* empty_text = nullptr;  // stored bytes of (rows, text_dim)
};
struct H5Payload {
    ByteRange latents, text;
};
/// Creates `path` with everything but the payload and says where that goes. kSystem on errors.
[[nodiscard]] H5Payload h5_create(const fs::path& path, const H5Layout& layout);

}  // namespace vt
