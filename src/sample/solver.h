// SPDX-License-Identifier: MIT
// From noise to data along a trained velocity: the Euler schedule of rectified flows, number for
// number diffusers' FlowMatchEulerDiscreteScheduler (read at 0.42.1), and its step.
// sigma = 1 is pure noise; the model sees tau = 1000 sigma.
// Floor 5.
#pragma once

#include <cstdint>
#include <vector>

namespace vt {

/// The schedule that diffusers takes when it is only told the number of steps: evenly spaced from 1
/// to the least training sigma, both already shifted once, then shifted (again) by
/// sigma' = S sigma / (1 + (S-1) sigma). steps + 1 values, falling, the last 0. kUser unless
/// steps >= 1 and shift > 0.
[[nodiscard]] std::vector<float> flow_euler_sigmas(int64_t steps, double shift);

/// The schedule for given sigmas (each in (0,1]): shifted once, 0 appended.
[[nodiscard]] std::vector<float> flow_euler_sigmas_explicit(const std::vector<double>& sigmas,
                                                            double shift);
/// 1, (N-1)/N, ..., 1/N: what pipelines that give sigmas themselves pass to the above.
[[nodiscard]] std::vector<double> even_sigmas(int64_t steps);

/// x += (next - now) v, each product and sum rounded to f32. x acc, v in: n numbers.
void flow_euler_step(float* x, const float* v, int64_t n, float now, float next);

/// Classifier-free guidance (Ho and Salimans 2022, arXiv:2207.12598): v = vu + w (vc - vu).
/// v out, may be vc or vu. w = 1 gives vc up to rounding.
void guide(float* v, const float* vc, const float* vu, int64_t n, float w);

}  // namespace vt
