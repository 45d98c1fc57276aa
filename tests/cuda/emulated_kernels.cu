// SPDX-License-Identifier: MIT
// See emulated_kernels.h.
#include "cuda/kernel.h"
#include "tests/cuda/emulated_kernels.h"

namespace vt::test::emulated {
namespace {

using vt::cuda::launch;

dim3 d(int x, int y = 1, int z = 1) {
    return {static_cast<unsigned>(x), static_cast<unsigned>(y), static_cast<unsigned>(z)};
}
__device__ int tid() {
    return static_cast<int>(threadIdx.x);
}

// ---- correct
// ------------------------------------------------------------------------------------------

__global__ void k_warp_operations(int* out) {
    const int t = tid(), l = t % 32;
    const unsigned all = __ballot_sync(~0u, 1), odd = __ballot_sync(all, t % 2);
    int* o = out + t * kOps;
    o[0] = static_cast<int>(all);
    o[1] = static_cast<int>(odd);
    o[2] = __shfl_sync(all, t, 3);
    o[3] = __shfl_sync(all, t, l + 1, 4);
    o[4] = __shfl_up_sync(all, t, 2);
    o[5] = __shfl_down_sync(all, t, 2, 8);
    o[6] = __shfl_xor_sync(all, t, 1);
    o[7] = __shfl_xor_sync(all, t, 5, 4);
    o[8] = static_cast<int>(__reduce_add_sync(all, static_cast<unsigned>(t)));
    o[9] = __reduce_max_sync(all, -t);
    o[10] = __any_sync(all, t == 5) + 2 * __all_sync(all, t < 1000);
    o[11] = __syncthreads_count(t % 3 == 0);
    o[12] = __syncthreads_or(t == 7) + 2 * __syncthreads_and(t != 7);
    o[13] = static_cast<int>(__shfl_sync(all, 0.5 * t, 2) * 2);  // 8-byte values
    o[14] = __popc(static_cast<unsigned>(t)) + 100 * __ffs(t) + 10000 * __clz(t);
    o[15] = static_cast<int>(__reduce_xor_sync(all, 1u << l % 5));
}

__global__ void k_half_warps(int* out) {
    const int t = tid();
    int v = t;
    if (t < 16) {
        for (int m = 8; m > 0; m /= 2) v += __shfl_xor_sync(0x0000FFFFu, v, m);
    } else {
        for (int m = 8; m > 0; m /= 2) v = max(v, __shfl_xor_sync(0xFFFF0000u, v, m));
        __syncwarp(0xFFFF0000u);
    }
    __syncwarp();
    out[t] = v;
}

__global__ void k_indices(int* out) {
    const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
    const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    out[block * (blockDim.x * blockDim.y * blockDim.z) + thread] =
        static_cast<int>(thread * 1000 + block);
}

__global__ void k_atomics(int* i, float* f, __nv_bfloat162* b) {
    VT_SHARED(local, int);
    if (threadIdx.x == 0) local = 0;
    __syncthreads();
    atomicAdd(&local, 1);
    __syncthreads();
    if (threadIdx.x == 0) atomicAdd(&i[0], local);
    atomicMax(&i[1], static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x));
    atomicCAS(&i[2], 0, 42);
    atomicAdd(f, 0.25f);
    if (threadIdx.x < 4) atomicAdd(b, __floats2bfloat162_rn(1.0f, 2.0f));
}

__global__ void k_transpose(const float* __restrict__ in, float* __restrict__ out, int n) {
    VT_SHARED(tile, float[32][33]);
    const int x0 = static_cast<int>(blockIdx.x) * 32, y0 = static_cast<int>(blockIdx.y) * 32,
              x = tid();
    for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8)
        if (x0 + x < n && y0 + y < n) tile[y][x] = in[(y0 + y) * n + x0 + x];
    __syncthreads();
    for (int y = static_cast<int>(threadIdx.y); y < 32; y += 8)
        if (y0 + x < n && x0 + y < n) out[(x0 + y) * n + y0 + x] = tile[x][y];
}

__global__ void k_scan(const int* __restrict__ in, int* __restrict__ out) {
    VT_SHARED_DYNAMIC(s, int);
    const int t = tid(), n = static_cast<int>(blockDim.x);
    s[t] = in[t];
    for (int step = 1; step < n; step *= 2) {
        __syncthreads();
        const int other = t >= step ? s[t - step] : 0;
        __syncthreads();
        s[t] += other;
    }
    out[t] = s[t];
}

__global__ void k_bf16_math(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out,
                            int n) {
    const int i = tid();
    if (i >= n) return;
    out[4 * i] = __hadd(a[i], b[i]);
    out[4 * i + 1] = __hmul(a[i], b[i]);
    out[4 * i + 2] = __hfma(a[i], b[i], a[i]);
    out[4 * i + 3] = hexp(a[i]);
}

