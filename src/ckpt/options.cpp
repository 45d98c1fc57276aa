// SPDX-License-Identifier: MIT
// Rows of [checkpoint]. Floor 5.
#include "ckpt/options.h"

namespace vt {

std::vector<Field> fields(CheckpointOptions& o) {
    return {
        {.key = "checkpoint.save_interval",
         .target = &o.save_interval,
         .help = "Steps between checkpoints. 0: only at the end and on a signal.",
         .min = 0},
        {.key = "checkpoint.keep_last",
         .target = &o.keep_last,
         .help = "Newest checkpoints kept; older ones are removed once two that stay are verified.",
         .min = 2},
        {.key = "checkpoint.keep_every",
         .target = &o.keep_every,
         .help = "Checkpoints of steps that this divides are never removed. 0: none.",
         .min = 0},
        {.key = "checkpoint.resume",
         .target = &o.resume,
         .help = "auto continues from the newest whole checkpoint in run.out if there is one; "
                 "none starts anew; else the path of a checkpoint, or of a run's folder for its "
                 "newest: "
                 "the run starts from there, and the same command goes on from its own."},
        {.key = "checkpoint.async",
         .target = &o.async,
         .help = "Saves at an interval run beside training, from a copy of the state in memory: "
                 "auto where 80 % of the machine's memory hold the copy too, on always, off never. "
                 "With several ranks saves are never beside training.",
         .choices = {"auto", "on", "off"}},
        {.key = "checkpoint.deadline_s",
         .target = &o.deadline_s,
         .help = "Seconds after which a save that has not ended is given up and counts as failed "
                 "(on one rank). 0: never.",
         .min = 0},
        {.key = "checkpoint.on_failure",
         .target = &o.on_failure,
         .help = "When a save at an interval fails: continue with a warning and try again at a "
                 "later interval (after n failures in a row 2^(n-1) - 1 of them are left out), or "
                 "stop with exit code 4. A save at the end or on a signal that fails twice always "
                 "ends with 4.",
         .choices = {"continue", "stop"}},
        {.key = "checkpoint.max_failures",
         .target = &o.max_failures,
         .help = "Failed saves in a row that end the run with exit code 4.",
         .min = 1},
    };
}

}  // namespace vt
