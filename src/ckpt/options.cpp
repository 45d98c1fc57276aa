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
         .help = "Checkpoints kept; older ones are removed.",
         .min = 2},
        {.key = "checkpoint.resume",
         .target = &o.resume,
         .help = "auto continues from the newest whole checkpoint in run.out if there is one; "
                 "none starts anew; else the path of a checkpoint, or of a run's folder for its "
                 "newest: "
                 "the run starts from there, and the same command goes on from its own."},
    };
}

}  // namespace vt
