// SPDX-License-Identifier: MIT
// Linear layers: cuts the output into blocks by shape; each block sums over its whole depth in one
// thread, so the bits do not depend on how many threads there are.
#include <algorithm>

#include "cpu/matmul_parts.h"

namespace vt {

namespace {

using kernel::Finish;
using kernel::MatmulTable;
using kernel::Operand;
using kernel::PackedTable;
using kernel::Product;

// A cut of M x N into blocks. Blocks shrink while there are few of them, so that a small product
// still feeds several threads. Neighbours share the columns: w is read once while the rows go by.
class Blocks {
  public:
    Blocks(int64_t M, int64_t N, int64_t limit_m, int64_t limit_n) {
        constexpr int64_t kEnough = 24, kMultiple = 32, kSmall = 96;
        for (;;) {
            rows_ = cut(M, limit_m, kMultiple);
            columns_ = cut(N, limit_n, kMultiple);
            if (count() >= kEnough || (limit_m <= kSmall && limit_n <= kSmall)) return;
            int64_t& longer = limit_m >= limit_n ? limit_m : limit_n;
            longer = std::max<int64_t>(longer / 2, 32);
        }
    }
    [[nodiscard]] int64_t count() const { return rows_.count * columns_.count; }
    struct Block {
        int64_t m, n, M, N;
    };
    [[nodiscard]] Block at(int64_t i) const {
        const int64_t im = i % rows_.count, in = i / rows_.count;
        return {rows_.begin(im), columns_.begin(in), rows_.size(im), columns_.size(in)};
    }

  private:
    Cut rows_, columns_;
};

// The part of p that starts at (m, n) and is M x N.
Product part_of(const Product& p, int64_t m, int64_t n, int64_t M, int64_t N) {
    const auto shifted = [](const Operand& o, int64_t at) {
        Operand r = o;
        r.data = static_cast<const char*>(o.data) + at * (o.across ? 1 : o.ld) * (o.bf16 ? 2 : 4);
        return r;
    };
    Product part = p;
    part.M = M;
    part.N = N;
    part.a = shifted(p.a, m);
    part.b = shifted(p.b, n);
    part.y = static_cast<char*>(p.y) + (m * p.ld + n) * (p.y_bf16 ? 2 : 4);
    if (p.pre != nullptr) {
        part.pre = static_cast<char*>(p.pre) + (m * p.ld_pre + n) * (p.pre_bf16 ? 2 : 4);
    }
    if (p.bias != nullptr) part.bias = p.bias + n;
    return part;
}

void run_blocks(const MatmulTable& t, const Ctx& ctx, const Product& p) {
    const Blocks blocks(p.M, p.N, t.block_m, t.block_n);
    const SharedScratch scratch(ctx, t.product_floats);
    ctx.pool->parallel_for(blocks.count(), [&](int64_t i, int thread) {
        const auto [m, n, M, N] = blocks.at(i);
        t.product(part_of(p, m, n, M, N), scratch.of(thread));
    });
}

// Packs B, and A where its summed index is not contiguous, then computes the blocks. All of the
// depth at once: p.K is bounded by the caller.
void run_packed(const PackedTable& t, const Ctx& ctx, const Product& p) {
    const int64_t steps = div_up(p.K, t.step), depth = steps * t.step;
    const int64_t a_panels = div_up(p.M, t.side), b_panels = div_up(p.N, t.side);
    const int64_t a_size = p.a.across ? a_panels * t.side * depth : 0;
    const SharedScratch scratch(ctx, t.product_floats, 2 * (a_size + b_panels * t.side * depth));
    uint16_t* b = scratch.shared<uint16_t>();
    uint16_t* a = b + b_panels * t.side * depth;
    const int64_t b_items = p.b.across ? steps : b_panels, a_items = p.a.across ? steps : 0;
    ctx.pool->parallel_for(b_items + a_items, [&](int64_t i, int /*thread*/) {
        if (i < b_items) {
            t.pack_b(b, p.b, p.N, p.K, i);
        } else {
            t.pack_a(a, p.a, p.M, p.K, i - b_items);
        }
    });
    const Blocks blocks(p.M, p.N, t.block_m, t.block_n);
    ctx.pool->parallel_for(blocks.count(), [&](int64_t i, int thread) {
        const auto [m, n, M, N] = blocks.at(i);
        t.product(part_of(p, m, n, M, N), p.a.across ? a + m * depth : nullptr, b + n * depth,
                  scratch.of(thread));
    });
}

// Cuts p so that what is packed at a time fits kPackedBytes, then runs the pieces in order.
void run_pieces(const PackedTable& t, const Ctx& ctx, const Product& p) {
    const int64_t elements = kPackedBytes / 2;
    const int64_t K = round_up(p.K, t.step), N = round_up(p.N, t.side);
    const auto at_most = [](int64_t n, int64_t limit, int64_t multiple) {
        return std::min(n, std::max(multiple, limit / multiple * multiple));
    };
    // A sum over rows (a weight gradient) is added piece by piece to what is there; any other is
    // whole.
    const bool by_depth = p.a.across && p.finish == Finish::kAdd;
    const int64_t columns = by_depth ? at_most(N, 2048, t.side)
                                     : at_most(N, elements / std::max<int64_t>(K, 1), t.side);
    const int64_t piece =
        by_depth ? at_most(K, elements / (round_up(p.M, t.side) + columns), t.step) : K;
    for (int64_t n = 0; n < p.N; n += columns) {
        Product part = part_of(p, 0, n, p.M, std::min(columns, p.N - n));
        const Operand a = part.a, b = part.b;
        for (int64_t k = 0; k < p.K; k += piece) {
            part.K = std::min(piece, p.K - k);
            const auto deeper = [k](const Operand& o) {
                return static_cast<const uint16_t*>(o.data) + k * (o.across ? o.ld : 1);
            };
            part.a.data = deeper(a);
            part.b.data = deeper(b);
            run_packed(t, ctx, part);
        }
    }
}

void run(const MatmulTable& t, const Ctx& ctx, const Product& p) {
    if (p.M == 0 || p.N == 0) return;
    if (p.K > 0 && p.a.bf16 && p.b.bf16 && t.packed.product != nullptr) {
        run_pieces(t.packed, ctx, p);
    } else {
        run_blocks(t, ctx, p);
    }
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
    run(matmul_table(isa), ctx, p);
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
    run(matmul_table(isa), ctx, p);
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
    run(t, ctx, p);
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
