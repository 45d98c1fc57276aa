// SPDX-License-Identifier: MIT
// [model]: which network. Floor 4.
#pragma once

#include <string>
#include <vector>

#include "config/field.h"

namespace vt {

struct ModelOptions {
    std::string family = "wan";
    std::string preset = "tiny";  // sizes below override the preset's where they are not 0
    std::vector<int64_t> patch_size;
    int64_t num_attention_heads = 0, attention_head_dim = 0, ffn_dim = 0, num_layers = 0;
    int64_t text_dim = 0;            // 0: the data's
    int64_t in_channels = 0;         // 0: the data's
    std::string recompute = "none";  // none | selective | full
    std::string residual = "fp32";   // fp32 | bf16
};
[[nodiscard]] std::vector<Field> fields(ModelOptions& o);

}  // namespace vt
