// SPDX-License-Identifier: MIT
// DDPM (Ho et al. 2020, arXiv:2006.11239, eq. 7) and DDIM (Song et al. 2020, arXiv:2010.02502,
// eq. 12) steps from timestep t to the next one visited, t'. With a = alpha_bar[t],
// a' = alpha_bar[t'] (1 past the end), x0 and e what the model's output says at (x, t):
//   ddim  x' = sqrt(a') x0 + sqrt(1 - a' - s^2) e + s n,   s = eta sqrt(V)
//   ddpm  x' = sqrt(a') b/(1-a) x0 + sqrt(1-b) (1-a')/(1-a) x + sqrt(V) n,   no noise at the end
// with b = 1 - a/a' and V = (1-a')/(1-a) b.
// Floor 5.
#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "sample/solver.h"

namespace vt {
namespace {

class Ddpm final : public Solver {
  public:
    Ddpm(SolverKind kind, int64_t steps, const NoiseSchedule& s) {
        const auto T = static_cast<int64_t>(s.alpha_bar.size());
        std::vector<int64_t> visited;
        for (int64_t i = 0; i < steps; ++i) {
            const double even = static_cast<double>(T) - static_cast<double>(i) *
                                                             static_cast<double>(T) /
                                                             static_cast<double>(steps);
            visited.push_back(s.spacing == Spacing::kLeading
                                  ? (steps - 1 - i) * (T / steps)
                                  : static_cast<int64_t>(std::nearbyint(even)) - 1);
        }
        for (int64_t i = 0; i < steps; ++i) {
            const int64_t t = visited[static_cast<size_t>(i)];
            const double a = s.alpha_bar[static_cast<size_t>(t)];
            const double next =
                i + 1 < steps
                    ? s.alpha_bar[static_cast<size_t>(visited[static_cast<size_t>(i) + 1])]
                    : 1;
            taus_.push_back(static_cast<float>(t));
            sigmas_.push_back(static_cast<float>(std::sqrt(1 - a)));
            steps_.push_back(kind == SolverKind::kDdim ? ddim(a, next, s) : ddpm(a, next, s));
        }
        sigmas_.push_back(0);
    }
    [[nodiscard]] int64_t steps() const override { return static_cast<int64_t>(taus_.size()); }
    [[nodiscard]] float tau(int64_t k) const override { return taus_.at(static_cast<size_t>(k)); }
    [[nodiscard]] float sigma(int64_t k) const override {
        return sigmas_.at(static_cast<size_t>(k));
    }
    [[nodiscard]] bool noisy(int64_t k) const override {
        return steps_.at(static_cast<size_t>(k)).noise > 0;
    }
    void step(int64_t k, float* x, const float* out, int64_t n, float* /*history*/,
              const float* noise) const override {
        const Linear s = steps_.at(static_cast<size_t>(k));
        VT_CHECK(s.noise == 0 || noise != nullptr, "step {} needs noise", k);
        for (int64_t i = 0; i < n; ++i) {
            double next = s.x * x[i] + s.out * out[i];
            if (s.noise > 0) next += s.noise * noise[i];
            x[i] = static_cast<float>(next);
        }
    }

  private:
    // x' = x * x + out * out + noise * n
    struct Linear {
        double x = 0, out = 0, noise = 0;
    };
    // p x0 + q e + r x of a model output, as weights of x and out.
    static Linear combine(double a, Predicts predicts, double p, double q, double r) {
        const double A = std::sqrt(a), S = std::sqrt(1 - a);
        switch (predicts) {
            case Predicts::kNoise:
                return {.x = p / A + r, .out = q - p * S / A, .noise = 0};
            case Predicts::kVelocity:
                return {.x = p * A + q * S + r, .out = q * A - p * S, .noise = 0};
            case Predicts::kData:
                return {.x = q / S + r, .out = p - q * A / S, .noise = 0};
        }
        raise(Fault::kBug, "unknown kind of prediction");
    }
    static Linear ddim(double a, double next, const NoiseSchedule& s) {
        const double variance = (1 - next) / (1 - a) * (1 - a / next);
        const double noise = s.eta * std::sqrt(variance);
        // at eta = 1 the difference may round below zero
        const double direction = std::sqrt(std::max(0.0, 1 - next - noise * noise));
        Linear out = combine(a, s.predicts, std::sqrt(next), direction, 0);
        out.noise = noise;
        return out;
    }
    static Linear ddpm(double a, double next, const NoiseSchedule& s) {
        const double b = 1 - a / next;
        Linear out = combine(a, s.predicts, std::sqrt(next) * b / (1 - a), 0,
                             std::sqrt(1 - b) * (1 - next) / (1 - a));
        out.noise = next < 1 ? std::sqrt(std::max(1e-20, (1 - next) / (1 - a) * b)) : 0;
        return out;
    }

    std::vector<float> taus_, sigmas_;
    std::vector<Linear> steps_;
};

}  // namespace

std::unique_ptr<Solver> make_ddpm_solver(SolverKind kind, int64_t steps,
                                         const NoiseSchedule& schedule) {
    if (for_flow(kind)) {
        raise(Fault::kUser,
              fmt::format("the solver {} is for rectified flows, the model has a noise schedule",
                          name_of(kind)),
              "take ddim or ddpm");
    }
    const auto T = static_cast<int64_t>(schedule.alpha_bar.size());
    if (steps < 1 || steps > T) {
        raise(Fault::kUser,
              fmt::format("{} steps of {}: the model knows {} timesteps", steps, name_of(kind), T));
    }
    if (!(schedule.eta >= 0 && schedule.eta <= 1)) {
        raise(Fault::kUser, fmt::format("eta {} of ddim is not in [0, 1]", schedule.eta));
    }
    for (const double a : schedule.alpha_bar) {
        VT_CHECK(a >= 0 && a <= 1, "alpha_bar {}", a);
    }
    if (schedule.predicts == Predicts::kNoise && schedule.spacing == Spacing::kTrailing &&
        schedule.alpha_bar.back() <= 0) {
        raise(Fault::kUser,
              "at pure noise (alpha_bar = 0) predicted noise says nothing of the data",
              "a schedule that ends at pure noise goes with a model that predicts v or the data");
    }
    return std::make_unique<Ddpm>(kind, steps, schedule);
}

}  // namespace vt
