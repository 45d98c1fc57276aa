// SPDX-License-Identifier: MIT
// Reading a shard through its index: pread and conversion, no HDF5.
// Floor 3.
#pragma once

#include <cstdint>
#include <string>

#include "core/tensor.h"
#include "data/index.h"
#include "data/watch.h"

namespace vt {

/// n stored numbers as f32. f64 is rounded (and may overflow to infinity).
void to_floats(Stored stored, const void* from, int64_t n, float* to);

/// Opens a shard for reading. kData if it is not the file that was indexed.
/// With a watch, what runs inside its calls touches nothing but the arguments.
[[nodiscard]] Fd open_shard(const fs::path& path, const FileStamp& stamp,
                            ReadWatch* watch = nullptr);

/// One sample into latent (C,T,H,W) and text (text_len,text_dim), f32 or bf16, text zero-padded.
/// The stored bytes are hashed and every number is tested while it is converted. kData names file,
/// row and reason. Thread-safe; allocates nothing of size.
void read_sample(const Fd& fd, const fs::path& path, const ShardIndex& index, int64_t row,
                 Tensor latent, Tensor text, ReadWatch* watch = nullptr);

[[nodiscard]] std::string read_id(const Fd& fd, const fs::path& path, const ShardIndex& index,
                                  int64_t row, ReadWatch* watch = nullptr);
[[nodiscard]] std::string read_caption(const Fd& fd, const fs::path& path, const ShardIndex& index,
                                       int64_t row);

}  // namespace vt
