// SPDX-License-Identifier: MIT
// The Wan 2.1 video diffusion transformer, tensor for tensor diffusers' WanTransformer3DModel.
// Floor 4.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace vt {

// Field names and defaults are diffusers' config.json's.
struct WanConfig {
    Patch patch_size{1, 2, 2};
    int64_t num_attention_heads = 40;
    int64_t attention_head_dim = 128;
    int64_t in_channels = 16, out_channels = 16;
    int64_t text_dim = 4096;
    int64_t freq_dim = 256;
    int64_t ffn_dim = 13824;
    int64_t num_layers = 40;
    double eps = 1e-6;
    int64_t rope_max_seq_len = 1024;
    [[nodiscard]] int64_t D() const { return num_attention_heads * attention_head_dim; }
    bool operator==(const WanConfig&) const = default;
};

/// "tiny" "small" "wan2.1-t2v-1.3b" "wan2.1-t2v-14b" "wan2.2-ti2v-5b"; channels and text width of
/// the tiny ones come from the data. nullopt: no such preset.
[[nodiscard]] std::optional<WanConfig> wan_preset(std::string_view name);
[[nodiscard]] std::vector<std::string> wan_preset_names();

/// kUser naming the field and the rule for sizes that cannot work.
[[nodiscard]] std::unique_ptr<Model> make_wan(const WanConfig& config, const Precision& precision);

}  // namespace vt
