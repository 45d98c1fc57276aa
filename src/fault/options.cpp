// SPDX-License-Identifier: MIT
// Rows of [health]. Floor 5.
#include "fault/options.h"

namespace vt {

std::vector<Field> fields(HealthOptions& o) {
    return {
        {.key = "health.enabled",
         .target = &o.enabled,
         .help = "Leave out the update of a bad step (its loss or gradient norm is not finite, or "
                 "spikes), and roll back after several. false: a step that is not finite ends the "
                 "run, spikes are not looked for. A step left out counts as an iteration."},
        {.key = "health.window",
         .target = &o.window,
         .help = "Good steps whose losses and gradient norms say what is usual.",
         .min = 2,
         .max = 100000},
        {.key = "health.min_history",
         .target = &o.min_history,
         .help = "Good steps before spikes are looked for; at most window.",
         .min = 2,
         .max = 100000},
        {.key = "health.loss_z_threshold",
         .target = &o.loss_z,
         .help = "A loss more than this many standard deviations over the window's mean is a "
                 "spike; the deviation is taken as a tenth of the mean at least. 0: never.",
         .min = 0},
        {.key = "health.grad_norm_z_threshold",
         .target = &o.grad_norm_z,
         .help = "The same of the gradient norm before clipping. 0: never.",
         .min = 0},
        {.key = "health.max_consecutive",
         .target = &o.max_consecutive,
         .help = "Bad steps in a row before the run rolls back.",
         .min = 1},
        {.key = "health.rollback",
         .target = &o.rollback,
         .help = "Roll back to the newest checkpoint that proved good, skipping the samples of the "
                 "bad steps. false: end with exit code 6 instead."},
        {.key = "health.settle_iters",
         .target = &o.settle_iters,
         .help = "A checkpoint proved good if this many good steps followed it.",
         .min = 0},
        {.key = "health.max_rollbacks",
         .target = &o.max_rollbacks,
         .help = "More rollbacks than this end the run with exit code 6. Forgotten once the run is "
                 "settle_iters good steps past where it failed.",
         .min = 0},
    };
}

}  // namespace vt
