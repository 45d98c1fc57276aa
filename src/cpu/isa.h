// SPDX-License-Identifier: MIT
// The instruction sets the CPU backend's kernels are compiled for, and which of them this machine
// can run.
// Floor 2.
#pragma once

#include <cstdint>
#include <string>

#include "ops/ops.h"

namespace vt {

// Ascending: a machine that can run one can run those before it.
enum class Isa : uint8_t {
    kBaseline,  // x86-64 (SSE2)
    kAvx2,      // AVX2, FMA, F16C, BMI2
    kAvx512,    // AVX-512 F, BW, VL, DQ
    kAmx,       // and AMX tiles, in which bf16 products are computed, with AVX512_BF16
};

[[nodiscard]] const char* name_of(Isa isa);  // "baseline" "avx2" "avx512" "amx"

/// The best set this machine (and its operating system) can run; no environment is read.
[[nodiscard]] Isa best_isa();

/// The set named by VTRAIN_CPU_ISA, or best_isa() where that is unset or empty.
/// kUser for an unknown name and for a set the machine cannot run.
[[nodiscard]] Isa chosen_isa();

/// The CPU table on one instruction set; kBug if the machine cannot run it. cpu_ops() is
/// cpu_ops_on(chosen_isa()). Tests compare the sets through it.
[[nodiscard]] const Ops& cpu_ops_on(Isa isa);

}  // namespace vt
