// SPDX-License-Identifier: MIT
// The meta backend: computes nothing, touches no memory, counts flop, bytes and calls (through the
// front desk). With it the trainer's own code runs on declarations for `--dry-run`.
// Floor 2.
#pragma once

#include "ops/ops.h"

namespace vt {

/// A complete table whose slots do nothing; scratch_bytes is target's, so that the plan is that of
/// the backend the run will use.
[[nodiscard]] Ops meta_ops(const Ops& target);

}  // namespace vt
