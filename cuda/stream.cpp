// SPDX-License-Identifier: MIT
// Floor 2. See cuda/stream.h.
#include "cuda/stream.h"

#include <algorithm>
#include <cstring>
#include <fmt/core.h>

#include "core/check.h"

namespace vt::cuda {

void check(cudaError_t status, const char* call, std::string_view detail) {
    if (status == cudaSuccess) return;
    raise(Fault::kSystem,
          fmt::format("{}{}: {} ({})", call, detail.empty() ? "" : fmt::format("({})", detail),
                      cudaGetErrorString(status), cudaGetErrorName(status)),
          status == cudaErrorMemoryAllocation
              ? "lower data.micro_batch_size or the model's size; `--dry-run` prints the plan"
              : "");
}

Stream::Stream() {
    try {
        // beside, not behind, the legacy default stream
        check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking),
              "cudaStreamCreateWithFlags");
        for (Stage& s : stages_) {
            check(cudaMallocHost(&s.memory, narrow<size_t>(kStage)), "cudaMallocHost",
                  fmt::format("{} bytes", kStage));
            check(cudaEventCreateWithFlags(&s.free, cudaEventDisableTiming),
                  "cudaEventCreateWithFlags");
        }
        blas_ = std::make_unique<Blas>();
    } catch (...) {
        release();
        throw;
    }
}

Stream::~Stream() {
    release();
}

void Stream::release() noexcept {
    // a failure here was reported by an earlier call, and there is nobody to throw to
    if (handle_ != nullptr) cudaStreamSynchronize(handle_);
    for (Stage& s : stages_) {
        if (s.free != nullptr) cudaEventDestroy(s.free);
        if (s.memory != nullptr) cudaFreeHost(s.memory);
        s = {};
    }
    if (handle_ != nullptr) cudaStreamDestroy(handle_);
    handle_ = nullptr;
}

void Stream::copy_in(void* device, const void* host, int64_t bytes) {
    size_t turn = 0;
    for (int64_t at = 0; at < bytes; at += kStage, turn ^= 1) {
        Stage& s = stages_[turn];
        const auto n = static_cast<size_t>(std::min(kStage, bytes - at));
        check(cudaEventSynchronize(s.free), "cudaEventSynchronize");
        std::memcpy(s.memory, static_cast<const char*>(host) + at, n);
        check(cudaMemcpyAsync(static_cast<char*>(device) + at, s.memory, n, cudaMemcpyHostToDevice,
                              handle_),
              "cudaMemcpyAsync", fmt::format("{} bytes to the device", n));
        check(cudaEventRecord(s.free, handle_), "cudaEventRecord");
    }
}

void Stream::copy_out(void* host, const void* device, int64_t bytes) {
    const auto size = [&](int64_t at) { return static_cast<size_t>(std::min(kStage, bytes - at)); };
    const auto start = [&](int64_t at) {
        Stage& s = stages_[static_cast<size_t>(at / kStage % 2)];
        check(cudaMemcpyAsync(s.memory, static_cast<const char*>(device) + at, size(at),
                              cudaMemcpyDeviceToHost, handle_),
              "cudaMemcpyAsync", fmt::format("{} bytes from the device", size(at)));
        check(cudaEventRecord(s.free, handle_), "cudaEventRecord");
    };
    if (bytes > 0) start(0);
    for (int64_t at = 0; at < bytes; at += kStage) {
        // the next piece travels while this one is moved on; its buffer was emptied a turn ago
        if (at + kStage < bytes) start(at + kStage);
        Stage& s = stages_[static_cast<size_t>(at / kStage % 2)];
        check(cudaEventSynchronize(s.free), "cudaEventSynchronize");
        std::memcpy(static_cast<char*>(host) + at, s.memory, size(at));
    }
    if (bytes == 0) wait();
}

void Stream::wait() {
    check(cudaStreamSynchronize(handle_), "cudaStreamSynchronize");
}

}  // namespace vt::cuda
