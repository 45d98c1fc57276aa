// SPDX-License-Identifier: MIT
// The writing half of diffusers.h.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "data/safetensors.h"
#include "model/diffusers.h"

namespace vt {

namespace {

using Json = nlohmann::json;

constexpr const char* kStem = "diffusion_pytorch_model";

// Table indices of each file, in table order: a tensor that would pass the limit starts a new file.
std::vector<std::vector<size_t>> shards(const std::vector<TensorSpec>& specs, int64_t limit) {
    std::vector<std::vector<size_t>> out(1);
    int64_t bytes = 0;
    for (size_t i = 0; i < specs.size(); ++i) {
        const int64_t more = specs[i].shape.numel() * size_of(specs[i].dtype);
        if (bytes + more > limit && !out.back().empty()) {
            out.emplace_back();
            bytes = 0;
        }
        out.back().push_back(i);
        bytes += more;
    }
    return out;
}

template <typename From>
void write_rounded(SafetensorsWriter& writer, size_t slot, CTensor value, DType dtype) {
    constexpr int64_t kPiece = 1 << 20;  // elements
    const From* from = value.as<From>();
    const int64_t n = value.numel();
    std::vector<float> wide;
    std::vector<bf16> low;
    for (int64_t begin = 0; begin < n; begin += kPiece) {
        const int64_t count = std::min(kPiece, n - begin);
        const From* part = from + begin;
        if (dtype == DType::kBF16) {
            low.resize(static_cast<size_t>(count));
            std::transform(part, part + count, low.begin(),
                           [](From x) { return to_bf16(static_cast<float>(x)); });
            writer.write(slot, CTensor(low.data(), {count}, DType::kBF16));
        } else {
            wide.assign(part, part + count);
            writer.write(slot, CTensor(wide.data(), {count}, DType::kF32));
        }
    }
}

void write_file(const fs::path& path, const std::vector<size_t>& members,
                const std::vector<TensorSpec>& specs, const std::vector<CTensor>& master) {
    std::vector<TensorSpec> mine;
    for (const size_t i : members) mine.push_back(specs[i]);
    // without this entry transformers' and diffusers' loaders refuse the file
    SafetensorsWriter writer(path, mine, {{"format", "pt"}});
    for (size_t k = 0; k < members.size(); ++k) {
        const CTensor value = master[members[k]];
        if (value.dtype == mine[k].dtype) {
            writer.write(k, value);
        } else if (value.dtype == DType::kF64) {
            write_rounded<double>(writer, k, value, mine[k].dtype);
        } else {
            write_rounded<float>(writer, k, value, mine[k].dtype);
        }
    }
    writer.close();
}

}  // namespace

std::string wan_config_json(const WanConfig& c) {
    using Ordered = nlohmann::ordered_json;
    Ordered j;
    j["_class_name"] = "WanTransformer3DModel";
    j["_diffusers_version"] = kDiffusersVersion;
    j["added_kv_proj_dim"] = nullptr;
    j["attention_head_dim"] = c.attention_head_dim;
    j["cross_attn_norm"] = true;
    j["eps"] = c.eps;
    j["ffn_dim"] = c.ffn_dim;
    j["freq_dim"] = c.freq_dim;
    j["image_dim"] = nullptr;
    j["in_channels"] = c.in_channels;
    j["num_attention_heads"] = c.num_attention_heads;
    j["num_layers"] = c.num_layers;
    j["out_channels"] = c.out_channels;
    j["patch_size"] = {c.patch_size.t, c.patch_size.h, c.patch_size.w};
    j["pos_embed_seq_len"] = nullptr;
    j["qk_norm"] = "rms_norm_across_heads";
    j["rope_max_seq_len"] = c.rope_max_seq_len;
    j["text_dim"] = c.text_dim;
    return j.dump(2) + "\n";
}

void export_diffusers(const fs::path& dir, const WanConfig& config, const ParamTable& table,
                      const std::vector<CTensor>& master, DType dtype, int64_t max_shard_bytes) {
    VT_CHECK(master.size() == table.size(), "{} tensors for {} parameters", master.size(),
             table.size());
    VT_CHECK(dtype == DType::kF32 || dtype == DType::kBF16, "export as {}", name_of(dtype));
    if (fs::exists(dir) && !(fs::is_directory(dir) && fs::is_empty(dir))) {
        raise(Fault::kUser, fmt::format("{} exists and is not an empty folder", dir.string()),
              "export to a new folder");
    }
    fs::path target = dir.lexically_normal();
    if (!target.has_filename()) target = target.parent_path();
    const fs::path parent = target.has_parent_path() ? target.parent_path() : fs::path(".");
    fs::path temp = target;
    temp += ".partial";
    std::error_code failed;
    fs::remove_all(temp, failed);
    fs::create_directories(temp, failed);
    if (failed) {
        raise(Fault::kSystem, fmt::format("cannot create {}: {}", temp.string(), failed.message()));
    }

    std::vector<TensorSpec> specs;
    for (const ParamRow& row : table) {
        specs.push_back({row.name, row.keep_f32 ? DType::kF32 : dtype, row.shape});
    }
    const std::vector<std::vector<size_t>> files = shards(specs, max_shard_bytes);
    Json weight_map = Json::object();
    int64_t total = 0;
    for (size_t f = 0; f < files.size(); ++f) {
        const std::string name = files.size() == 1 ? fmt::format("{}.safetensors", kStem)
                                                   : fmt::format("{}-{:05}-of-{:05}.safetensors",
                                                                 kStem, f + 1, files.size());
        write_file(temp / name, files[f], specs, master);
        for (const size_t i : files[f]) {
            weight_map[specs[i].name] = name;
            total += specs[i].shape.numel() * size_of(specs[i].dtype);
        }
    }
    if (files.size() > 1) {
        const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", weight_map}};
        write_atomic(temp / fmt::format("{}.safetensors.index.json", kStem), index.dump(2) + "\n");
    }
    write_atomic(temp / "config.json", wan_config_json(config));
    fsync_dir(temp);
    fs::rename(temp, target, failed);
    if (failed) {
        raise(Fault::kSystem, fmt::format("cannot rename {} to {}: {}", temp.string(),
                                          target.string(), failed.message()));
    }
    fsync_dir(parent);
}

}  // namespace vt
