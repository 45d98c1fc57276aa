// SPDX-License-Identifier: MIT
// From noise to data along a trained model. Four solvers behind one interface, number for number
// those of diffusers (read at 0.42.1):
//   euler  FlowMatchEulerDiscreteScheduler                       rectified flows
//   unipc  UniPCMultistepScheduler, bh2, order 2, flow sigmas    rectified flows; Wan's own choice
//   ddim   DDIMScheduler, any eta                                models with a noise schedule
//   ddpm   DDPMScheduler, fixed_small                            models with a noise schedule
// Floor 5.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace vt {

enum class SolverKind : uint8_t { kEuler, kUniPc, kDdim, kDdpm };
/// "euler", "unipc", "ddim", "ddpm"
[[nodiscard]] const char* name_of(SolverKind kind);
/// Its inverse; kUser otherwise.
[[nodiscard]] SolverKind solver_named(std::string_view name);
/// Rectified flows take euler and unipc, models with a noise schedule ddim and ddpm.
[[nodiscard]] bool for_flow(SolverKind kind);

// One path of `steps()` steps. All numbers that change from step to step are made beforehand, in
// float64; the state is float32 and rounded once a step. Every element is stepped alike and on its
// own, so a state may hold any number of samples. Steps are taken in order from 0.
class Solver {
  public:
    virtual ~Solver() = default;
    [[nodiscard]] virtual int64_t steps() const = 0;
    /// The timestep the model is given at step k in [0, steps()), 0..1000.
    [[nodiscard]] virtual float tau(int64_t k) const = 0;
    /// How noisy x is before step k in [0, steps()], 0..1: sigma of a flow, sqrt(1 - alpha_bar) of
    /// a noise schedule; 0 at the end.
    [[nodiscard]] virtual float sigma(int64_t k) const = 0;
    /// Arrays of x's size that step() keeps from one step to the next.
    [[nodiscard]] virtual int64_t history() const { return 0; }
    /// Whether step k adds fresh noise.
    [[nodiscard]] virtual bool noisy(int64_t /*k*/) const { return false; }
    /// x acc: from step k to k + 1. out in: the model's output at (x, tau(k)). noise in where
    /// noisy(k): standard normals. All of n numbers; history acc: (history(), n), as step k - 1
    /// left it (anything at step 0).
    virtual void step(int64_t k, float* x, const float* out, int64_t n, float* history,
                      const float* noise) const = 0;
};

/// euler or unipc with the schedule the scheduler of that name takes when it is told the number of
/// steps and the shift. kUser for another kind, steps < 1 or shift <= 0.
[[nodiscard]] std::unique_ptr<Solver> make_flow_solver(SolverKind kind, int64_t steps,
                                                       double shift);

// What a model with a noise schedule was trained to predict: e, v = sqrt(a) e - sqrt(1-a) x0, or
// x0, of x_t = sqrt(a) x0 + sqrt(1-a) e with a = alpha_bar[t].
enum class Predicts : uint8_t { kNoise, kVelocity, kData };

// Which training timesteps are visited: leading t = i (T / N) (diffusers' default), or trailing
// T, T - T/N, ..., each minus 1, which begins at pure noise (needed where alpha_bar ends at 0).
enum class Spacing : uint8_t { kLeading, kTrailing };

struct NoiseSchedule {
    std::vector<double> alpha_bar;  // by timestep; in [0, 1], falling
    Predicts predicts = Predicts::kNoise;
    Spacing spacing = Spacing::kLeading;
    double eta = 0;  // of ddim: 0 deterministic, 1 as noisy as ddpm
};
/// ddim or ddpm; x0 is not clipped (latents have no bounds). kUser for another kind, for more steps
/// than timesteps, eta outside [0, 1], or a first timestep of pure noise (alpha_bar = 0) with a
/// model that predicts noise, which says nothing of the data there.
[[nodiscard]] std::unique_ptr<Solver> make_ddpm_solver(SolverKind kind, int64_t steps,
                                                       const NoiseSchedule& schedule);

/// Sigmas of the Euler scheduler told only the number of steps: evenly spaced from 1 to the least
/// training sigma, both already shifted once, then shifted (again) by
/// sigma' = S sigma / (1 + (S-1) sigma). steps + 1 values, falling, the last 0. kUser unless
/// steps >= 1 and shift > 0.
[[nodiscard]] std::vector<float> flow_euler_sigmas(int64_t steps, double shift);

/// The schedule for given sigmas (each in (0,1]): shifted once, 0 appended.
[[nodiscard]] std::vector<float> flow_euler_sigmas_explicit(const std::vector<double>& sigmas,
                                                            double shift);
/// 1, (N-1)/N, ..., 1/N: what pipelines that give sigmas themselves pass to the above.
[[nodiscard]] std::vector<double> even_sigmas(int64_t steps);

/// Sigmas of UniPC and its integer timesteps: evenly spaced from 1 down to, but without, 1/1000,
/// shifted once; a first sigma of 1 gives way by 1e-6, where the logarithm is finite.
struct UniPcSchedule {
    std::vector<float> sigmas;  // steps + 1, the last 0
    std::vector<float> taus;    // steps: floor(1000 sigma), of sigma before rounding to float32
};
[[nodiscard]] UniPcSchedule unipc_schedule(int64_t steps, double shift);

/// Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598): v = vu + w (vc - vu).
/// v out, may be vc or vu. w = 1 gives vc up to rounding.
void guide(float* v, const float* vc, const float* vu, int64_t n, float w);

}  // namespace vt
