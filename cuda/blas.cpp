// SPDX-License-Identifier: MIT
// Floor 2. See cuda/blas.h.
#include "cuda/blas.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/check.h"

namespace vt::cuda {

namespace {

// The largest power of two that divides an address, up to what any kernel of the library asks for.
uint32_t alignment(const void* p) {
    const auto a = reinterpret_cast<uintptr_t>(p);
    return a == 0 ? 256 : static_cast<uint32_t>(std::min<uintptr_t>(256, a & (~a + 1)));
}

cudaDataType_t type_of(DType t) {
    VT_CHECK(t == DType::kF32 || t == DType::kBF16, "a matrix of {}", name_of(t));
    return t == DType::kF32 ? CUDA_R_32F : CUDA_R_16BF;
}

// A created library object and the function that ends it.
template <class T>
struct Owned {
    T object = nullptr;
    cublasStatus_t (*destroy)(T) = nullptr;
    Owned() = default;
    Owned(const Owned&) = delete;
    Owned& operator=(const Owned&) = delete;
    ~Owned() {
        if (object != nullptr) destroy(object);
    }
};

}  // namespace

Blas::Blas(const BlasLibrary& library) : lib_(library) {
    const cublasStatus_t status = lib_.create(&handle_);
    if (status != CUBLAS_STATUS_SUCCESS) {
        raise(Fault::kSystem, fmt::format("cublasLtCreate: {}", lib_.status_string(status)));
    }
}

Blas::~Blas() {
    lib_.destroy(handle_);
}

void Blas::check(cublasStatus_t status, const char* call, const Product& p) const {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    raise(Fault::kSystem,
          fmt::format("{} (S {}, N {}, K {}, {} to {}{}): {}", call, p.S, p.N, p.K, name_of(p.t),
                      name_of(p.ty), p.b == nullptr ? "" : ", bias", lib_.status_string(status)));
}

// The library thinks in columns. A packed row-major (rows, cols) is its (cols, rows) with leading
// dimension cols, so with W (N,K) seen as (K,N) and x (S,K) as (K,S):
//   y^T (N,S) = op_T(W) (N,K) x^T (K,S), and a bias of N entries runs along y^T's rows.
void Blas::linear(const Product& p, void* workspace, cudaStream_t stream) {
    Owned<cublasLtMatmulDesc_t> desc;
    Owned<cublasLtMatrixLayout_t> w, x, y;
    desc.destroy = lib_.desc_destroy;
    w.destroy = x.destroy = y.destroy = lib_.layout_destroy;

    const cublasComputeType_t compute =
        p.t == DType::kF32 && p.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    check(lib_.desc_create(&desc.object, compute, CUDA_R_32F), "cublasLtMatmulDescCreate", p);
    const auto set = [&](cublasLtMatmulDescAttributes_t what, const auto& value) {
        check(lib_.desc_set(desc.object, what, &value, sizeof(value)),
              "cublasLtMatmulDescSetAttribute", p);
    };
    const cublasOperation_t turned = CUBLAS_OP_T, straight = CUBLAS_OP_N;
    set(CUBLASLT_MATMUL_DESC_TRANSA, turned);
    set(CUBLASLT_MATMUL_DESC_TRANSB, straight);
    if (p.b != nullptr) {
        const cublasLtEpilogue_t bias = CUBLASLT_EPILOGUE_BIAS;
        set(CUBLASLT_MATMUL_DESC_EPILOGUE, bias);
        set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.b);
    }
    const auto layout = [&](Owned<cublasLtMatrixLayout_t>& m, DType t, int64_t rows, int64_t cols) {
        check(lib_.layout_create(&m.object, type_of(t), static_cast<uint64_t>(rows),
                                 static_cast<uint64_t>(cols), rows),
              "cublasLtMatrixLayoutCreate", p);
    };
    layout(w, p.t, p.K, p.N);
    layout(x, p.t, p.K, p.S);
    layout(y, p.ty, p.N, p.S);

    const std::array<uint32_t, 4> aligned = {alignment(p.w), alignment(p.x), alignment(p.y),
                                             alignment(p.b)};
    const int64_t flags = (p.t == DType::kF32 ? 1 : 0) + (p.ty == DType::kF32 ? 2 : 0) +
                          (p.b != nullptr ? 4 : 0) + (p.tf32 ? 8 : 0);
    const Key key = {p.S, p.N, p.K, flags, aligned[0], aligned[1], aligned[2], aligned[3]};
    auto found = chosen_.find(key);
    if (found == chosen_.end()) {
        Owned<cublasLtMatmulPreference_t> preference;
        preference.destroy = lib_.preference_destroy;
        check(lib_.preference_create(&preference.object), "cublasLtMatmulPreferenceCreate", p);
        const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t what, const auto& value) {
            check(lib_.preference_set(preference.object, what, &value, sizeof(value)),
                  "cublasLtMatmulPreferenceSetAttribute", p);
        };
        // sums of parts stay in f32 and are added in a separate step
        const uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
        const uint64_t bytes = kWorkspace;
        prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, bytes);
        prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, reductions);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, aligned[0]);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, aligned[1]);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, aligned[2]);
        prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, aligned[2]);
        cublasLtMatmulHeuristicResult_t best{};
        int results = 0;
        check(lib_.heuristic(handle_, desc.object, w.object, x.object, y.object, y.object,
                             preference.object, 1, &best, &results),
              "cublasLtMatmulAlgoGetHeuristic", p);
        if (results == 0) {
            check(CUBLAS_STATUS_NOT_SUPPORTED, "cublasLtMatmulAlgoGetHeuristic", p);
        }
        found = chosen_.emplace(key, best.algo).first;
    }
    const float one = 1, zero = 0;
    check(lib_.matmul(handle_, desc.object, &one, p.w, w.object, p.x, x.object, &zero, p.y,
                      y.object, p.y, y.object, &found->second, workspace,
                      static_cast<size_t>(kWorkspace), stream),
          "cublasLtMatmul", p);
}

}  // namespace vt::cuda
