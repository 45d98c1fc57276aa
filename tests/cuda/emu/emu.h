// SPDX-License-Identifier: MIT
// CUDA kernels on the CPU, for tests on machines without a GPU. g++ compiles the kernel source as
// plain C++ with this header included first (-include); it supplies what nvcc would.
//   * Blocks run one after another, or on a few OS threads. Each thread of a block is a fiber that
//     runs until it meets a barrier or a warp operation, and resumes when its partners have come.
//   * Which runnable fiber goes next, and which block, is drawn from a seed.
//   * A mistake ends the launch with vt::emu::Error: threads that wait at different places or have
//     exited, a bad lane mask, a shuffle from an absent lane, damage around shared memory.
//   * With race.cpp (kernels compiled with -fsanitize=thread, linked without it) also data races in
//     shared and global memory, and reads of uninitialised shared memory.
// The scheduler is in runner.h; here is what kernel code touches.
#pragma once
#ifdef __CUDACC__
#error "emu.h stands in for nvcc"
#endif

#include <bit>
#include <cstddef>
#include <cstdint>
#include <math.h>  // not <cmath>: kernels call isfinite, sqrtf, ... in the global namespace
#include <source_location>
#include <stdexcept>
#include <tuple>
#include <type_traits>

// CUDA headers use blockDim, gridDim, ... as names of their own, so they come before the macros
// below. A kernel file that needs another one (curand_kernel.h) must include it before this file.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace vt::emu {

struct Error : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Options {             // the defaults come from VTRAIN_EMU_SEED and VTRAIN_EMU_WORKERS
    std::uint64_t seed = 1;  // order of threads and blocks; 0 keeps the natural order
    int workers = 1;         // OS threads that run blocks (1 when races are watched)
    std::size_t stack_bytes = 64 << 10;   // per emulated thread
    bool exit_counts_as_arrival = false;  // at __syncthreads, as hardware does
    bool races = true;                    // the next three matter only where race.cpp is linked
    bool global_races = true;
    bool uninitialised_shared = true;
};
Options& options();

using Site = std::source_location;
#define VT_EMU_SITE ::vt::emu::Site site = ::vt::emu::Site::current()

struct Block {  // what all threads of a block share
    uint3 idx{};
    dim3 dim, grid;
    unsigned serial = 0, launch = 0;                          // linear block index; launches so far
    const char *shared_lo = nullptr, *shared_hi = nullptr;    // the shared memory arena
    const char *runtime_lo = nullptr, *runtime_hi = nullptr;  // fiber stacks
};

struct Thread {
    uint3 idx{};
    unsigned rank = 0;  // linear index within the block
    const Block* block = nullptr;
    unsigned epoch = 0, warp_epoch = 0;  // block barriers and full-warp barriers passed
};

extern constinit thread_local Thread* self;  // null outside kernels

// The runtime, in emu.cpp.
using Resolve = void (*)(void* const* lanes, unsigned present);
void run(dim3 grid, dim3 block, std::size_t dynamic_shared, void (*body)(void*), void* arg);
int block_barrier(const char* op, int predicate, Site site);  // returns how many predicates held
// Waits for every living lane of `mask`. The last to arrive calls `resolve` with all lanes'
// payloads. `same_site` asks for one call site, as PTX instructions marked .aligned do.
void warp_op(const char* op, unsigned mask, void* payload, Resolve resolve, Site site,
             bool same_site = false);
unsigned living_lanes();
void yield();
[[noreturn]] void fail(Site site, const char* format, ...) __attribute__((format(printf, 2, 3)));
void* shared_variable(const void* key, const char* name, std::size_t bytes, std::size_t align);
void* dynamic_shared();
void atomic_load(const void* from, void* to, std::size_t bytes);
bool atomic_swap_if(void* at, void* expected, const void* desired, std::size_t bytes);

// A __shared__ variable. `tag` is a fresh lambda at each declaration: its type names the variable.
template <class T, class Tag>
T& shared(const char* name, Tag) {
    static_assert(std::is_trivially_default_constructible_v<T>,
                  "CUDA wants trivial types in shared memory");
    static const char key = 0;
    return *static_cast<T*>(shared_variable(&key, name, sizeof(T), alignof(T)));
}

inline int lane() {
    return static_cast<int>(self->rank % 32);
}

template <class Lane, class F>  // F(Lane& of each present lane, its number)
void each_lane(void* const* lanes, unsigned present, F f) {
    for (unsigned left = present; left != 0; left &= left - 1) {
        const int l = std::countr_zero(left);
        f(*static_cast<Lane*>(lanes[l]), l);
    }
}

