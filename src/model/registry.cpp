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

void require_same_sizes(const WanConfig& stored, const WanConfig& run, const std::string& where) {
    std::vector<std::string> differ;
    const auto compare = [&](const char* key, const auto& there, const auto& here) {
        if (there != here) differ.push_back(fmt::format("{}: {} there, {} here", key, there, here));
    };
    const auto list = [](Patch p) { return fmt::format("[{}, {}, {}]", p.t, p.h, p.w); };
    compare("model.patch_size", list(stored.patch_size), list(run.patch_size));
    compare("model.num_attention_heads", stored.num_attention_heads, run.num_attention_heads);
    compare("model.attention_head_dim", stored.attention_head_dim, run.attention_head_dim);
    compare("model.ffn_dim", stored.ffn_dim, run.ffn_dim);
    compare("model.num_layers", stored.num_layers, run.num_layers);
    compare("model.in_channels (the data's)", stored.in_channels, run.in_channels);
    compare("model.text_dim (the data's)", stored.text_dim, run.text_dim);
    // no keys of their own: every preset has them alike
    compare("out_channels", stored.out_channels, run.out_channels);
    compare("freq_dim", stored.freq_dim, run.freq_dim);
    compare("eps", stored.eps, run.eps);
    if (differ.empty()) return;
    raise(Fault::kUser,
          fmt::format("the weights of {} have other sizes than [model]: {}", where,
                      fmt::join(differ, "; ")),
          "set the sizes of [model] to those of the weights; channels and text width come from the "
          "data, which must be encoded as the weights expect");
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
