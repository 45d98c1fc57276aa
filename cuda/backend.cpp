// SPDX-License-Identifier: MIT
// The table of ops and the device. Floor 2. See cuda/cuda_backend.h.
#include <algorithm>
#include <fmt/core.h>

#include "cuda/cuda_backend.h"
#include "cuda/slots.h"

namespace vt {

namespace cuda {

Stream& stream_of(const Ctx& ctx, const char* op) {
    VT_CHECK(ctx.stream != nullptr, "{}: Ctx::stream is null", op);
    return *static_cast<Stream*>(ctx.stream);
}

void* scratch_of(const Ctx& ctx, int64_t bytes, const char* op) {
    VT_CHECK(ctx.scratch.bytes() >= bytes, "{}: needs {} bytes of scratch, has {}", op, bytes,
             ctx.scratch.bytes());
    return ctx.scratch.data;
}

namespace {

int64_t scratch_bytes(const ScratchNeed& need) {
    return std::max(norm_scratch_bytes(need), linear_scratch_bytes(need));
}

void copy_in(const Ctx& ctx, void* to, const void* host, int64_t bytes) {
    stream_of(ctx, "copy_in").copy_in(to, host, bytes);
}

void copy_out(const Ctx& ctx, void* host, const void* from, int64_t bytes) {
    stream_of(ctx, "copy_out").copy_out(host, from, bytes);
}

Ops make_ops(bool tf32) {
    Ops ops;
    ops.backend = "cuda";
    ops.instruction_path = tf32 ? "cuda tf32" : "cuda";
    ops.scratch_bytes = scratch_bytes;
    ops.copy_in = copy_in;
    ops.copy_out = copy_out;
    ops.modnorm_fwd = modnorm_fwd;
    ops.modnorm_bwd = modnorm_bwd;
    ops.layernorm_fwd = layernorm_fwd;
    ops.layernorm_bwd = layernorm_bwd;
    ops.row_sumsq = row_sumsq;
    ops.qknorm_rope_fwd = qknorm_rope_fwd;
    ops.qknorm_rope_bwd_dot = qknorm_rope_bwd_dot;
    ops.qknorm_rope_bwd = qknorm_rope_bwd;
    ops.linear_fwd = tf32 ? linear_fwd_tf32 : linear_fwd;
    return ops;
}

class Device final : public CudaDevice {
  public:
    explicit Device(int index) : index_(index) {
        int devices = 0;
        check(cudaGetDeviceCount(&devices), "cudaGetDeviceCount");
        if (index < 0 || index >= devices) {
            raise(Fault::kSystem,
                  fmt::format("device {} of {}: there is no such CUDA device", index, devices));
        }
        check(cudaSetDevice(index), "cudaSetDevice", fmt::format("{}", index));
        stream_ = std::make_unique<Stream>();
    }

    [[nodiscard]] const Allocator& memory() const override {
        static const Allocator kDevice = {[](int64_t bytes) -> void* {
                                              void* p = nullptr;
                                              check(cudaMalloc(&p, narrow<size_t>(bytes)),
                                                    "cudaMalloc", fmt::format("{} bytes", bytes));
                                              return p;
                                          },
                                          [](void* p, int64_t /*bytes*/) { cudaFree(p); }};
        return kDevice;
    }
    [[nodiscard]] void* stream() override { return stream_.get(); }
    void wait() override { stream_->wait(); }
    [[nodiscard]] std::string describe() const override {
        cudaDeviceProp p{};
        check(cudaGetDeviceProperties(&p, index_), "cudaGetDeviceProperties");
        return fmt::format("{}, sm_{}{}, {} GiB", p.name, p.major, p.minor,
                           p.totalGlobalMem >> 30U);
    }

  private:
    int index_;
    std::unique_ptr<Stream> stream_;
};

}  // namespace

}  // namespace cuda

const Ops& cuda_ops(bool tf32) {
    static const Ops kExact = cuda::make_ops(false), kTf32 = cuda::make_ops(true);
    return tf32 ? kTf32 : kExact;
}

std::unique_ptr<CudaDevice> open_cuda_device(int index) {
    return std::make_unique<cuda::Device>(index);
}

}  // namespace vt
