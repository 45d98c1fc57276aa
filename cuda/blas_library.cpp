// SPDX-License-Identifier: MIT
// cuBLASLt's functions from its shared library. Floor 2. See cuda/blas.h.
#include <dlfcn.h>
#include <fmt/core.h>

#include "core/check.h"
#include "cuda/blas.h"

namespace vt::cuda {

namespace {

template <class F>
void load(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(::dlsym(library, name));
    if (function == nullptr) {
        raise(Fault::kSystem, fmt::format("libcublasLt.so has no {}", name),
              "install the CUDA toolkit this vtrain was built with");
    }
}

}  // namespace

const BlasLibrary& blas_library() {
    static const BlasLibrary kLibrary = [] {
        const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
        void* so = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (so == nullptr) {
            raise(Fault::kSystem, fmt::format("cannot load {}: {}", name, ::dlerror()),
                  "install the CUDA toolkit, or put the folder of that file into LD_LIBRARY_PATH");
        }
        BlasLibrary l;
        load(so, "cublasLtCreate", l.create);
        load(so, "cublasLtDestroy", l.destroy);
        load(so, "cublasLtGetStatusString", l.status_string);
        load(so, "cublasLtMatmulDescCreate", l.desc_create);
        load(so, "cublasLtMatmulDescDestroy", l.desc_destroy);
        load(so, "cublasLtMatmulDescSetAttribute", l.desc_set);
        load(so, "cublasLtMatrixLayoutCreate", l.layout_create);
        load(so, "cublasLtMatrixLayoutDestroy", l.layout_destroy);
        load(so, "cublasLtMatmulPreferenceCreate", l.preference_create);
        load(so, "cublasLtMatmulPreferenceDestroy", l.preference_destroy);
        load(so, "cublasLtMatmulPreferenceSetAttribute", l.preference_set);
        load(so, "cublasLtMatmulAlgoGetHeuristic", l.heuristic);
        load(so, "cublasLtMatmul", l.matmul);
        return l;
    }();
    return kLibrary;
}

}  // namespace vt::cuda
