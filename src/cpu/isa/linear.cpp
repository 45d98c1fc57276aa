// SPDX-License-Identifier: MIT
// Blocks of matrix products with their epilogues, in f32 arithmetic on f32 or bf16 operands.
// Compiled three times (see vec.h). Floor 2.
#include "cpu/isa/finish.h"
#include "cpu/isa/panel.h"

namespace vt::VT_ISA {
namespace {

using kernel::Operand;
using kernel::Product;

// Depth of a packed block: a panel of B (kNr x kDepth floats, at most 32 KiB) stays in the first
// cache while the panels of A pass by; A, B and C of a block stay in the second.
constexpr int64_t kDepth = 256;
constexpr int64_t kBlockM = 480, kBlockN = 384;
static_assert(kBlockM % kMr == 0 && kBlockN % kNr == 0, "blocks are whole panels");

template <int W, typename T>
void pack(float* dst, const Operand& o, int64_t rows, int64_t k0, int64_t K) {
    const T* src = static_cast<const T*>(o.data);
    if (o.across) {
        pack_across<W>(dst, src + k0 * o.ld, o.ld, rows, K);
    } else {
        pack_along<W>(dst, src + k0, o.ld, rows, K);
    }
}

void product(const Product& p, float* scratch) {
    float* a = scratch;
    float* b = a + kBlockM * kDepth;
    float* c = b + kBlockN * kDepth;
    alignas(64) float tile[kMr * kNr];
    const int64_t rows = round_to(p.M, kMr);
    int64_t k0 = 0;
    do {  // once for K = 0 too: an empty sum is 0
        const int64_t K = p.K - k0 < kDepth ? p.K - k0 : kDepth;
        const bool fresh = k0 == 0, last = k0 + K == p.K;
        if (p.a.bf16) {
            pack<kMr, uint16_t>(a, p.a, p.M, k0, K);
            pack<kNr, uint16_t>(b, p.b, p.N, k0, K);
        } else {
            pack<kMr, float>(a, p.a, p.M, k0, K);
            pack<kNr, float>(b, p.b, p.N, k0, K);
        }
        for (int64_t n = 0; n < p.N; n += kNr) {
            for (int64_t m = 0; m < p.M; m += kMr) {
                float* sums = c + n * rows + m * kNr;
                if (fresh && last) sums = tile;
                register_tile(a + m * K, b + n * K, K, sums, kNr, fresh);
                if (!last) continue;
                finish_tile(p, sums, kNr, m, n, p.M - m < kMr ? p.M - m : kMr,
                            p.N - n < kNr ? p.N - n : kNr);
            }
        }
        k0 += K;
    } while (k0 < p.K);
}

void finish(const Product& p, const float* c, int64_t ldc) {
    finish_tile(p, c, ldc, 0, 0, p.M, p.N);
}

// Runs of 64 rows are summed first, so that the rounding error grows with the square root of a
// small number.
template <typename T>
void column_sum(float* out, const void* x, int64_t ld, int64_t S, int64_t N) {
    const T* in = static_cast<const T*>(x);
    each_block(N, [&](int64_t n, auto w) VT_INLINE_LAMBDA {
        F16 total = zero();
        for (int64_t s0 = 0; s0 < S; s0 += 64) {
            F16 part = zero();
            const int64_t end = s0 + 64 < S ? s0 + 64 : S;
            for (int64_t s = s0; s < end; ++s) part = part + load(in + s * ld + n, w);
            total = total + part;
        }
        store(out + n, load(out + n, w) + total, w);
    });
}

}  // namespace

void fill_linear(kernel::MatmulTable& t) {
    t.block_m = kBlockM;
    t.block_n = kBlockN;
    t.product_floats = (kBlockM + kBlockN) * kDepth + kBlockM * kBlockN;
    t.product = product;
    t.finish = finish;
    t.column_sum[0] = column_sum<float>;
    t.column_sum[1] = column_sum<uint16_t>;
}

}  // namespace vt::VT_ISA