// Every shuffle: take `value` from lane `source`.
template <class T>
T exchange(const char* op, unsigned mask, T value, int source, Site site) {
    struct Lane {
        T in, out;
        int source;
        bool absent;
    } mine{value, value, source, false};
    warp_op(
        op, mask, &mine,
        [](void* const* lanes, unsigned present) {
            each_lane<Lane>(lanes, present, [&](Lane& me, int) {
                me.absent = (present >> me.source & 1) == 0;
                if (!me.absent) me.out = static_cast<Lane*>(lanes[me.source])->in;
            });
        },
        site);
    if (mine.absent) fail(site, "%s reads lane %d, which takes no part", op, source);
    return mine.out;
}

// Every vote and reduction: fold the values of all lanes. `Fold` is a stateless function object.
template <class T, class Fold>
T reduce(const char* op, unsigned mask, T value, Fold, Site site) {
    struct Lane {
        T in, out;
    } mine{value, value};
    warp_op(
        op, mask, &mine,
        [](void* const* lanes, unsigned present) {
            T total{};
            bool first = true;
            each_lane<Lane>(lanes, present, [&](Lane& me, int l) {
                total = Fold{}(total, me.in, l, first), first = false;
            });
            each_lane<Lane>(lanes, present, [&](Lane& me, int) { me.out = total; });
        },
        site);
    return mine.out;
}

inline int segment(int width, Site site) {  // first lane of this lane's group of `width`
    if (width < 1 || width > 32 || (width & (width - 1)) != 0)
        fail(site, "shuffle width %d", width);
    return lane() & ~(width - 1);
}

template <class T, class F>
T atomic(T* at, F change) {
    T old, next;
    atomic_load(at, &old, sizeof(T));
    do next = change(old);
    while (!atomic_swap_if(at, &old, &next, sizeof(T)));
    return old;
}

}  // namespace vt::emu

// ---- keywords and built-in variables
// --------------------------------------------------------------- The CUDA headers already blank
// __global__, __device__, __host__, __constant__ for g++.
#define __launch_bounds__(...)
#ifdef __SANITIZE_THREAD__  // g++ forgets to report the store in a[i] = f(), where f returns a
                            // struct, such as a
#undef __global__           // bf16, and is not inlined; so inline all that a kernel calls
#define __global__ __attribute__((flatten))
#endif
#undef __cluster_dims__  // the CUDA headers leave an attribute g++ does not know
#undef __shared__        // blanked, it would quietly make each thread its own copy
#define __shared__ \
    static_assert(false, "declare shared memory with VT_SHARED or VT_SHARED_DYNAMIC");

#define threadIdx (::vt::emu::self->idx)
#define blockIdx (::vt::emu::self->block->idx)
#define blockDim (::vt::emu::self->block->dim)
#define gridDim (::vt::emu::self->block->grid)
#define warpSize 32

// ---- barriers
// ----------------------------------------------------------------------------------------
inline void __syncthreads(VT_EMU_SITE) {
    vt::emu::block_barrier("__syncthreads", 0, site);
}
inline int __syncthreads_count(int p, VT_EMU_SITE) {
    return vt::emu::block_barrier("__syncthreads_count", p, site);
}
inline int __syncthreads_or(int p, VT_EMU_SITE) {
    return vt::emu::block_barrier("__syncthreads_or", p, site) != 0;
}
inline int __syncthreads_and(int p, VT_EMU_SITE) {
    return vt::emu::block_barrier("__syncthreads_and", !p, site) == 0;
}
inline void __syncwarp(unsigned mask = ~0u, VT_EMU_SITE) {
    vt::emu::warp_op("__syncwarp", mask, nullptr, nullptr, site);
}
inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __nanosleep(unsigned) {
    vt::emu::yield();
}  // spin loops must call it: fibers are not preempted
inline unsigned __activemask() {
    return vt::emu::living_lanes();
}
inline void __trap(VT_EMU_SITE) {
    vt::emu::fail(site, "__trap");
}

