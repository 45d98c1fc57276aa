// SPDX-License-Identifier: MIT
// The CUDA backend's only door: no CUDA header behind it, so that the rest of the program compiles
// the same with and without the toolkit.
// Floor 2.
#pragma once

#include <memory>
#include <string>

#include "core/arena.h"
#include "ops/ops.h"

namespace vt {

/// The table of the ops that have kernels; the others' slots are null, and missing_ops() names
/// them. Ctx::stream is CudaDevice::stream(). Matrix products of f32 operands are exact f32, or
/// with `tf32` rounded to 10-bit mantissas first (sums stay f32).
[[nodiscard]] const Ops& cuda_ops(bool tf32 = false);

// One device as one thread uses it. All calls come from the thread that opened it.
struct CudaDevice {
    virtual ~CudaDevice() = default;
    /// Device memory for arenas. Not zeroed. kSystem when there is none.
    [[nodiscard]] virtual const Allocator& memory() const = 0;
    /// What Ctx::stream is to be.
    [[nodiscard]] virtual void* stream() = 0;
    /// Waits for everything asked so far; kSystem with the first error the device met.
    virtual void wait() = 0;
    /// "NVIDIA H200, sm_90, 139 GiB"
    [[nodiscard]] virtual std::string describe() const = 0;
};

/// Opens device `index` with a stream of its own. kSystem without driver or device.
[[nodiscard]] std::unique_ptr<CudaDevice> open_cuda_device(int index);

}  // namespace vt
