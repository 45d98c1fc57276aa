// SPDX-License-Identifier: MIT
// The part of cuBLASLt that cuda/ uses, on the CPU: it computes what the descriptors say, element
// by element in column-major order, so that a wrong transpose, leading dimension, size, type or
// epilogue gives wrong numbers or the library's refusal. Rules of the library it holds callers to:
// C and D have one type; a bias has D's type and is 16-byte aligned; an algorithm runs only the
// problem it was chosen for; the workspace is as large and aligned as was promised.
#pragma once

#include <cstdint>
#include <string>

namespace vt::test::gpu {

struct BlasState {
    int64_t heuristics = 0, products = 0;
    int64_t live = 0;     // library objects not destroyed
    std::string refused;  // why the last call was refused
    bool no_algorithm = false;
    bool tf32 = false;  // the last product's compute type
};
BlasState& blas_state();

}  // namespace vt::test::gpu