// ---- warp operations
// -----------------------------------------------------------------------------------
template <class T>
T __shfl_sync(unsigned mask, T v, int source, int width = 32, VT_EMU_SITE) {
    return vt::emu::exchange("__shfl_sync", mask, v,
                             vt::emu::segment(width, site) + (source & (width - 1)), site);
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, unsigned delta, int width = 32, VT_EMU_SITE) {
    const int l = vt::emu::lane(), s = l - static_cast<int>(delta);
    return vt::emu::exchange("__shfl_up_sync", mask, v, s >= vt::emu::segment(width, site) ? s : l,
                             site);
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, unsigned delta, int width = 32, VT_EMU_SITE) {
    const int l = vt::emu::lane(), s = l + static_cast<int>(delta);
    return vt::emu::exchange("__shfl_down_sync", mask, v,
                             s < vt::emu::segment(width, site) + width ? s : l, site);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int lane_mask, int width = 32, VT_EMU_SITE) {
    const int l = vt::emu::lane(), s = l ^ lane_mask;
    return vt::emu::exchange("__shfl_xor_sync", mask, v,
                             s < vt::emu::segment(width, site) + width ? s : l, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, VT_EMU_SITE) {
    constexpr auto fold = [](unsigned sum, unsigned p, int l, bool) {
        return sum | (p != 0 ? 1u << l : 0u);
    };
    return vt::emu::reduce("__ballot_sync", mask, predicate != 0 ? 1u : 0u, fold, site);
}
inline int __any_sync(unsigned mask, int p, VT_EMU_SITE) {
    return __ballot_sync(mask, p, site) != 0;
}
inline int __all_sync(unsigned mask, int p, VT_EMU_SITE) {
    return __ballot_sync(mask, !p, site) == 0;
}

#define VT_EMU_REDUCE(name, T, expression)                         \
    inline T name(unsigned mask, T v, VT_EMU_SITE) {               \
        constexpr auto fold = [](T a, T b, int, bool first) -> T { \
            return first ? b : (expression);                       \
        };                                                         \
        return vt::emu::reduce(#name, mask, v, fold, site);        \
    }
VT_EMU_REDUCE(__reduce_add_sync, unsigned, a + b)
VT_EMU_REDUCE(__reduce_min_sync, unsigned, a < b ? a : b)
VT_EMU_REDUCE(__reduce_max_sync, unsigned, a < b ? b : a)
VT_EMU_REDUCE(__reduce_and_sync, unsigned, a& b)
VT_EMU_REDUCE(__reduce_or_sync, unsigned, a | b)
VT_EMU_REDUCE(__reduce_xor_sync, unsigned, a ^ b)
VT_EMU_REDUCE(__reduce_min_sync, int, a < b ? a : b)
VT_EMU_REDUCE(__reduce_max_sync, int, a < b ? b : a)
inline int __reduce_add_sync(unsigned mask, int v, VT_EMU_SITE) {
    return static_cast<int>(__reduce_add_sync(mask, static_cast<unsigned>(v), site));
}
#undef VT_EMU_REDUCE

// ---- atomics
// ---------------------------------------------------------------------------------------------
template <class T>
using vt_emu_same = std::type_identity_t<T>;  // so that atomicAdd(&an_unsigned, 1) finds its type
template <class T>
T atomicAdd(T* p, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [v](T o) { return T(o + v); });
}
template <class T>
T atomicSub(T* p, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [v](T o) { return T(o - v); });
}
template <class T>
T atomicMax(T* p, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [v](T o) { return o < v ? v : o; });
}
template <class T>
T atomicMin(T* p, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [v](T o) { return v < o ? v : o; });
}
template <class T>
T atomicOr(T* p, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [v](T o) { return o | v; });
}
template <class T>
T atomicExch(T* p, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [v](T) { return v; });
}
template <class T>
T atomicCAS(T* p, vt_emu_same<T> expected, vt_emu_same<T> v) {
    return vt::emu::atomic(p, [=](T o) { return o == expected ? v : o; });
}
inline __nv_bfloat162 atomicAdd(__nv_bfloat162* p, __nv_bfloat162 v) {
    return vt::emu::atomic(p, [v](__nv_bfloat162 o) { return __hadd2(o, v); });
}
inline __half2 atomicAdd(__half2* p, __half2 v) {
    return vt::emu::atomic(p, [v](__half2 o) { return __hadd2(o, v); });
}

// ---- loads with cache hints, and arithmetic
// ------------------------------------------------------------------
template <class T>
T __ldg(const T* p) {
    return *p;
}
template <class T>
T __ldca(const T* p) {
    return *p;
}
template <class T>
T __ldcg(const T* p) {
    return *p;
}
template <class T>
T __ldcs(const T* p) {
    return *p;
}
template <class T>
void __stcg(T* p, vt_emu_same<T> v) {
    *p = v;
}
template <class T>
void __stcs(T* p, vt_emu_same<T> v) {
    *p = v;
}

