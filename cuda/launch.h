// SPDX-License-Identifier: MIT
// One launch of a kernel: what it is called, how it is cut, and what it moves.
// Floor 2.
#pragma once

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

namespace vt::cuda {

struct Launch {
    const char* name = "?";  // the op, or a step of it: "modnorm_bwd" "modnorm_bwd.sums"
    dim3 grid = {}, block = {};
    size_t shared = 0;  // bytes of dynamic shared memory
    double bytes = 0;   // global memory read and written, each tensor once
    cudaStream_t stream = nullptr;
};

/// kBug where the launch breaks a limit of the hardware (1,024 threads a block, 227 KiB of shared
/// memory, 2^31 - 1 blocks): said before the driver says less. An empty grid is a bug of the
/// caller.
void before_launch(const Launch& l);

/// cudaLaunchKernelExC, with leave for more than 48 KiB of shared memory. kSystem naming the
/// kernel, its cut and the runtime's reason.
void start(const Launch& l, const void* kernel, void** arguments);

}  // namespace vt::cuda
