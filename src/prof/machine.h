// SPDX-License-Identifier: MIT
// What this machine can do and what this process takes, measured.
// Floor 5.
#pragma once

#include <cstdint>

#include "ops/ops.h"

namespace vt {

/// The rate of matrix products in flop/s as the backend itself reaches it on a cache-friendly
/// square product (best of a few runs, about 0.1 s). The denominator of "share of roof" in the log.
[[nodiscard]] double measure_matmul_rate(const Ctx& ctx, DType operand);

struct ProcessMemory {
    int64_t resident = 0;  // bytes now (VmRSS)
    int64_t peak = 0;      // bytes, high-water (VmHWM)
};
/// From /proc/self/status; zeros where that cannot be read.
[[nodiscard]] ProcessMemory process_memory();

/// Bytes of physical memory of this machine; 0 where unknown.
[[nodiscard]] int64_t machine_memory();

/// Bytes that this process may still map under RLIMIT_AS; -1 where there is no limit.
[[nodiscard]] int64_t address_space_left();

/// Seconds of a steady clock; differences only.
[[nodiscard]] double seconds_now();

}  // namespace vt
