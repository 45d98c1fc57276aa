// SPDX-License-Identifier: MIT
// First include of every kernel source: nvcc compiles it for the GPU, and g++ for the tests, which
// include their emulator before it. Hence no <<< >>>, raw __shared__ or inline PTX in kernels, but
//   VT_SHARED(name, type);             a __shared__ variable; the type may be an array, float[4][8]
//   VT_SHARED_DYNAMIC(name, element);  the launch's dynamic shared memory, 16-byte aligned
//   launch({.name = "...", .grid = g, .block = b, ...}, kernel, arguments...);
// Floor 2.
#pragma once

#include <cstddef>
#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#define VT_SHARED(name, ...) __shared__ std::type_identity_t<__VA_ARGS__> name
#define VT_SHARED_DYNAMIC(name, ...)                                   \
    extern __shared__ __align__(16) unsigned char vt_dynamic_shared[]; \
    __VA_ARGS__* const name = reinterpret_cast<__VA_ARGS__*>(vt_dynamic_shared)
#elif !defined(VT_EMULATED)
#error "kernel sources are compiled by nvcc, or by a C++ compiler behind the tests' emulator"
#endif

#include "cuda/launch.h"

namespace vt::cuda {

/// Starts a kernel on l.stream and checks the launch (kSystem naming it). The kernel's own
/// parameter types decide what is passed, so a conversion happens here, once.
template <class... P, class... A>
void launch(const Launch& l, void (*kernel)(P...), A&&... args) {
    static_assert(sizeof...(P) == sizeof...(A), "wrong number of kernel arguments");
    std::tuple<std::remove_cv_t<P>...> values(static_cast<P>(std::forward<A>(args))...);
    before_launch(l);
#ifdef __CUDACC__
    const void* f = reinterpret_cast<const void*>(kernel);
    std::apply(
        [&](auto&... v) {
            void* pointers[] = {&v..., nullptr};
            start(l, f, pointers);
        },
        values);
#else
    emu::launch(l, kernel, values);
#endif
}

}  // namespace vt::cuda
