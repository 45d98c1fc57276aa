// SPDX-License-Identifier: MIT
// The definition of every op: plain float64 loops, written to be read. Inputs of any float dtype
// are read as double, sums run in index order in double, each output element is rounded once when
// it is stored. All backends are judged by this table; a whole model runs on it with f64 tensors.
#pragma once

#include "ops/ops.h"

namespace vt::test {

/// A complete table; scratch_bytes is 0, Ctx::pool may be null.
[[nodiscard]] const Ops& ref_ops();

}  // namespace vt::test
