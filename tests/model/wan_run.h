// SPDX-License-Identifier: MIT
// Runs a Wan model forward and backward on any backend and hands everything back in float64.
#pragma once

#include <string>
#include <vector>

#include "model/model.h"
#include "model/store.h"
#include "model/wan.h"

namespace vt::test {

inline constexpr Precision kF64{DType::kF64, DType::kF64, DType::kF64};
inline constexpr Precision kF32{DType::kF32, DType::kF32, DType::kF32};
inline constexpr Precision kBf16{DType::kBF16, DType::kF32, DType::kF32};
inline constexpr Precision kBf16Residual{DType::kBF16, DType::kBF16, DType::kF32};

/// Two blocks, every size different from every other, patches on all axes.
[[nodiscard]] WanConfig odd_config();

struct WanCase {
    WanConfig config;
    BatchShape shape;
    std::vector<double> x, tau, text, r;       // inputs, and the weights of loss = sum(out * r)
    std::vector<std::vector<double>> weights;  // in table order
};
/// Inputs 0 and 1, r = input 50 and weights by the fill rule; text rows from text_rows on are zero.
[[nodiscard]] WanCase filled_case(const WanConfig& config, const BatchShape& shape,
                                  std::vector<double> tau, int64_t text_rows);

struct WanResult {
    std::vector<double> out, dx, dtext;
    std::vector<std::vector<double>> grads;
    double loss = 0;  // sum(out * r)
};
struct WanRunOptions {
    Recompute recompute = Recompute::kNone;
    int threads = 1;
    bool backward = true;  // false: declared for inference
    OpObserver* observer = nullptr;
};
[[nodiscard]] WanResult run_wan(const Ops& ops, const Precision& precision, const WanCase& c,
                                const WanRunOptions& options = {});

[[nodiscard]] double norm2(const std::vector<double>& v);
/// |a - b| / |b|, Frobenius.
[[nodiscard]] double relative(const std::vector<double>& a, const std::vector<double>& b);
[[nodiscard]] double max_abs_diff(const std::vector<double>& a, const std::vector<double>& b);

}  // namespace vt::test
