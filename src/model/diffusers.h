// SPDX-License-Identifier: MIT
// Folders as the diffusers library writes and reads them: config.json beside
// diffusion_pytorch_model.safetensors, or shards of it with an index. Tensors keep their names,
// shapes and values; only Wan's original checkpoints need a table of names.
// Floor 4.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "model/params.h"
#include "model/wan.h"

namespace vt {

inline constexpr const char* kDiffusersVersion =
    "0.42.1";                                              // written to config.json; tested against
inline constexpr int64_t kMaxShardBytes = 10'000'000'000;  // diffusers' default max_shard_size

/// The sizes in DIR/config.json, in diffusers' field names or the original's ("dim", "num_heads",
/// "in_dim", ...). Missing fields take the class defaults, unknown ones are warned about. kUser if
/// there is no such folder, kData naming field and value for what is malformed or unsupported
/// (another class, an image-conditioned variant).
[[nodiscard]] WanConfig read_wan_config(const fs::path& dir);

/// The text of config.json for these sizes, and its inverse: kData naming `where` and the field.
[[nodiscard]] std::string wan_config_json(const WanConfig& config);
[[nodiscard]] WanConfig wan_config_from_json(const std::string& text, const fs::path& where);

/// Fills `master` (host memory, table order) from DIR. Strict: kData listing missing, extra and
/// wrongly shaped tensors. Whole files (diffusion_pytorch_model, or the folder's only safetensors)
/// and sharded folders, any floating format, diffusers' or the original's names. kUser for pickles.
void import_diffusers(const fs::path& dir, const ParamTable& table,
                      const std::vector<Tensor>& master);

/// Writes DIR: config.json and the parameters as `dtype` (f32 or bf16, rounded to nearest even),
/// the keep-in-f32 rows always as f32; sharded in table order when more than max_shard_bytes.
/// Written beside DIR, synced, then renamed. kUser if DIR exists and is not empty.
void export_diffusers(const fs::path& dir, const WanConfig& config, const ParamTable& table,
                      const std::vector<CTensor>& master, DType dtype,
                      int64_t max_shard_bytes = kMaxShardBytes);

/// The diffusers name of a tensor of an original Wan checkpoint; nullopt if it has no counterpart.
/// Traps: the original's norm3 is diffusers' norm2 (the affine one); `modulation` tables.
[[nodiscard]] std::optional<std::string> diffusers_name(const std::string& original);

}  // namespace vt
