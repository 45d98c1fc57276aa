// SPDX-License-Identifier: MIT
#include "tests/cuda/blas_double.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/dtype.h"
#include "core/hash.h"
#include "cuda/blas.h"
#include "cuda/stream.h"

namespace vt::test::gpu {

BlasState& blas_state() {
    static BlasState the;
    return the;
}

namespace {

struct Layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld;
};
struct Desc {
    cublasComputeType_t compute;
    cudaDataType_t scale;
    cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    const void* bias = nullptr;
};
struct Preference {
    uint64_t workspace = 0;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    uint32_t a = 256, b = 256, c = 256, d = 256;  // promised alignments
};

template <class Opaque, class T>
cublasStatus_t make(Opaque* out, T value) {
    *out = reinterpret_cast<Opaque>(new T(value));
    ++blas_state().live;
    return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Opaque>
cublasStatus_t end(Opaque p) {
    delete reinterpret_cast<T*>(p);
    --blas_state().live;
    return CUBLAS_STATUS_SUCCESS;
}
template <class T, class Opaque>
const T& as(Opaque p) {
    return *reinterpret_cast<const T*>(p);
}

cublasStatus_t refuse(const char* why, cublasStatus_t status = CUBLAS_STATUS_INVALID_VALUE) {
    blas_state().refused = why;
    return status;
}

template <class T>
cublasStatus_t put(T& field, const void* value, size_t bytes) {
    if (bytes != sizeof(T)) return refuse("an attribute of another size");
    std::memcpy(&field, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t desc_set(cublasLtMatmulDesc_t p, cublasLtMatmulDescAttributes_t what,
                        const void* value, size_t bytes) {
    Desc& d = *reinterpret_cast<Desc*>(p);
    switch (what) {
        case CUBLASLT_MATMUL_DESC_TRANSA:
            return put(d.a, value, bytes);
        case CUBLASLT_MATMUL_DESC_TRANSB:
            return put(d.b, value, bytes);
        case CUBLASLT_MATMUL_DESC_EPILOGUE:
            return put(d.epilogue, value, bytes);
        case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
            return put(d.bias, value, bytes);
        default:
            return refuse("an attribute the double does not know", CUBLAS_STATUS_NOT_SUPPORTED);
    }
}

cublasStatus_t preference_set(cublasLtMatmulPreference_t p,
                              cublasLtMatmulPreferenceAttributes_t what, const void* value,
                              size_t bytes) {
    Preference& f = *reinterpret_cast<Preference*>(p);
    switch (what) {
        case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
            return put(f.workspace, value, bytes);
        case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
            return put(f.reductions, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
            return put(f.a, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
            return put(f.b, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
            return put(f.c, value, bytes);
        case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
            return put(f.d, value, bytes);
        default:
            return refuse("a preference the double does not know", CUBLAS_STATUS_NOT_SUPPORTED);
    }
}

// What an algorithm is for: all that is in the descriptors but addresses.
uint64_t problem(const Desc& d, const Layout& a, const Layout& b, const Layout& c,
                 const Layout& out) {
    std::string s;
    const auto add = [&](int64_t v) { s += std::to_string(v) + " "; };
    for (const int64_t v : {int64_t{d.compute}, int64_t{d.a}, int64_t{d.b}, int64_t{d.epilogue}}) {
        add(v);
    }
    for (const Layout* l : {&a, &b, &c, &out}) {
        for (const int64_t v : {int64_t{l->type}, static_cast<int64_t>(l->rows),
                                static_cast<int64_t>(l->cols), l->ld}) {
            add(v);
        }
    }
    return xxh3(s);
}

// What cublasLtMatmulAlgo_t holds here.
struct Algo {
    uint64_t problem;
    uint64_t workspace;
    uint32_t a, b, c, d;
};

cublasStatus_t valid(const Desc& d, const Layout& a, const Layout& b, const Layout& c,
                     const Layout& out) {
    for (const Layout* l : {&a, &b, &c, &out}) {
        if (l->ld < static_cast<int64_t>(l->rows)) return refuse("a leading dimension below rows");
    }
    const uint64_t m = d.a == CUBLAS_OP_N ? a.rows : a.cols,
                   k = d.a == CUBLAS_OP_N ? a.cols : a.rows;
    const uint64_t kb = d.b == CUBLAS_OP_N ? b.rows : b.cols,
                   n = d.b == CUBLAS_OP_N ? b.cols : b.rows;
    if (k != kb || out.rows != m || out.cols != n || c.rows != m || c.cols != n) {
        return refuse("sizes do not fit");
    }
    if (a.type != b.type || c.type != out.type || d.scale != CUDA_R_32F) {
        return refuse("types do not fit", CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (a.type == CUDA_R_32F && out.type != CUDA_R_32F) {
        return refuse("bf16 out of f32", CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (d.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && a.type != CUDA_R_32F) {
        return refuse("tf32 of bf16", CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (d.compute != CUBLAS_COMPUTE_32F && d.compute != CUBLAS_COMPUTE_32F_FAST_TF32) {
        return refuse("compute type", CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (d.epilogue != CUBLASLT_EPILOGUE_DEFAULT && d.epilogue != CUBLASLT_EPILOGUE_BIAS) {
        return refuse("epilogue", CUBLAS_STATUS_NOT_SUPPORTED);
    }
    if (d.epilogue == CUBLASLT_EPILOGUE_BIAS &&
        (d.bias == nullptr || reinterpret_cast<uintptr_t>(d.bias) % 16 != 0)) {
        return refuse("a bias that is not 16-byte aligned");
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t heuristic(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t desc,
                         cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                         cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t out,
                         cublasLtMatmulPreference_t preference, int wanted,
                         cublasLtMatmulHeuristicResult_t results[], int* found) {
    ++blas_state().heuristics;
    *found = 0;
    const auto& d = as<Desc>(desc);
    const cublasStatus_t status =
        valid(d, as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(out));
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    const auto& f = as<Preference>(preference);
    if ((f.reductions & ~uint32_t{CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE}) != 0) {
        return refuse("sums of parts in the output's dtype");
    }
    if (wanted < 1 || blas_state().no_algorithm) return CUBLAS_STATUS_SUCCESS;
    const Algo algo{problem(d, as<Layout>(a), as<Layout>(b), as<Layout>(c), as<Layout>(out)),
                    f.workspace,
                    f.a,
                    f.b,
                    f.c,
                    f.d};
    static_assert(sizeof(algo) <= sizeof(results[0].algo));
    std::memcpy(&results[0].algo, &algo, sizeof(algo));
    results[0].workspaceSize = f.workspace;
    results[0].state = CUBLAS_STATUS_SUCCESS;
    *found = 1;
    return CUBLAS_STATUS_SUCCESS;
}

float get(const void* p, cudaDataType_t type, int64_t i) {
    return type == CUDA_R_32F ? static_cast<const float*>(p)[i]
                              : to_float(static_cast<const bf16*>(p)[i]);
}
void set(void* p, cudaDataType_t type, int64_t i, float x) {
    if (type == CUDA_R_32F) {
        static_cast<float*>(p)[i] = x;
    } else {
        static_cast<bf16*>(p)[i] = to_bf16(x);
    }
}
// To 10 bits of mantissa, nearest, ties away from zero, as the tensor cores' conversion does.
float to_tf32(float x) {
    return std::bit_cast<float>((std::bit_cast<uint32_t>(x) + 0x1000U) & ~0x1fffU);
}

bool aligned(const void* p, uint32_t to) {
    return reinterpret_cast<uintptr_t>(p) % to == 0;
}

cublasStatus_t matmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t desc, const void* alpha,
                      const void* A, cublasLtMatrixLayout_t a_, const void* B,
                      cublasLtMatrixLayout_t b_, const void* beta, const void* C,
                      cublasLtMatrixLayout_t c_, void* D, cublasLtMatrixLayout_t d_,
                      const cublasLtMatmulAlgo_t* chosen, void* workspace, size_t bytes,
                      cudaStream_t stream) {
    ++blas_state().products;
    const auto& d = as<Desc>(desc);
    const auto &a = as<Layout>(a_), &b = as<Layout>(b_), &c = as<Layout>(c_), &out = as<Layout>(d_);
    const cublasStatus_t status = valid(d, a, b, c, out);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    Algo algo{};
    std::memcpy(&algo, chosen, sizeof(algo));
    if (algo.problem != problem(d, a, b, c, out)) return refuse("an algorithm of another problem");
    if (!aligned(A, algo.a) || !aligned(B, algo.b) || !aligned(C, algo.c) || !aligned(D, algo.d)) {
        return refuse("a matrix less aligned than promised");
    }
    if (bytes < algo.workspace || !aligned(workspace, 256)) return refuse("workspace");
    // the stream's order: what was asked before is done before
    if (cudaStreamSynchronize(stream) != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    std::memset(workspace, 0x55, std::min<uint64_t>(algo.workspace, 4096));  // it is written

    const bool tf32 = blas_state().tf32 = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    const float al = *static_cast<const float*>(alpha), be = *static_cast<const float*>(beta);
    const auto k = static_cast<int64_t>(d.a == CUBLAS_OP_N ? a.cols : a.rows);
    for (int64_t j = 0; j < static_cast<int64_t>(out.cols); ++j) {
        for (int64_t i = 0; i < static_cast<int64_t>(out.rows); ++i) {
            float sum = 0;
            for (int64_t l = 0; l < k; ++l) {
                float x = get(A, a.type, d.a == CUBLAS_OP_N ? i + l * a.ld : l + i * a.ld);
                float y = get(B, b.type, d.b == CUBLAS_OP_N ? l + j * b.ld : j + l * b.ld);
                if (tf32) {
                    x = to_tf32(x);
                    y = to_tf32(y);
                }
                sum += x * y;
            }
            sum *= al;
            if (be != 0) sum += be * get(C, c.type, i + j * c.ld);
            if (d.epilogue == CUBLASLT_EPILOGUE_BIAS) sum += get(d.bias, out.type, i);
            set(D, out.type, i + j * out.ld, sum);
        }
    }
    return CUBLAS_STATUS_SUCCESS;
}

const char* status_string(cublasStatus_t s) {
    return s == CUBLAS_STATUS_NOT_SUPPORTED ? "not supported" : "invalid value";
}

}  // namespace

}  // namespace vt::test::gpu

namespace vt::cuda {

const BlasLibrary& blas_library() {
    using namespace vt::test::gpu;
    static const BlasLibrary kDouble = {
        .create = [](cublasLtHandle_t* h) { return make(h, 0); },
        .destroy = [](cublasLtHandle_t h) { return end<int>(h); },
        .status_string = status_string,
        .desc_create =
            [](cublasLtMatmulDesc_t* d, cublasComputeType_t compute, cudaDataType_t scale) {
                return make(d, Desc{.compute = compute, .scale = scale});
            },
        .desc_destroy = [](cublasLtMatmulDesc_t d) { return end<Desc>(d); },
        .desc_set = desc_set,
        .layout_create =
            [](cublasLtMatrixLayout_t* l, cudaDataType type, uint64_t rows, uint64_t cols,
               int64_t ld) {
                return make(l, Layout{type, rows, cols, ld});
            },
        .layout_destroy = [](cublasLtMatrixLayout_t l) { return end<Layout>(l); },
        .preference_create = [](cublasLtMatmulPreference_t* p) { return make(p, Preference{}); },
        .preference_destroy = [](cublasLtMatmulPreference_t p) { return end<Preference>(p); },
        .preference_set = preference_set,
        .heuristic = heuristic,
        .matmul = matmul,
    };
    return kDouble;
}

}  // namespace vt::cuda
