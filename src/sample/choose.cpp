// SPDX-License-Identifier: MIT
// Floor 5.
#include "sample/choose.h"

#include "core/check.h"

namespace vt {

std::shared_ptr<const Solver> choose_solver(const ObjectiveOptions& objective,
                                            const LatentShape& shape,
                                            const SolverOptions& options) {
    const bool flow = objective.kind == "rectified_flow";
    const SolverKind kind = options.solver != "auto" ? solver_named(options.solver)
                            : flow                   ? SolverKind::kEuler
                                                     : SolverKind::kDdim;
    if (for_flow(kind) != flow) {
        raise(Fault::kUser,
              fmt::format("the solver \"{}\" is for {}, this model was trained with "
                          "objective.kind = \"{}\"",
                          name_of(kind), flow ? "noise schedules" : "rectified flows",
                          objective.kind),
              flow ? "take euler or unipc" : "take ddim or ddpm");
    }
    if (flow) {
        const double shift = options.shift > 0 ? options.shift : Objective(objective).shift(shape);
        return make_flow_solver(kind, options.steps, shift);
    }
    if (options.shift > 0) {
        raise(Fault::kUser,
              fmt::format("a shift of {} is for rectified flows, this model was trained with "
                          "objective.kind = \"{}\"",
                          options.shift, objective.kind),
              "leave it out");
    }
    NoiseSchedule schedule;
    schedule.alpha_bar = alpha_bars(objective);
    // a schedule that ends in pure noise is entered there
    if (objective.zero_terminal_snr) schedule.spacing = Spacing::kTrailing;
    schedule.predicts = objective.prediction == "epsilon" ? Predicts::kNoise
                        : objective.prediction == "x0"    ? Predicts::kData
                                                          : Predicts::kVelocity;
    return make_ddpm_solver(kind, options.steps, schedule);
}

}  // namespace vt
