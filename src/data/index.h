// SPDX-License-Identifier: MIT
// The index of one shard: where in the file every byte lies that training reads, and the facts.
// It is made by the HDF5 library in a child process with limits, checked twice (there and here),
// cached beside the shard, and is all that the reading path knows of the file.
// Floor 3.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/check.h"
#include "data/loader.h"
#include "data/shard.h"

namespace vt {

// Bytes [offset, offset + bytes) of the file.
struct ByteRange {
    int64_t offset = 0, bytes = 0;
};

// How numbers lie in the file; all little-endian.
enum class Stored : uint8_t { kF32, kBF16, kF16, kF64 };
[[nodiscard]] int64_t size_of(Stored stored);
[[nodiscard]] const char* name_of(Stored stored);

// What must be unchanged for an index to hold.
struct FileStamp {
    int64_t size = 0, mtime_ns = 0;
    uint64_t inode = 0;
    bool operator==(const FileStamp&) const = default;
};
/// kUser naming the file if it is missing or no regular file.
[[nodiscard]] FileStamp stamp_of(const fs::path& path);
[[nodiscard]] FileStamp stamp_of(const Fd& fd, const fs::path& path);

// Invariants, established by check_index:
//  1. every extent lies inside [0, stamp.size) and has the size that shape, count and rows give;
//  2. text_start has count+1 entries, starts at 0, never falls, ends at text_rows, and no sample
//     has more than facts.text_len rows;
//  3. facts are complete: channels = shape[0], mean and std have one entry per channel (both may be
//     empty when the latents are raw), std > 0.
struct ShardIndex {
    FileStamp stamp;
    LatentFacts facts;
    std::array<int64_t, 4> shape{};  // C,T,H,W
    int64_t count = 0;               // samples
    int64_t text_rows = 0;           // of all samples together
    Stored latent_type = Stored::kF32, text_type = Stored::kF32;
    ByteRange latents, text;
    ByteRange id_offsets, ids, caption_offsets, captions;
    std::vector<int64_t> text_start;  // (count+1) rows
    std::vector<uint64_t> checksums;  // (count) XXH3-64 of the stored bytes, latent then text
    uint64_t foreign = 0;             // hash of what was said of a foreign file; 0: nothing
    // Only a foreign file may lack these: checksums (then damage goes unseen), ids (then they are
    // made of the file's name and the row), captions (then they are empty).
    bool has_checksums = true, has_ids = true, has_captions = true;
    std::vector<float> empty_text;  // (rows, text_dim), the embedding of ""
    [[nodiscard]] int64_t latent_elements() const {
        return shape[0] * shape[1] * shape[2] * shape[3];
    }
};

/// kData with the rule that is broken (without the file's name, which the caller adds).
void check_facts(const LatentFacts& facts);
void check_index(const ShardIndex& index);

/// A self-checking byte string. decode_index is nullopt unless it is whole, of this version, and
/// passes check_index.
[[nodiscard]] std::string encode_index(const ShardIndex& index);
[[nodiscard]] std::optional<ShardIndex> decode_index(std::string_view bytes);

/// What ShardIndex::foreign is.
[[nodiscard]] uint64_t hash_of(const Foreign& foreign);

// One file's outcome: an index, or why there is none.
struct Indexed {
    std::optional<ShardIndex> index;
    std::string reason, hint;
    Fault fault = Fault::kData;  // kUser: the file is not there
};
/// One entry per file, in order. A file that makes the child crash, run out of memory or time is
/// reported as bad, as is a missing one; the others go on.
[[nodiscard]] std::vector<Indexed> index_files(const std::vector<fs::path>& files,
                                               const IndexOptions& options);

}  // namespace vt
