// SPDX-License-Identifier: MIT
// What the copies of src/cpu/isa/{linear,attention}.cpp offer: matrix products and attention on one
// block of the output, single-threaded, on raw pointers. Who cuts the work into blocks is
// cpu/linear.cpp and cpu/attention.cpp. Plain data only, because the kernel copies include this
// (see isa/vec.h). Floor 2.
#pragma once

#include <cstdint>

namespace vt::kernel {

// One operand of a product C(m,n) = sum_k A(m,k) B(k,n), read in place.
//   across false  the summed index is contiguous: A[m * ld + k], B[n * ld + k]
//   across true   the kept index is contiguous:   A[k * ld + m], B[k * ld + n]
struct Operand {
    const void* data = nullptr;
    int64_t ld = 0;
    bool bf16 = false;
    bool across = false;
};

enum class Finish : uint8_t {
    kStore,      // y = sum + bias
    kAdd,        // y += sum (y f32)
    kGelu,       // pre = sum + bias, rounded; y = gelu(pre)
    kGeluSlope,  // y = sum * gelu'(pre)
    kGeluSlopeAdd,
};

// A block of the output and how it is finished while it is in cache.
struct Product {
    int64_t M = 0, N = 0, K = 0;
    Operand a, b;
    Finish finish = Finish::kStore;
    void* y = nullptr;  // y[m * ld + n], f32 or bf16
    int64_t ld = 0;
    bool y_bf16 = false;
    void* pre = nullptr;  // pre[m * ld_pre + n]; written by kGelu, read by kGeluSlope
    int64_t ld_pre = 0;
    bool pre_bf16 = false;
    const float* bias = nullptr;  // (N) or null
};

// Rows of one head of one segment. All tensors have row stride ld, statistics row stride ld_stat.
struct Heads {
    const void* q = nullptr;
    const void* k = nullptr;
    const void* v = nullptr;
    const void* dout = nullptr;  // backward
    void* o = nullptr;           // forward out
    void* dq = nullptr;
    void* dk = nullptr;
    void* dv = nullptr;
    float* lse = nullptr;           // forward out
    const float* lse_in = nullptr;  // backward
    const float* delta = nullptr;
    int64_t ld = 0, ld_stat = 0;
    int64_t Sq = 0, Sk = 0, HD = 0;
    float scale = 1;
};

// bf16 products whose operands are packed as a whole before the blocks are computed; product is
// null where the machine has no matrix unit.
struct PackedTable {
    int64_t side = 1, step = 1;  // an operand is packed in panels of `side` rows, `step` of k
    int64_t block_m = 0, block_n = 0;
    int64_t product_floats = 0;  // scratch of one calling thread
    // Packs item i of an operand of `rows` kept indices and K summed ones into dst. Items are
    // panels, or steps of k where o.across.
    void (*pack_a)(uint16_t* dst, const Operand& o, int64_t rows, int64_t K, int64_t i) = nullptr;
    void (*pack_b)(uint16_t* dst, const Operand& o, int64_t rows, int64_t K, int64_t i) = nullptr;
    // One block; a and b point at its first panels.
    void (*product)(const Product& p, const uint16_t* a, const uint16_t* b,
                    float* scratch) = nullptr;
};

struct MatmulTable {
    PackedTable packed;
    bool onednn_f32 = false;  // oneDNN may compute products of f32 operands
    // largest block that product() takes; K is unbounded
    int64_t block_m = 0, block_n = 0;
    int64_t product_floats = 0;  // scratch of one calling thread
    void (*product)(const Product& p, float* scratch) = nullptr;
    // What follows the sums of a block, c[m * ldc + n], that were computed elsewhere.
    void (*finish)(const Product& p, const float* c, int64_t ldc) = nullptr;
    // out[n] += sum over rows of x[s * ld + n], n < N; index: bf16
    void (*column_sum[2])(float* out, const void* x, int64_t ld, int64_t S, int64_t N) = {};

    int64_t attention_rows = 0;  // rows of a block below
    // scratch of one calling thread: of all kernels, and of those for bf16 where they want more
    int64_t (*attention_floats)(int64_t head_dim) = nullptr;
    int64_t (*attention_bf16_floats)(int64_t head_dim) = nullptr;
    // index: bf16. Query rows [begin, end) (fwd, bwd_q) or key rows [begin, end) (bwd_kv), at most
    // attention_rows of them.
    void (*attention_fwd[2])(const Heads& h, int64_t begin, int64_t end, float* scratch) = {};
    void (*attention_bwd_q[2])(const Heads& h, int64_t begin, int64_t end, float* scratch) = {};
    void (*attention_bwd_kv[2])(const Heads& h, int64_t begin, int64_t end, float* scratch) = {};
    // All gradients of one head of one segment in one pass over bf16 operands, with the bits of
    // bwd_kv and bwd_q; null where there is none. Its scratch grows with the rows of q.
    void (*attention_bwd_bf16)(const Heads& h, float* scratch) = nullptr;
    int64_t (*attention_bwd_floats)(int64_t head_dim, int64_t Sq) = nullptr;
    // delta[s * NH + n] = sum_d dout o over rows [begin, end) of (S, NH*HD)
    void (*attention_delta[2])(float* delta, const void* dout, const void* o, int64_t NH,
                               int64_t HD, int64_t begin, int64_t end) = {};
};

}  // namespace vt::kernel

namespace vt::baseline {
void fill_linear(kernel::MatmulTable& t);
void fill_attention(kernel::MatmulTable& t);
}  // namespace vt::baseline
namespace vt::avx2 {
void fill_linear(kernel::MatmulTable& t);
void fill_attention(kernel::MatmulTable& t);
}  // namespace vt::avx2
namespace vt::avx512 {
void fill_linear(kernel::MatmulTable& t);
void fill_attention(kernel::MatmulTable& t);
}  // namespace vt::avx512
namespace vt::amx {
/// Only t.packed.
void fill_linear(kernel::MatmulTable& t);
/// The bf16 kernels, over those of avx512::fill_attention: blocks of at most t.attention_rows.
void fill_attention(kernel::MatmulTable& t);
}  // namespace vt::amx
