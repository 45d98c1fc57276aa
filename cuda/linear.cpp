// SPDX-License-Identifier: MIT
// linear_fwd on the GPU: one product by cuBLASLt with the bias in its epilogue; GELU in a pass of
// its own over the stored sum, as ops/linear.h defines it.
// Floor 2.
#include "cuda/linear_kernels.h"
#include "cuda/slots.h"

namespace vt::cuda {

namespace {

// The library takes a bias in the output's dtype, 16-byte aligned: elsewhere it is copied into the
// scratch, behind the workspace.
int64_t bias_bytes(int64_t N) {
    return N * static_cast<int64_t>(sizeof(float));
}
constexpr int64_t kAlign = 256;

void forward(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b, Epilogue f,
             bool tf32) {
    const int64_t S = x.shape[0], K = x.shape[1], N = w.shape[0];
    if (S == 0 || N == 0) return;
    Stream& stream = stream_of(ctx, "linear_fwd");
    char* scratch = static_cast<char*>(
        scratch_of(ctx, Blas::kWorkspace + bias_bytes(N) + kAlign, "linear_fwd"));
    scratch += (kAlign - reinterpret_cast<intptr_t>(scratch) % kAlign) % kAlign;
    const Tensor out = f == Epilogue::kGelu ? pre : y;
    const void* bias = b.present() ? b.data : nullptr;
    void* copy = scratch + Blas::kWorkspace;
    if (bias != nullptr && out.dtype == DType::kBF16) {
        round_bias(static_cast<bf16*>(copy), b.as<float>(), N, stream.handle());
        bias = copy;
    } else if (bias != nullptr && reinterpret_cast<uintptr_t>(bias) % 16 != 0) {
        check(cudaMemcpyAsync(copy, bias, static_cast<size_t>(b.bytes()), cudaMemcpyDeviceToDevice,
                              stream.handle()),
              "cudaMemcpyAsync", "a bias");
        bias = copy;
    }
    const Product product{.y = out.data,
                          .x = x.data,
                          .w = w.data,
                          .b = bias,
                          .S = S,
                          .N = N,
                          .K = K,
                          .t = x.dtype,
                          .ty = out.dtype,
                          .tf32 = tf32};
    stream.blas().linear(product, scratch, stream.handle());
    if (f == Epilogue::kGelu) gelu(y.data, y.dtype, pre.data, pre.dtype, S * N, stream.handle());
}

}  // namespace

int64_t linear_scratch_bytes(const ScratchNeed& need) {
    return Blas::kWorkspace + bias_bytes(need.width) + kAlign;
}

void linear_fwd(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b, Epilogue f) {
    forward(ctx, y, pre, x, w, b, f, false);
}

void linear_fwd_tf32(const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b,
                     Epilogue f) {
    forward(ctx, y, pre, x, w, b, f, true);
}

}  // namespace vt::cuda
