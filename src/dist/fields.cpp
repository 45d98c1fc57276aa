// SPDX-License-Identifier: MIT
// Rows of [parallel]. Floor 3.
#include "dist/mesh.h"

namespace vt {

std::vector<Field> fields(ParallelOptions& o) {
    constexpr double kMaxDegree = 1 << 20;  // keeps products of degrees within 64 bits
    return {
        {.key = "parallel.tp",
         .target = &o.tp,
         .help = "Ranks that share each matrix product (tensor parallel).",
         .aliases = {"parallel.tensor_model_parallel_size"},
         .min = 1,
         .max = kMaxDegree},
        {.key = "parallel.cp",
         .target = &o.cp,
         .help = "Ranks that share the tokens of a sample (context parallel).",
         .aliases = {"parallel.context_parallel_size"},
         .min = 1,
         .max = kMaxDegree},
        {.key = "parallel.pp",
         .target = &o.pp,
         .help = "Ranks that share the blocks (pipeline parallel).",
         .aliases = {"parallel.pipeline_model_parallel_size"},
         .min = 1,
         .max = kMaxDegree},
        {.key = "parallel.ep",
         .target = &o.ep,
         .help = "Ranks that share the experts, taken out of dp x cp (expert parallel).",
         .aliases = {"parallel.expert_model_parallel_size"},
         .min = 1,
         .max = kMaxDegree},
        {.key = "parallel.zero_stage",
         .target = &o.zero_stage,
         .help = "What data-parallel ranks share: 0 nothing, 1 moments, 2 also gradients, 3 also "
                 "weights.",
         .min = 0,
         .max = 3},
    };
}

}  // namespace vt
