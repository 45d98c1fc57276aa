// SPDX-License-Identifier: MIT
#include "tests/bench/roof.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <immintrin.h>

#include "cpu/isa.h"

namespace vt::test {

namespace {

// Each loop keeps more sums going than the latency of an instruction hides, and returns something
// of them, so that none can be left out. Flop of one call in *flop.
[[gnu::target("amx-tile,amx-bf16")]] float amx_loop(double* flop) {
    alignas(64) uint8_t config[64] = {};
    config[0] = 1;
    for (int i = 0; i < 8; ++i) {
        config[16 + 2 * i] = 64;
        config[48 + i] = 16;
    }
    _tile_loadconfig(config);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    alignas(64) uint16_t ones[512];
    for (uint16_t& x : ones) x = 0x3f80;
    asm volatile("" : : "r"(ones) : "memory");
    _tile_loadd(4, ones, 64);
    _tile_loadd(5, ones, 64);
    _tile_loadd(6, ones, 64);
    _tile_loadd(7, ones, 64);
    constexpr int kTimes = 20000;
    for (int i = 0; i < kTimes; ++i) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    alignas(64) float out[256];
    _tile_stored(0, out, 64);
    asm volatile("" : : "r"(out) : "memory");
    _tile_release();
    *flop = 4.0 * kTimes * 2 * 16 * 16 * 32;
    return out[0];
}

// Sums in registers: the `+v` constraints keep the compiler from merging or dropping them.
#define VT_CHAINS(step)                                                                      \
    step(0) step(1) step(2) step(3) step(4) step(5) step(6) step(7) step(8) step(9) step(10) \
        step(11)

[[gnu::target("avx512f")]] float avx512_loop(double* flop) {
    __m512 sum[12];
    for (__m512& s : sum) s = _mm512_setzero_ps();
    __m512 a = _mm512_set1_ps(1.0F), b = _mm512_set1_ps(1e-3F);
    asm volatile("" : "+v"(a), "+v"(b));
    constexpr int kTimes = 100000;
    for (int i = 0; i < kTimes; ++i) {
#define VT_STEP(k) sum[k] = _mm512_fmadd_ps(a, b, sum[k]);
        VT_CHAINS(VT_STEP)
#undef VT_STEP
        asm volatile("" : "+v"(a), "+v"(b));
    }
    __m512 all = sum[0];
    for (int k = 1; k < 12; ++k) all = _mm512_add_ps(all, sum[k]);
    *flop = 2.0 * 12 * 16 * kTimes;
    return _mm512_cvtss_f32(all);
}

[[gnu::target("avx2,fma")]] float avx2_loop(double* flop) {
    __m256 sum[12];
    for (__m256& s : sum) s = _mm256_setzero_ps();
    __m256 a = _mm256_set1_ps(1.0F), b = _mm256_set1_ps(1e-3F);
    constexpr int kTimes = 100000;
    for (int i = 0; i < kTimes; ++i) {
#define VT_STEP(k) sum[k] = _mm256_fmadd_ps(a, b, sum[k]);
        VT_CHAINS(VT_STEP)
#undef VT_STEP
        asm volatile("" : "+x"(a), "+x"(b));
    }
    __m256 all = sum[0];
    for (int k = 1; k < 12; ++k) all = _mm256_add_ps(all, sum[k]);
    *flop = 2.0 * 12 * 8 * kTimes;
    return _mm256_cvtss_f32(all);
}

float sse2_loop(double* flop) {
    __m128 sum[12];
    for (__m128& s : sum) s = _mm_setzero_ps();
    __m128 a = _mm_set1_ps(1.0F), b = _mm_set1_ps(1e-3F);
    constexpr int kTimes = 100000;
    for (int i = 0; i < kTimes; ++i) {
#define VT_STEP(k) sum[k] = _mm_add_ps(sum[k], _mm_mul_ps(a, b));
        VT_CHAINS(VT_STEP)
#undef VT_STEP
        asm volatile("" : "+x"(a), "+x"(b));
    }
    __m128 all = sum[0];
    for (int k = 1; k < 12; ++k) all = _mm_add_ps(all, sum[k]);
    *flop = 2.0 * 12 * 4 * kTimes;
    return _mm_cvtss_f32(all);
}
#undef VT_CHAINS

struct Loop {
    float (*run)(double*);
    const char* name;
};

Loop loop_for(DType operand) {
    const Isa isa = best_isa();
    if (operand == DType::kBF16 && isa == Isa::kAmx) return {amx_loop, "AMX tiles"};
    if (isa >= Isa::kAvx512) return {avx512_loop, "AVX-512"};
    if (isa == Isa::kAvx2) return {avx2_loop, "AVX2"};
    return {sse2_loop, "SSE2"};
}

}  // namespace

const char* matrix_roof_name(DType operand) {
    return loop_for(operand).name;
}

double matrix_roof_burst(DType operand, Pool& pool) {
    const Loop loop = loop_for(operand);
    using Clock = std::chrono::steady_clock;
    std::atomic<double> flop{0}, keep{0};
    const auto begin = Clock::now();
    pool.parallel_for(pool.threads(), [&](int64_t /*i*/, int /*thread*/) {
        double mine = 0;
        keep.store(loop.run(&mine), std::memory_order_relaxed);
        for (double all = flop.load(); !flop.compare_exchange_weak(all, all + mine);) {}
    });
    return flop / std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace vt::test
