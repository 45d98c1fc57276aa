// SPDX-License-Identifier: MIT
#include "sample/solver.h"

#include <cmath>
#include <iterator>

#include "core/check.h"
#include "sample/unipc.h"

namespace vt {
namespace {

constexpr const char* kSolverNames[] = {"euler", "unipc", "ddim", "ddpm"};

constexpr double kTrainSteps = 1000;

void check_args(int64_t steps, double shift) {
    if (steps < 1 || !(shift > 0) || !std::isfinite(shift)) {
        raise(
            Fault::kUser,
            fmt::format("sampling with {} steps and shift {}: there must be at least one step and "
                        "the shift must be above 0",
                        steps, shift));
    }
}

class Euler final : public Solver {
  public:
    Euler(int64_t steps, double shift) : sigmas_(flow_euler_sigmas(steps, shift)) {}
    [[nodiscard]] int64_t steps() const override {
        return static_cast<int64_t>(sigmas_.size()) - 1;
    }
    [[nodiscard]] float tau(int64_t k) const override { return 1000.0F * sigma(k); }
    [[nodiscard]] float sigma(int64_t k) const override {
        return sigmas_.at(static_cast<size_t>(k));
    }
    void step(int64_t k, float* x, const float* out, int64_t n, float* /*history*/,
              const float* /*noise*/) const override {
        const float dt = sigma(k + 1) - sigma(k);
        for (int64_t i = 0; i < n; ++i) x[i] = x[i] + dt * out[i];
    }

  private:
    std::vector<float> sigmas_;
};

}  // namespace

const char* name_of(SolverKind kind) {
    const auto i = static_cast<size_t>(kind);
    VT_CHECK(i < std::size(kSolverNames), "solver kind {}", i);
    return kSolverNames[i];
}

SolverKind solver_named(std::string_view name) {
    for (size_t i = 0; i < std::size(kSolverNames); ++i) {
        if (name == kSolverNames[i]) return static_cast<SolverKind>(i);
    }
    raise(Fault::kUser, fmt::format("there is no solver '{}'", name),
          "one of euler, unipc (rectified flows), ddim, ddpm (models with a noise schedule)");
}

bool for_flow(SolverKind kind) {
    return kind == SolverKind::kEuler || kind == SolverKind::kUniPc;
}

std::unique_ptr<Solver> make_flow_solver(SolverKind kind, int64_t steps, double shift) {
    check_args(steps, shift);
    if (kind == SolverKind::kEuler) return std::make_unique<Euler>(steps, shift);
    if (kind == SolverKind::kUniPc) return make_unipc(unipc_schedule(steps, shift));
    raise(Fault::kUser,
          fmt::format("the solver {} needs a noise schedule, the model is a rectified flow",
                      name_of(kind)),
          "take euler or unipc");
}

std::vector<float> flow_euler_sigmas(int64_t steps, double shift) {
    check_args(steps, shift);
    // The scheduler is built in f32, its least sigma with it.
    const auto s = static_cast<float>(shift);
    const float least = 1.0F / static_cast<float>(kTrainSteps);
    const double last =
        double{s * least / (1.0F + static_cast<float>(shift - 1) * least)} * kTrainSteps;
    std::vector<float> out;
    for (int64_t i = 0; i < steps; ++i) {
        // linspace as numpy does it: start + i * step, the end exactly
        const double step = steps > 1 ? (last - kTrainSteps) / static_cast<double>(steps - 1) : 0.0;
        const double t =
            steps > 1 && i == steps - 1 ? last : kTrainSteps + static_cast<double>(i) * step;
        const double sigma = t / kTrainSteps;
        out.push_back(static_cast<float>(shift * sigma / (1 + (shift - 1) * sigma)));
    }
    out.push_back(0);
    return out;
}

std::vector<float> flow_euler_sigmas_explicit(const std::vector<double>& sigmas, double shift) {
    check_args(static_cast<int64_t>(sigmas.size()), shift);
    std::vector<float> out;
    for (const double sigma : sigmas) {
        if (!(sigma > 0 && sigma <= 1)) {
            raise(Fault::kUser, fmt::format("sigma {} is not in (0, 1]", sigma));
        }
        out.push_back(static_cast<float>(shift * sigma / (1 + (shift - 1) * sigma)));
    }
    out.push_back(0);
    return out;
}

std::vector<double> even_sigmas(int64_t steps) {
    check_args(steps, 1);
    std::vector<double> out;
    for (int64_t i = 0; i < steps; ++i) {
        out.push_back(static_cast<double>(steps - i) / static_cast<double>(steps));
    }
    return out;
}

UniPcSchedule unipc_schedule(int64_t steps, double shift) {
    check_args(steps, shift);
    UniPcSchedule out;
    for (int64_t i = 0; i < steps; ++i) {
        // numpy's linspace(1, 1/1000, steps + 1) without its end: start + i * step
        const double step = (1 / kTrainSteps - 1) / static_cast<double>(steps);
        const double even = 1 + static_cast<double>(i) * step;
        double sigma = shift * even / (1 + (shift - 1) * even);
        if (i == 0 && std::fabs(sigma - 1) < 1e-6) sigma -= 1e-6;
        out.sigmas.push_back(static_cast<float>(sigma));
        out.taus.push_back(static_cast<float>(std::floor(sigma * kTrainSteps)));
    }
    out.sigmas.push_back(0);
    return out;
}

void guide(float* v, const float* vc, const float* vu, int64_t n, float w) {
    for (int64_t i = 0; i < n; ++i) v[i] = vu[i] + w * (vc[i] - vu[i]);
}

}  // namespace vt
