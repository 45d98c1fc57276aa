// SPDX-License-Identifier: MIT
// A stream with what its ops need beside it: pinned staging for copies, cuBLASLt.
// Floor 2.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

#include <cuda_runtime_api.h>

#include "cuda/blas.h"

namespace vt::cuda {

/// kSystem "cudaMalloc(1048576 bytes): out of memory" where the call failed.
void check(cudaError_t status, const char* call, std::string_view detail = {});

class Stream {
  public:
    /// On the current device.
    Stream();
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    [[nodiscard]] cudaStream_t handle() const { return handle_; }
    [[nodiscard]] Blas& blas() { return *blas_; }

    /// Host memory to the device, in stream order. `host` may be changed at once: its bytes are in
    /// the staging buffer, or on their way from it, when this returns.
    void copy_in(void* device, const void* host, int64_t bytes);
    /// Device memory to the host; waits for the stream, and `host` is filled when this returns.
    void copy_out(void* host, const void* device, int64_t bytes);
    void wait();

    static constexpr int64_t kStage = int64_t{4} << 20;  // bytes of one staging buffer

  private:
    // Two buffers: the host fills or empties one while the device copies the other.
    struct Stage {
        void* memory = nullptr;      // pinned
        cudaEvent_t free = nullptr;  // the device is done with it
    };
    void release() noexcept;
    cudaStream_t handle_ = nullptr;
    std::array<Stage, 2> stages_;
    std::unique_ptr<Blas> blas_;
};

}  // namespace vt::cuda
