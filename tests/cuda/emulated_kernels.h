// SPDX-License-Identifier: MIT
// Small kernels that test the emulator itself: right ones, and one for each mistake it must find.
#pragma once
#include <cuda_bf16.h>

namespace vt::test::emulated {

// Correct ones. Each has a block of `threads` threads, unless it says otherwise.
inline constexpr int kOps = 16;
void warp_operations(int* out, int threads);  // out[threads][kOps]
void half_warps(int* out);                    // 32 threads, whose halves diverge
void indices(int* out);                       // grid (3,2,2), block (4,3,5): out[720]
void atomics(int* i, float* f, __nv_bfloat162* b, int blocks, int threads);
void transpose(const float* in, float* out,
               int n);  // n x n by 32 x 32 tiles in static shared memory
void scan(const int* in, int* out,
          int n);  // inclusive sum, one block of n threads, dynamic shared memory
void bf16_math(const __nv_bfloat16* a, const __nv_bfloat16* b, __nv_bfloat16* out,
               int n);  // out[n][4]
void neighbours(unsigned char* bytes, __nv_bfloat16* halves,
                int n);      // threads write adjacent bytes, and read back
void flag(int* out, int n);  // threads wait for one that sets a flag
void float_sum(const float* in, float* out,
               int n);  // by atomicAdd: depends on the order of threads

// Wrong ones. `data` has n ints; one block of n threads unless the name says otherwise.
using Wrong = void (*)(int* data, int n);
void missing_syncthreads(int* data, int n);
void missing_second_syncthreads(int* data, int n);
void missing_syncwarp(int* data, int n);
void syncwarp_across_warps(int* data, int n);
void syncwarp_after_readers_of_two_warps(int* data, int n);
void uninitialised_shared(int* data, int n);
void static_write_past_end(int* data, int n);
void dynamic_read_past_end(int* data, int n);
void dynamic_write_before_start(int* data, int n);
void exit_before_barrier(int* data, int n);
void barrier_in_both_branches(int* data, int n);
void barrier_in_one_branch(int* data, int n);
void shuffle_in_one_branch(int* data, int n);
void shuffle_from_exited_lane(int* data, int n);
void lane_outside_own_mask(int* data, int n);
void endless_wait(int* data, int n);
void too_much_shared(int* data, int n);
void too_many_threads(int* data, int n);
void no_dynamic_shared(int* data, int n);
void blocks_write_same_word(int* data, int n);
void block_reads_what_another_wrote(int* data, int n);
void plain_and_atomic(int* data, int n);
void global_read_past_end(int* data, int n);
void misaligned_vector_load(int* data, int n);

}  // namespace vt::test::emulated
