// SPDX-License-Identifier: MIT
// Matrix products by cuBLASLt. The library is half a gigabyte, so it is loaded when the first
// device is opened, not when the program starts; a machine without it runs everything else.
// Floor 2.
#pragma once

#include <array>
#include <cstdint>
#include <map>

#include <cublasLt.h>

#include "core/dtype.h"

namespace vt::cuda {

// The part of the library that is used. Filled from the shared library, or by a test.
struct BlasLibrary {
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtDestroy) destroy = nullptr;
    decltype(&cublasLtGetStatusString) status_string = nullptr;
    decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
    decltype(&cublasLtMatmul) matmul = nullptr;
};
/// From libcublasLt.so; kSystem if it cannot be loaded. Loaded once in a process.
[[nodiscard]] const BlasLibrary& blas_library();

// y (S,N) = x (S,K) w (N,K)^T + b (N), all row-major and packed.
struct Product {
    void* y;
    const void *x, *w;
    const void* b;  // in y's dtype (the library's rule), or null
    int64_t S, N, K;
    DType t, ty;  // of x and w; of y and b
    bool tf32 = false;
};

// A handle and the algorithms chosen so far. The library's choice costs tens of microseconds and
// depends on the shape, the dtypes and how the pointers are aligned: asked once for each.
class Blas {
  public:
    explicit Blas(const BlasLibrary& library = blas_library());
    ~Blas();
    Blas(const Blas&) = delete;
    Blas& operator=(const Blas&) = delete;

    static constexpr int64_t kWorkspace = int64_t{32} << 20;  // what NVIDIA asks for on sm_90

    /// Reductions inside the product have a fixed order (no sums in the output's dtype). kSystem
    /// naming the shape where the library has no algorithm or the call fails.
    /// workspace: at least kWorkspace bytes, 256-byte aligned.
    void linear(const Product& p, void* workspace, cudaStream_t stream);

    [[nodiscard]] int64_t choices() const { return static_cast<int64_t>(chosen_.size()); }

  private:
    // S, N, K, dtypes and flags, alignments of x, w, y, b
    using Key = std::array<int64_t, 8>;
    void check(cublasStatus_t status, const char* call, const Product& p) const;
    const BlasLibrary& lib_;
    cublasLtHandle_t handle_ = nullptr;
    std::map<Key, cublasLtMatmulAlgo_t> chosen_;
};

}  // namespace vt::cuda