template <class A, class B>
constexpr std::common_type_t<A, B> min(A a, B b) {
    return b < a ? b : a;
}
template <class A, class B>
constexpr std::common_type_t<A, B> max(A a, B b) {
    return a < b ? b : a;
}

inline unsigned __float_as_uint(float f) {
    return std::bit_cast<unsigned>(f);
}
inline int __float_as_int(float f) {
    return std::bit_cast<int>(f);
}
inline float __uint_as_float(unsigned u) {
    return std::bit_cast<float>(u);
}
inline float __int_as_float(int i) {
    return std::bit_cast<float>(i);
}
inline int __popc(unsigned u) {
    return std::popcount(u);
}
inline int __clz(int i) {
    return std::countl_zero(static_cast<unsigned>(i));
}
inline int __ffs(int i) {
    return i == 0 ? 0 : std::countr_zero(static_cast<unsigned>(i)) + 1;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return static_cast<unsigned>(std::uint64_t{a} * b >> 32);
}

// The GPU versions of the __ functions are less accurate than these; tests must allow for it.
inline float __expf(float x) {
    return std::exp(x);
}
inline float __logf(float x) {
    return std::log(x);
}
inline float __log2f(float x) {
    return std::log2(x);
}
inline float __sinf(float x) {
    return std::sin(x);
}
inline float __cosf(float x) {
    return std::cos(x);
}
inline void __sincosf(float x, float* s, float* c) {
    *s = std::sin(x), *c = std::cos(x);
}
inline float __powf(float x, float y) {
    return std::pow(x, y);
}
inline float __fdividef(float x, float y) {
    return x / y;
}
inline float rsqrtf(float x) {
    return 1.0f / std::sqrt(x);
}
inline float __frsqrt_rn(float x) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
    return std::sqrt(x);
}
inline float __fmaf_rn(float a, float b, float c) {
    return std::fma(a, b, c);
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __saturatef(float x) {
    return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f;
}
inline int __float2int_rn(float x) {
    return static_cast<int>(std::nearbyint(x));
}
inline int __float2int_rz(float x) {
    return static_cast<int>(x);
}

// What cuda_bf16.h and cuda_fp16.h hide from a host compiler and kernels are likely to use. A
// product of two of these is exact in double and a sum rounds once more on the way down: one result
// in very many may differ.
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __double2bfloat16(double{__bfloat162float(a)} * __bfloat162float(b) +
                             __bfloat162float(c));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
inline __half __hfma(__half a, __half b, __half c) {
    return __double2half(double{__half2float(a)} * __half2float(b) + __half2float(c));
}
#define VT_EMU_BF16(name, expression)            \
    inline __nv_bfloat16 name(__nv_bfloat16 a) { \
        const float x = __bfloat162float(a);     \
        return __float2bfloat16(expression);     \
    }
VT_EMU_BF16(hexp, std::exp(x))
VT_EMU_BF16(hlog, std::log(x))
VT_EMU_BF16(hsqrt, std::sqrt(x))
VT_EMU_BF16(hrsqrt, 1.0f / std::sqrt(x))
VT_EMU_BF16(hrcp, 1.0f / x)
VT_EMU_BF16(htanh, std::tanh(x))
VT_EMU_BF16(hsin, std::sin(x))
VT_EMU_BF16(hcos, std::cos(x))
#undef VT_EMU_BF16

// ---- what cuda/kernel.h defines for nvcc -------------------------------------------------------
#define VT_SHARED(name, ...) \
    auto& name = ::vt::emu::shared<std::type_identity_t<__VA_ARGS__>>(#name, [] {})
#define VT_SHARED_DYNAMIC(name, ...) \
    __VA_ARGS__* const name = static_cast<__VA_ARGS__*>(::vt::emu::dynamic_shared())
#define VT_EMULATED 1

namespace vt::emu {

/// Told of every launch before it runs; may be null. `stream` is the launch's.
extern void (*launching)(const char* name, double bytes, void* stream);

/// Runs the kernel to its end. `l` is the Launch of cuda/launch.h; `values` is a tuple of the
/// kernel's own parameter types.
template <class Launch, class Kernel, class Tuple>
void launch(const Launch& l, Kernel kernel, Tuple& values) {
    if (launching != nullptr) launching(l.name, l.bytes, l.stream);
    auto body = [&] { std::apply(kernel, values); };
    run(
        l.grid, l.block, l.shared, [](void* b) { (*static_cast<decltype(body)*>(b))(); }, &body);
}

}  // namespace vt::emu