__global__ void k_neighbours(unsigned char* bytes, __nv_bfloat16* halves) {
    VT_SHARED(b, unsigned char[256]);
    VT_SHARED(h, __nv_bfloat16[256]);
    const int t = tid(), n = static_cast<int>(blockDim.x), i = static_cast<int>(blockIdx.x) * n + t;
    b[t] = static_cast<unsigned char>(t);
    h[t] = __float2bfloat16(static_cast<float>(t));
    __syncwarp();
    const int same_warp = min(t ^ 1, n - 1);
    int sum = b[same_warp] + static_cast<int>(__bfloat162float(h[same_warp]));
    __syncthreads();
    sum += b[n - 1 - t];
    __syncthreads();
    if (t % 2 == 0) b[n - 1 - t] = 0;
    bytes[i] = static_cast<unsigned char>(sum);
    halves[i] = __float2bfloat16(static_cast<float>(sum));
}

__global__ void k_flag(int* out) {
    VT_SHARED(ready, int);
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x == blockDim.x - 1) atomicExch(&ready, 7);
    int seen = 0;
    while ((seen = atomicAdd(&ready, 0)) == 0) __nanosleep(100);
    out[tid()] = seen;
}

__global__ void k_float_sum(const float* in, float* out) {
    atomicAdd(out, in[blockIdx.x * blockDim.x + threadIdx.x]);
}

// ---- wrong
// ----------------------------------------------------------------------------------------------

__global__ void k_missing_syncthreads(int* data) {
    VT_SHARED(s, int[1024]);
    s[tid()] = data[tid()];
    // __syncthreads();
    data[tid()] = s[blockDim.x - 1 - threadIdx.x];
}

__global__ void k_missing_second_syncthreads(int* data) {
    VT_SHARED(s, int[1024]);
    int v = data[tid()];
    for (int i = 0; i < 3; ++i) {
        s[tid()] = v;
        __syncthreads();
        v = s[(threadIdx.x + 1) % blockDim.x];
        // __syncthreads();
    }
    data[tid()] = v;
}

__global__ void k_missing_syncwarp(int* data) {
    VT_SHARED(s, int[1024]);
    s[tid()] = data[tid()];
    // __syncwarp();
    data[tid()] = s[tid() ^ 1];
}

__global__ void k_syncwarp_across_warps(int* data) {
    VT_SHARED(s, int[1024]);
    s[tid()] = data[tid()];
    __syncwarp();  // not enough: the reader sits in another warp
    data[tid()] = s[(tid() + 32) % static_cast<int>(blockDim.x)];
}

__global__ void k_syncwarp_after_readers_of_two_warps(int* data) {
    VT_SHARED(s, int);
    if (threadIdx.x == 0) s = data[0];
    __syncthreads();
    const int v = s;
    __syncwarp();
    if (threadIdx.x == 0) s = 5;  // warp 1 may not have read yet
    data[tid()] = v;
}

__global__ void k_uninitialised_shared(int* data) {
    VT_SHARED(s, int[1024]);
    if (tid() % 2 == 0) s[tid()] = 1;
    __syncthreads();
    data[tid()] = s[tid()];
}

__global__ void k_static_write_past_end(int* data) {
    VT_SHARED(s, int[64]);
    s[tid() % 64 + 1] = data[tid()];  // all stay inside but one
    __syncthreads();
    data[tid()] = s[tid() % 63 + 1];
}

__global__ void k_dynamic_read_past_end(int* data) {
    VT_SHARED_DYNAMIC(s, int);
    s[tid()] = data[tid()];
    __syncthreads();
    data[tid()] = s[tid() + 1];
}

__global__ void k_dynamic_write_before_start(int* data) {
    VT_SHARED_DYNAMIC(s, int);
    s[tid() - 1] = data[tid()];
    __syncthreads();
    data[tid()] = tid() + 1 < static_cast<int>(blockDim.x) ? s[tid()] : 0;
}

__global__ void k_exit_before_barrier(int* data) {
    if (tid() == 5) return;
    __syncthreads();
    data[tid()] = 1;
}

__global__ void k_barrier_in_both_branches(int* data) {
    if (tid() < 32) {
        data[tid()] = 1;
        __syncthreads();
    } else {
        data[tid()] = 2;
        __syncthreads();
    }
}

__global__ void k_barrier_in_one_branch(int* data) {
    if (tid() % 2 == 0) __syncthreads();
    data[tid()] = 1;
    __syncthreads();
}

__global__ void k_shuffle_in_one_branch(int* data) {
    int v = tid();
    if (tid() % 32 < 20) v += __shfl_xor_sync(~0u, v, 1);
    __syncthreads();
    data[tid()] = v;
}

__global__ void k_shuffle_from_exited_lane(int* data) {
    if (tid() == 9) return;
    data[tid()] = __shfl_xor_sync(~0u, tid(), 1);
}

__global__ void k_lane_outside_own_mask(int* data) {
    data[tid()] = __shfl_sync(0x0000FFFFu, tid(), 0);
}

__global__ void k_endless_wait(int* data) {
    if (threadIdx.x == 0)
        while (atomicAdd(&data[0], 0) == 0) __nanosleep(100);
}

__global__ void k_too_much_shared(int* data) {
    VT_SHARED_DYNAMIC(big, int);
    VT_SHARED(more, int[8000]);
    more[tid()] = data[tid()];
    big[tid()] = more[tid()];
}

