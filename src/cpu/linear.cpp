// SPDX-License-Identifier: MIT
// Linear layers: cuts the output into blocks by shape; each block sums over its whole depth in one
// thread, so the bits do not depend on how many threads there are.
#include <algorithm>
#include <cstring>

#include "cpu/matmul_parts.h"
#include "cpu/onednn.h"

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
    // Blocks for the library, which needs large ones: none is made smaller than `work`
    // multiply-adds to have more of them.
    static Blocks for_library(int64_t M, int64_t N, int64_t K) {
        constexpr int64_t kEnough = 12, kWork = int64_t{1} << 22;
        Blocks b;
        int64_t limit_m = kLibraryM, limit_n = kLibraryN;
        for (;;) {
            b.rows_ = cut(M, limit_m, 32);
            b.columns_ = cut(N, limit_n, 64);
            const int64_t m = b.rows_.piece, n = b.columns_.piece;
            if (b.count() >= kEnough || m * n * K < 2 * kWork) return b;
            (m >= n ? limit_m : limit_n) = std::max<int64_t>(std::max(m, n) / 2, 32);
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
    Blocks() = default;
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

// B's rows [k, k + K) of N columns, one after another: where they lie some KiB apart they share few
// sets of the first cache, and the library, which reads them in place, runs at half its speed.
void gather(float* dst, const Operand& b, int64_t k, int64_t K, int64_t N) {
    const float* src = static_cast<const float*>(b.data) + k * b.ld;
    for (int64_t i = 0; i < K; ++i) {
        std::memcpy(dst + i * N, src + i * b.ld, static_cast<size_t>(N) * sizeof(float));
    }
}

// One block by the library, kLibraryDepth of the summed index at a time, then its epilogue; false,
// nothing written, if it has no kernel for it.
bool library_block(const MatmulTable& t, const Product& p, float* scratch) {
    const bool in_place =
        !p.y_bf16 && p.bias == nullptr && (p.finish == Finish::kStore || p.finish == Finish::kAdd);
    float* sums = in_place ? static_cast<float*>(p.y) : scratch;
    float* gathered = scratch + round_up(p.M * p.N, 16);
    const Cut depth = cut(p.K, kLibraryDepth, 64);
    float* library = gathered + round_up(depth.piece * p.N, 16);
    BlockProduct block;
    block.M = p.M;
    block.N = p.N;
    block.lda = p.a.ld;
    block.ldb = p.b.across ? p.N : p.b.ld;
    block.ldc = in_place ? p.ld : p.N;
    block.a_across = p.a.across;
    block.b_across = p.b.across;
    block.add = in_place && p.finish == Finish::kAdd;
    for (int64_t i = 0; i < depth.count; ++i) {
        const int64_t k = depth.begin(i);
        block.K = depth.size(i);
        const auto at = [k](const Operand& o) {
            return static_cast<const float*>(o.data) + k * (o.across ? o.ld : 1);
        };
        if (p.b.across) gather(gathered, p.b, k, block.K, p.N);
        if (!library_product(block, at(p.a), p.b.across ? gathered : at(p.b), sums, library)) {
            VT_CHECK(i == 0, "oneDNN computed {} of {} parts of a sum", i, depth.count);
            return false;
        }
        block.add = true;
    }
    if (!in_place) t.finish(p, sums, p.N);
    return true;
}

// Which f32 products oneDNN computes, where there is AVX-512. Its rate over that of the kernels of
// isa/linear.cpp, interleaved, one thread, Xeon model 207, M x N x K of the forward:
//                  48x128x128  320x128x128  1024x256x1024  1024x1536x1536  4096x256x256
//                  512x6144x1536
//   forward           1.39        1.80          1.13            0.96           1.51          0.97
//   input gradient    1.25        1.72          0.89            0.98           1.33          1.12
//   weight gradient   1.47        1.31          1.03            1.06           0.85          1.02
// so all but sums much longer than the output is wide. In bf16 it reached 0.2 to 1.08 times the
// tiles of amx/linear.cpp (f32 sums, the same epilogues), below AVX-512 it has only its general
// gemm; these stay here.
bool by_library(const MatmulTable& t, const Product& p) {
    if (!t.onednn_f32 || p.K == 0 || p.a.bf16 || p.b.bf16) return false;
    return !p.a.across || p.K <= 4 * std::min(p.M, p.N);
}

void run_library(const MatmulTable& t, const Ctx& ctx, const Product& p) {
    const Blocks blocks = Blocks::for_library(p.M, p.N, p.K);
    const SharedScratch scratch(
        ctx, std::max(library_floats(std::max({p.M, p.N, p.K})), t.product_floats));
    ctx.pool->parallel_for(blocks.count(), [&](int64_t i, int thread) {
        const auto [m, n, M, N] = blocks.at(i);
        const Product part = part_of(p, m, n, M, N);
        if (!library_block(t, part, scratch.of(thread))) t.product(part, scratch.of(thread));
    });
}

// Packs A, and B unless it is still there from the call before, then computes the blocks. All of
// the depth at once: p.K is bounded by the caller. Packing once for all blocks costs a pass through
// memory; a block that packs for itself does so again for each block beside it.
void run_packed(const PackedTable& t, const Ctx& ctx, const Product& p, bool b_is_packed) {
    const int64_t steps = div_up(p.K, t.step), depth = steps * t.step;
    const int64_t a_panels = div_up(p.M, t.side), b_panels = div_up(p.N, t.side);
    const SharedScratch scratch(ctx, t.product_floats, 2 * (a_panels + b_panels) * t.side * depth);
    uint16_t* b = scratch.shared<uint16_t>();
    uint16_t* a = b + b_panels * t.side * depth;
    const int64_t b_items = b_is_packed ? 0 : p.b.across ? steps : b_panels;
    const int64_t a_items = p.a.across ? steps : a_panels;
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
        t.product(part_of(p, m, n, M, N), a + m * depth, b + n * depth, scratch.of(thread));
    });
}

