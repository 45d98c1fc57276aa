// SPDX-License-Identifier: MIT
// Rows of [model] and [objective]. Floor 4.
#include "model/options.h"

#include "model/flow.h"
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

std::vector<Field> fields(ObjectiveOptions& o) {
    return {
        {.key = "objective.kind",
         .target = &o.kind,
         .help = "Training objective: x_sigma = (1 - sigma) x0 + sigma e, target e - x0.",
         .choices = {"rectified_flow"}},
        {.key = "objective.timestep_sampling",
         .target = &o.timestep_sampling,
         .help = "Distribution of sigma before the shift.",
         .choices = {"uniform", "logit_normal"}},
        {.key = "objective.logit_mean",
         .target = &o.logit_mean,
         .help = "Mean of logit(sigma) for logit_normal.",
         .min = -20,
         .max = 20},
        {.key = "objective.logit_std",
         .target = &o.logit_std,
         .help = "Standard deviation of logit(sigma) for logit_normal.",
         .min = 0,
         .max = 20,
         .min_exclusive = true},
        {.key = "objective.flow_shift",
         .target = &o.flow_shift,
         .help = "Shift s towards noise: sigma' = s sigma / (1 + (s - 1) sigma); 1 leaves sigma "
                 "as it is.",
         .min = 0,
         .max = 1000,
         .min_exclusive = true},
        {.key = "objective.cfg_dropout_prob",
         .target = &o.cfg_dropout_prob,
         .help = "Probability that a sample is trained with the empty caption, for "
                 "classifier-free guidance.",
         .min = 0,
         .max = 1},
        {.key = "objective.loss_reduction",
         .target = &o.loss_reduction,
         .help = "Whether each sample or each latent element counts the same in the loss.",
         .choices = {"sample", "element"}},
    };
}

}  // namespace vt
