// SPDX-License-Identifier: MIT
// Floor 2. See cuda/launch.h.
#include "cuda/launch.h"

#include <fmt/core.h>

#include "core/check.h"
#include "cuda/stream.h"

namespace vt::cuda {

namespace {

constexpr size_t kDefaultShared = 48U << 10, kMaxShared = 227U << 10;

std::string text(const dim3& d) {
    return fmt::format("({},{},{})", d.x, d.y, d.z);
}

}  // namespace

void before_launch(const Launch& l) {
    const uint64_t threads = uint64_t{l.block.x} * l.block.y * l.block.z;
    VT_CHECK(threads >= 1 && threads <= 1024 && l.block.z <= 64, "{}: a block of {} threads",
             l.name, text(l.block));
    VT_CHECK(l.grid.x >= 1 && l.grid.x <= 0x7fffffffU && l.grid.y >= 1 && l.grid.y <= 65535 &&
                 l.grid.z >= 1 && l.grid.z <= 65535,
             "{}: a grid of {} blocks", l.name, text(l.grid));
    VT_CHECK(l.shared <= kMaxShared, "{}: {} bytes of shared memory, at most {}", l.name, l.shared,
             kMaxShared);
}

void start(const Launch& l, const void* kernel, void** arguments) {
    const auto where = [&] {
        return fmt::format("{}, grid {}, block {}, {} bytes of shared memory", l.name, text(l.grid),
                           text(l.block), l.shared);
    };
    if (l.shared > kDefaultShared) {
        check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                   static_cast<int>(l.shared)),
              "cudaFuncSetAttribute", where());
    }
    cudaLaunchConfig_t config{};
    config.gridDim = l.grid;
    config.blockDim = l.block;
    config.dynamicSmemBytes = l.shared;
    config.stream = l.stream;
    const cudaError_t status = cudaLaunchKernelExC(&config, kernel, arguments);
    if (status != cudaSuccess) check(status, "cudaLaunchKernelExC", where());
}

}  // namespace vt::cuda
