// SPDX-License-Identifier: MIT
// The solver that goes with what a model was trained on.
// Floor 5.
#pragma once

#include <memory>
#include <string>

#include "model/objective.h"
#include "sample/solver.h"

namespace vt {

struct SolverOptions {
    std::string solver = "auto";  // auto: euler for rectified flows, ddim for noise schedules
    int64_t steps = 30;
    double shift = 0;  // of rectified flows; 0: the objective's for latents of the shape
};
/// kUser if the solver is unknown or does not go with the objective.
[[nodiscard]] std::shared_ptr<const Solver> choose_solver(const ObjectiveOptions& objective,
                                                          const LatentShape& shape,
                                                          const SolverOptions& options);

}  // namespace vt
