// SPDX-License-Identifier: MIT
// How strongly the caption counts, step by step.
// Floor 5.
#pragma once

#include <string_view>
#include <vector>

#include "sample/solver.h"

namespace vt {

/// w of v = vu + w (vc - vu) at every step of `solver`; at 1 or less the caption alone is asked, in
/// one forward. `text` is one of
///   5             at every step
///   7:3           from 7 at the first step to 3 at the last, evenly
///   7,6,5         one for each step
///   0.2-0.8:5     5 where the model's timestep / 1000 is in [0.2, 0.8], none elsewhere
///                 (Kynkaanniemi et al. 2024, arXiv:2404.07724)
/// kUser for anything else, or numbers outside [0, 1000].
[[nodiscard]] std::vector<float> guidance_weights(std::string_view text, const Solver& solver);

}  // namespace vt
