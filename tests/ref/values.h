// SPDX-License-Identifier: MIT
// Tensors of any float dtype as doubles, and the list of reference functions (tests/ref/*.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "ops/ops.h"

namespace vt::test::ref {

using Values = std::vector<double>;

/// Element i as a double (exact for f64, f32, bf16).
[[nodiscard]] double get(const CTensor& t, int64_t i);
/// x rounded once to t's dtype (nearest, ties to even), stored at i; returns the stored value.
double put(const Tensor& t, int64_t i, double x);

/// All elements of a tensor; empty if absent.
[[nodiscard]] Values read(const CTensor& t);
/// The reverse; sizes must agree.
void write(const Tensor& t, const Values& values);

[[nodiscard]] inline size_t at(int64_t i) {
    return static_cast<size_t>(i);
}

// One function per op with the op's signature.
#define VT_REF_DECLARE(name) decltype(::vt::name) name;
VT_OPS(VT_REF_DECLARE)
#undef VT_REF_DECLARE

}  // namespace vt::test::ref
