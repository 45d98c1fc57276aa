// SPDX-License-Identifier: MIT
#include "model/registry.h"

#include <fmt/format.h>

namespace vt {

WanConfig wan_config(const ModelOptions& o, const LatentFacts& facts) {
    const std::optional<WanConfig> preset = wan_preset(o.preset);
    if (!preset) {
        raise(Fault::kUser, fmt::format("model.preset = \"{}\" is not known", o.preset),
              fmt::format("one of: {}", fmt::join(wan_preset_names(), ", ")));
    }
    WanConfig c = *preset;
    const auto set = [](int64_t& field, int64_t value) {
        if (value != 0) field = value;
    };
    set(c.num_attention_heads, o.num_attention_heads);
    set(c.attention_head_dim, o.attention_head_dim);
    set(c.ffn_dim, o.ffn_dim);
    set(c.num_layers, o.num_layers);
    if (!o.patch_size.empty()) {
        if (o.patch_size.size() != 3) {
            raise(Fault::kUser,
                  fmt::format("model.patch_size has {} entries, needs 3", o.patch_size.size()),
                  "write it as [t, h, w], e.g. [1, 2, 2]");
        }
        c.patch_size = {o.patch_size[0], o.patch_size[1], o.patch_size[2]};
    }
    const auto agree = [](const char* key, int64_t value, int64_t data) {
        if (value != 0 && value != data) {
            raise(Fault::kUser, fmt::format("model.{} = {}, but the data has {}", key, value, data),
                  "leave the key out: it is taken from the data");
        }
    };
    agree("in_channels", o.in_channels, facts.channels);
    agree("text_dim", o.text_dim, facts.text_dim);
    c.in_channels = c.out_channels = facts.channels;
    c.text_dim = facts.text_dim;
    return c;
}

std::unique_ptr<Model> make_model(const ModelOptions& o, const LatentFacts& facts,
                                  const Precision& precision) {
    if (o.family == "wan") return make_wan(wan_config(o, facts), precision);
    raise(Fault::kUser, fmt::format("model.family = \"{}\" is not known", o.family), "one of: wan");
}

Precision make_precision(const std::string& precision, const ModelOptions& o) {
    Precision p;
    p.operand = precision == "bf16" ? DType::kBF16 : DType::kF32;
    p.residual = o.residual == "bf16" ? DType::kBF16 : DType::kF32;
    return p;
}

}  // namespace vt