__global__ void k_no_dynamic_shared(int* data) {
    VT_SHARED_DYNAMIC(s, int);
    s[tid()] = data[tid()];
}

__global__ void k_blocks_write_same_word(int* data) {
    data[threadIdx.x] = static_cast<int>(blockIdx.x);
}

__global__ void k_block_reads_what_another_wrote(int* data) {
    if (blockIdx.x == 0)
        data[tid()] = 1;
    else
        data[gridDim.x * blockDim.x - 1 - threadIdx.x] = data[tid()];
}

__global__ void k_plain_and_atomic(int* data) {
    atomicAdd(&data[0], 1);
    if (threadIdx.x == 3) data[1] = data[0];
}

__global__ void k_global_read_past_end(int* data) {
    const int next = data[threadIdx.x + 1];  // read by all, then a barrier, then written
    __syncthreads();
    data[tid()] = next;
}

__global__ void k_misaligned_vector_load(int* data) {
    if (threadIdx.x != 0) return;
    const int4 q = *reinterpret_cast<const int4*>(data + 1);
    data[0] = q.x;
}

}  // namespace

void warp_operations(int* out, int threads) {
    launch({.grid = d(1), .block = d(threads)}, k_warp_operations, out);
}
void half_warps(int* out) {
    launch({.grid = d(1), .block = d(32)}, k_half_warps, out);
}
void indices(int* out) {
    launch({.grid = d(3, 2, 2), .block = d(4, 3, 5)}, k_indices, out);
}
void atomics(int* i, float* f, __nv_bfloat162* b, int blocks, int threads) {
    launch({.grid = d(blocks), .block = d(threads)}, k_atomics, i, f, b);
}
void transpose(const float* in, float* out, int n) {
    launch({.grid = d((n + 31) / 32, (n + 31) / 32), .block = d(32, 8)}, k_transpose, in, out, n);
}
void scan(const int* in, int* out, int n) {
    launch({.grid = d(1), .block = d(n), .shared = n * sizeof(int)}, k_scan, in, out);
}
void bf16_math(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out, int n) {
    launch({.grid = d(1), .block = d(n)}, k_bf16_math, a, b, out, n);
}
void neighbours(unsigned char* bytes, __nv_bfloat16* halves, int n) {
    launch({.grid = d(3), .block = d(n / 3)}, k_neighbours, bytes, halves);
}
void flag(int* out, int n) {
    launch({.grid = d(1), .block = d(n)}, k_flag, out);
}
void float_sum(const float* in, float* out, int n) {
    launch({.grid = d(n / 64), .block = d(64)}, k_float_sum, in, out);
}

void missing_syncthreads(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_missing_syncthreads, data);
}
void missing_second_syncthreads(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_missing_second_syncthreads, data);
}
void missing_syncwarp(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_missing_syncwarp, data);
}
void syncwarp_across_warps(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_syncwarp_across_warps, data);
}
void syncwarp_after_readers_of_two_warps(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_syncwarp_after_readers_of_two_warps, data);
}
void uninitialised_shared(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_uninitialised_shared, data);
}
void static_write_past_end(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_static_write_past_end, data);
}
void dynamic_read_past_end(int* data, int n) {
    launch({.grid = d(1), .block = d(n), .shared = n * sizeof(int)}, k_dynamic_read_past_end, data);
}
void dynamic_write_before_start(int* data, int n) {
    launch({.grid = d(1), .block = d(n), .shared = n * sizeof(int)}, k_dynamic_write_before_start,
           data);
}
void exit_before_barrier(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_exit_before_barrier, data);
}
void barrier_in_both_branches(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_barrier_in_both_branches, data);
}
void barrier_in_one_branch(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_barrier_in_one_branch, data);
}
void shuffle_in_one_branch(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_shuffle_in_one_branch, data);
}
void shuffle_from_exited_lane(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_shuffle_from_exited_lane, data);
}
void lane_outside_own_mask(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_lane_outside_own_mask, data);
}
void endless_wait(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_endless_wait, data);
}
void too_much_shared(int* data, int n) {
    launch({.grid = d(1), .block = d(n), .shared = 200 << 10}, k_too_much_shared, data);
}
void too_many_threads(int* data, int n) {
    launch({.grid = d(1), .block = d(n, n)}, k_missing_syncwarp, data);
}
void no_dynamic_shared(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_no_dynamic_shared, data);
}
void blocks_write_same_word(int* data, int n) {
    launch({.grid = d(2), .block = d(n)}, k_blocks_write_same_word, data);
}
void block_reads_what_another_wrote(int* data, int n) {
    launch({.grid = d(2), .block = d(n / 2)}, k_block_reads_what_another_wrote, data);
}
void plain_and_atomic(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_plain_and_atomic, data);
}
void global_read_past_end(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_global_read_past_end, data);
}
void misaligned_vector_load(int* data, int n) {
    launch({.grid = d(1), .block = d(n)}, k_misaligned_vector_load, data);
}

}  // namespace vt::test::emulated
