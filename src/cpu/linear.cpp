// SPDX-License-Identifier: MIT
// Linear layers: cuts the output into blocks by shape; each block sums over its whole depth in one
// thread, so the bits do not depend on how many threads there are.
#include "cpu/matmul_parts.h"

namespace vt {

namespace {

using kernel::Finish;
using kernel::MatmulTable;
using kernel::Product;

// Cuts p's M x N into blocks and computes them. Blocks shrink while there are few of them, so that
// a small product still feeds several threads.
void run_blocks(const MatmulTable& t, const Ctx& ctx, const Product& p) {
    if (p.M == 0 || p.N == 0) return;
    Cut rows = cut(p.M, t.block_m, 48), columns = cut(p.N, t.block_n, 32);
    constexpr int64_t kEnough = 32;
    for (int64_t limit_m = t.block_m, limit_n = t.block_n;
         rows.count * columns.count < kEnough && (limit_m > 96 || limit_n > 96);) {
        if (limit_m >= limit_n) {
            limit_m /= 2;
        } else {
            limit_n /= 2;
        }
        rows = cut(p.M, limit_m, 48);
        columns = cut(p.N, limit_n, 32);
    }
    const ThreadScratch scratch(ctx, t.product_floats);
    const int64_t a_size = p.a.bf16 ? 2 : 4, b_size = p.b.bf16 ? 2 : 4;
    const int64_t y_size = p.y_bf16 ? 2 : 4, pre_size = p.pre_bf16 ? 2 : 4;
    ctx.pool->parallel_for(rows.count * columns.count, [&](int64_t i, int thread) {
        // neighbours share the columns: w is read once while the rows go by
        const int64_t im = i % rows.count, in = i / rows.count;
        const int64_t m = rows.begin(im), n = columns.begin(in);
        Product block = p;
        block.M = rows.size(im);
        block.N = columns.size(in);
        block.a.data = static_cast<const char*>(p.a.data) + m * (p.a.across ? 1 : p.a.ld) * a_size;
        block.b.data = static_cast<const char*>(p.b.data) + n * (p.b.across ? 1 : p.b.ld) * b_size;
        block.y = static_cast<char*>(p.y) + (m * p.ld + n) * y_size;
        if (p.pre != nullptr) {
            block.pre = static_cast<char*>(p.pre) + (m * p.ld_pre + n) * pre_size;
        }
        if (p.bias != nullptr) block.bias = p.bias + n;
        t.product(block, scratch.of(thread));
    });
}

}  // namespace

void cpu_linear_fwd(Isa isa, const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b,
                    Epilogue f) {
    Product p;
    p.M = x.shape[0];
    p.N = w.shape[0];
    p.K = w.shape[1];
    p.a = {x.data, p.K, is_bf16(x), false};
    p.b = {w.data, p.K, is_bf16(w), false};
    p.y = y.data;
    p.ld = p.N;
    p.y_bf16 = is_bf16(y);
    p.bias = b.present() ? b.as<float>() : nullptr;
    if (f == Epilogue::kGelu) {
        p.finish = Finish::kGelu;
        p.pre = pre.data;
        p.ld_pre = p.N;
        p.pre_bf16 = is_bf16(pre);
    }
    run_blocks(matmul_table(isa), ctx, p);
}

void cpu_linear_bwd_input(Isa isa, const Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor pre,
                          Epilogue f, bool accumulate) {
    Product p;
    p.M = dy.shape[0];
    p.N = w.shape[1];
    p.K = w.shape[0];
    p.a = {dy.data, p.K, is_bf16(dy), false};
    p.b = {w.data, p.N, is_bf16(w), true};
    p.y = dx.data;
    p.ld = p.N;
    p.y_bf16 = is_bf16(dx);
    VT_CHECK(!accumulate || !p.y_bf16, "gradients are accumulated in f32");
    p.finish = accumulate ? Finish::kAdd : Finish::kStore;
    if (f == Epilogue::kGelu) {
        p.finish = accumulate ? Finish::kGeluSlopeAdd : Finish::kGeluSlope;
        // read only in this direction
        p.pre = const_cast<void*>(pre.data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
        p.ld_pre = p.N;
        p.pre_bf16 = is_bf16(pre);
    }
    run_blocks(matmul_table(isa), ctx, p);
}

void cpu_linear_bwd_weight(Isa isa, const Ctx& ctx, Tensor dw, Tensor db, CTensor dy, CTensor x) {
    const MatmulTable& t = matmul_table(isa);
    Product p;
    p.M = dw.shape[0];
    p.N = dw.shape[1];
    p.K = x.shape[0];
    p.a = {dy.data, p.M, is_bf16(dy), true};
    p.b = {x.data, p.N, is_bf16(x), true};
    p.y = dw.as<float>();
    p.ld = p.N;
    p.finish = Finish::kAdd;
    run_blocks(t, ctx, p);
    if (!db.present()) return;
    const Cut columns = cut(p.M, 128, 16);
    float* out = db.as<float>();
    ctx.pool->parallel_for(columns.count, [&](int64_t i, int /*thread*/) {
        const int64_t n = columns.begin(i);
        t.column_sum[p.a.bf16 ? 1 : 0](out + n,
                                       static_cast<const char*>(dy.data) + n * (p.a.bf16 ? 2 : 4),
                                       p.M, p.K, columns.size(i));
    });
}

}  // namespace vt
