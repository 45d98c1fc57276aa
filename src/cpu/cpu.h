// SPDX-License-Identifier: MIT
// The CPU backend. Kernels are compiled per instruction set (baseline x86-64, AVX2+FMA, AVX-512)
// from the same sources and chosen at run time.
// Floor 2.
#pragma once

#include "ops/ops.h"

namespace vt {

/// The CPU's table for this machine (the best path it can run).
/// VTRAIN_CPU_ISA=baseline|avx2|avx512|amx lowers the choice (kUser if the machine cannot run it).
[[nodiscard]] const Ops& cpu_ops();

}  // namespace vt
