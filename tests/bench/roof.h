// SPDX-License-Identifier: MIT
// The best matrix rate of this machine by any means: multiply-adds on registers, or tiles, that are
// loaded once. No product that reads memory can be faster.
#pragma once

#include "core/dtype.h"
#include "core/pool.h"

namespace vt::test {

/// flop/s of all threads of `pool` together, over a burst of about a millisecond. bf16: AMX tiles
/// where the machine has them, else as f32: AVX-512, AVX2 or SSE2 multiply-adds.
[[nodiscard]] double matrix_roof_burst(DType operand, Pool& pool);

/// "AMX tiles", "AVX-512", ...: what the burst above runs on.
[[nodiscard]] const char* matrix_roof_name(DType operand);

}  // namespace vt::test
