// SPDX-License-Identifier: MIT
// What a matrix product leaves to do: GELU of the stored sum, a bias in the product's dtype.
// Floor 2.
#include "cuda/linear_kernels.h"
#include "cuda/rows.cuh"

namespace vt::cuda {

namespace {

// gelu(x) = x/2 (1 + tanh(k (x + 0.044715 x^3))), k = sqrt(2/pi); Hendrycks and Gimpel 2016,
// arXiv:1606.08415.
__device__ inline float gelu_of(float x) {
    const float k = 0.7978845608028654F;
    return 0.5F * x * (1.0F + tanhf(k * (x + 0.044715F * x * x * x)));
}

// geometry: a thread for each octet
// bytes:    (size(pre) + size(y)) n
// sync:     none
template <class T, class TY>
__global__ void __launch_bounds__(kMaxThreads) gelu_kernel(TY* y, const T* pre, int64_t n) {
    const int64_t c = (static_cast<int64_t>(blockIdx.x) * kMaxThreads + tid()) * kOct;
    if (c >= n) return;
    const int left = n - c < kOct ? static_cast<int>(n - c) : kOct;
    float v[kOct];
    load8(pre + c, left, aligned16(pre), v);
    for (float& e : v) e = gelu_of(e);
    store8(y + c, left, aligned16(y), v);
}

// geometry: a thread for each octet
// bytes:    6 n
// sync:     none
__global__ void __launch_bounds__(kMaxThreads) round_kernel(bf16* y, const float* x, int64_t n) {
    const int64_t c = (static_cast<int64_t>(blockIdx.x) * kMaxThreads + tid()) * kOct;
    if (c >= n) return;
    const int left = n - c < kOct ? static_cast<int>(n - c) : kOct;
    float v[kOct];
    load8(x + c, left, aligned16(x), v);
    store8(y + c, left, aligned16(y), v);
}

dim3 blocks_for(int64_t n) {
    constexpr int64_t kEach = int64_t{kMaxThreads} * kOct;
    return {static_cast<unsigned>((n + kEach - 1) / kEach), 1, 1};
}

template <class T, class TY>
void gelu_as(void* y, const void* pre, int64_t n, cudaStream_t stream) {
    launch({.name = "linear_fwd.gelu",
            .grid = blocks_for(n),
            .block = {kMaxThreads, 1, 1},
            .bytes = static_cast<double>(n) * (sizeof(T) + sizeof(TY)),
            .stream = stream},
           gelu_kernel<T, TY>, static_cast<TY*>(y), static_cast<const T*>(pre), n);
}

}  // namespace

void gelu(void* y, DType ty, const void* pre, DType t, int64_t n, cudaStream_t stream) {
    if (t == DType::kF32) return gelu_as<float, float>(y, pre, n, stream);
    if (ty == DType::kF32) return gelu_as<bf16, float>(y, pre, n, stream);
    gelu_as<bf16, bf16>(y, pre, n, stream);
}

void round_bias(bf16* y, const float* b, int64_t n, cudaStream_t stream) {
    launch({.name = "linear_fwd.bias",
            .grid = blocks_for(n),
            .block = {kMaxThreads, 1, 1},
            .bytes = 6.0 * static_cast<double>(n),
            .stream = stream},
           round_kernel, y, b, n);
}

}  // namespace vt::cuda
