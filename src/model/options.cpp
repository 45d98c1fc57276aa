// SPDX-License-Identifier: MIT
// Rows of [model]. Floor 4.
#include "model/options.h"

#include "model/model.h"
#include "model/wan.h"

namespace vt {

Recompute recompute_named(const std::string& name) {
    if (name == "none") return Recompute::kNone;
    if (name == "selective") return Recompute::kSelective;
    VT_CHECK(name == "full", "recompute \"{}\"", name);
    return Recompute::kFull;
}

std::vector<Field> fields(ModelOptions& o) {
    return {
        {.key = "model.family",
         .target = &o.family,
         .help = "Architecture; tensors are named and shaped as diffusers does.",
         .choices = {"wan"}},
        {.key = "model.preset",
         .target = &o.preset,
         .help = "Named set of sizes; the sizes below override it where they are not 0.",
         .choices = wan_preset_names()},
        {.key = "model.patch_size",
         .target = &o.patch_size,
         .help = "Latent frames, rows and columns of one token, [t, h, w]; empty: the preset's.",
         .min = 1,
         .max = 16},
        {.key = "model.num_attention_heads",
         .target = &o.num_attention_heads,
         .help = "Attention heads; the width is heads x head width. 0: the preset's.",
         .min = 0,
         .max = 4096},
        {.key = "model.attention_head_dim",
         .target = &o.attention_head_dim,
         .help = "Channels per head, even. 0: the preset's.",
         .min = 0,
         .max = 4096},
        {.key = "model.ffn_dim",
         .target = &o.ffn_dim,
         .help = "Feed-forward channels. 0: the preset's.",
         .min = 0,
         .max = 1 << 24},
        {.key = "model.num_layers",
         .target = &o.num_layers,
         .help = "Transformer blocks. 0: the preset's.",
         .min = 0,
         .max = 4096},
        {.key = "model.text_dim",
         .target = &o.text_dim,
         .help = "Channels of the caption embeddings. 0: the data's.",
         .min = 0,
         .max = 1 << 24},
        {.key = "model.in_channels",
         .target = &o.in_channels,
         .help = "Latent channels. 0: the data's.",
         .min = 0,
         .max = 1 << 24},
        {.key = "model.recompute",
         .target = &o.recompute,
         .help = "What the backward pass computes again instead of keeping: nothing, every block "
                 "but its attentions, or every block.",
         .choices = {"none", "selective", "full"}},
        {.key = "model.residual",
         .target = &o.residual,
         .help = "Number format of the residual stream between blocks.",
         .choices = {"fp32", "bf16"}},
    };
}

}  // namespace vt
