// SPDX-License-Identifier: MIT
// Rows of [optim]. Floor 4.
#include "optim/options.h"

namespace vt {

std::vector<Field> fields(OptimOptions& o) {
    return {
        {.key = "optim.lr", .target = &o.lr, .help = "Peak learning rate of AdamW.", .min = 0},
        {.key = "optim.min_lr",
         .target = &o.min_lr,
         .help = "Learning rate at the end of the cosine decay.",
         .min = 0},
        {.key = "optim.lr_decay_style",
         .target = &o.lr_decay_style,
         .help = "Learning rate after the warm-up.",
         .choices = {"constant", "cosine"}},
        {.key = "optim.lr_warmup_iters",
         .target = &o.lr_warmup_iters,
         .help = "Steps of linear warm-up from 0 to lr.",
         .min = 0},
        {.key = "optim.lr_decay_iters",
         .target = &o.lr_decay_iters,
         .help = "Step at which the decay reaches min_lr. 0: run.train_iters.",
         .min = 0},
        {.key = "optim.adam_beta1",
         .target = &o.adam_beta1,
         .help = "Decay of the first moment.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "optim.adam_beta2",
         .target = &o.adam_beta2,
         .help = "Decay of the second moment.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "optim.adam_eps",
         .target = &o.adam_eps,
         .help = "Added to the root of the second moment.",
         .min = 0,
         .max = 1,
         .min_exclusive = true},
        {.key = "optim.weight_decay",
         .target = &o.weight_decay,
         .help = "Decoupled weight decay, per unit of learning rate; matrices only.",
         .min = 0},
        {.key = "optim.clip_grad",
         .target = &o.clip_grad,
         .help = "Largest global gradient norm; larger gradients are scaled to it. 0: off.",
         .min = 0},
        {.key = "optim.ema_decay",
         .target = &o.ema_decay,
         .help = "Decay per step of each exponential moving average of the weights.",
         .min = 0,
         .max = 1,
         .min_exclusive = true,
         .max_exclusive = true},
    };
}

}  // namespace vt