// Cuts p so that what is packed at a time fits kPackedBytes, then runs the pieces in order.
void run_pieces(const PackedTable& t, const Ctx& ctx, const Product& p) {
    const int64_t elements = kPackedBytes / 2;
    const int64_t K = round_up(p.K, t.step), N = round_up(p.N, t.side), M = round_up(p.M, t.side);
    const auto at_most = [](int64_t n, int64_t limit, int64_t multiple) {
        return std::min(n, std::max(multiple, limit / multiple * multiple));
    };
    if (p.a.across && p.finish == Finish::kAdd) {
        // a sum over rows (a weight gradient): added piece by piece to what is there
        const int64_t columns = at_most(N, 2048, t.side);
        const int64_t piece = at_most(K, elements / (M + columns), t.step);
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
                run_packed(t, ctx, part, false);
            }
        }
        return;
    }
    // any other sum is whole: first columns, then rows in what they leave
    const int64_t columns = at_most(N, std::max(elements / 2, elements - M * K) / K, t.side);
    const int64_t rows = at_most(M, elements / K - columns, t.side);
    for (int64_t n = 0; n < p.N; n += columns) {
        for (int64_t m = 0; m < p.M; m += rows) {
            const int64_t part_m = std::min(rows, p.M - m), part_n = std::min(columns, p.N - n);
            run_packed(t, ctx, part_of(p, m, n, part_m, part_n), m > 0);
        }
    }
}

void run(const MatmulTable& t, const Ctx& ctx, const Product& p) {
    if (p.M == 0 || p.N == 0) return;
    if (by_library(t, p)) {
        run_library(t, ctx, p);
    } else if (p.K > 0 && p.a.bf16 && p.b.bf16 && t.packed.product != nullptr) {
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
