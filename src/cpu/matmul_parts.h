// SPDX-License-Identifier: MIT
// Between matmul.cpp, which makes the table, and linear.cpp and attention.cpp, which cut the work
// of one op into blocks. Floor 2.
#pragma once

#include <algorithm>

#include "core/check.h"
#include "cpu/isa.h"
#include "cpu/matmul_kernels.h"
#include "cpu/onednn.h"

namespace vt {

/// The kernels of one instruction set; made on first use, never changed.
[[nodiscard]] const kernel::MatmulTable& matmul_table(Isa isa);

/// Scratch floats of one thread for attention in either type.
[[nodiscard]] inline int64_t attention_floats(const kernel::MatmulTable& t, int64_t HD) {
    const int64_t all = t.attention_floats(HD);
    return t.attention_bf16_floats == nullptr ? all : std::max(all, t.attention_bf16_floats(HD));
}

// Rows of q times head width that the one-pass backward takes (8 MiB of f32 sums a thread).
inline constexpr int64_t kOnePassElements = int64_t{2} << 20;

/// Scratch floats of one thread for attention's backward over segments of at most Sq rows of q.
[[nodiscard]] inline int64_t attention_bwd_floats(const kernel::MatmulTable& t, int64_t HD,
                                                  int64_t Sq) {
    const int64_t floats = attention_floats(t, HD);
    if (t.attention_bwd_floats == nullptr || HD == 0) return floats;
    return std::max(floats, t.attention_bwd_floats(HD, std::min(Sq, kOnePassElements / HD)));
}

void cpu_linear_fwd(Isa isa, const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b,
                    Epilogue f);
void cpu_linear_bwd_input(Isa isa, const Ctx& ctx, Tensor dx, CTensor dy, CTensor w, CTensor pre,
                          Epilogue f, bool accumulate);
void cpu_linear_bwd_weight(Isa isa, const Ctx& ctx, Tensor dw, Tensor db, CTensor dy, CTensor x);

void cpu_attention_fwd(Isa isa, const Ctx& ctx, Tensor o, Tensor lse, CTensor q, CTensor k,
                       CTensor v, const Segments& qseg, const Segments& kseg, int64_t NH,
                       double scale);
void cpu_attention_delta(Isa isa, const Ctx& ctx, Tensor delta, CTensor dout, CTensor o,
                         int64_t NH);
void cpu_attention_bwd(Isa isa, const Ctx& ctx, Tensor dq, Tensor dk, Tensor dv, CTensor dout,
                       CTensor q, CTensor k, CTensor v, CTensor lse, CTensor delta,
                       const Segments& qseg, const Segments& kseg, int64_t NH, double scale);

/// f32 or bf16, else kBug: this backend computes in no other type.
[[nodiscard]] inline bool is_bf16(const CTensor& t) {
    VT_CHECK(t.dtype == DType::kF32 || t.dtype == DType::kBF16, "cpu matrix product on {}",
             name_of(t.dtype));
    return t.dtype == DType::kBF16;
}

// What a bf16 product packs of its operands at a time, at most (unless 32 rows alone are more).
inline constexpr int64_t kPackedBytes = int64_t{64} << 20;

// Largest block handed to oneDNN, and how much of the summed index at a time.
inline constexpr int64_t kLibraryM = 512, kLibraryN = 512, kLibraryDepth = 512;

/// Scratch of one thread for such blocks when no size of a product exceeds `longest`: the sums, the
/// gathered part of an operand, and the library's own.
[[nodiscard]] inline int64_t library_floats(int64_t longest) {
    const auto at_most = [longest](int64_t limit) {
        return std::min(limit, round_up(longest, 64));
    };
    return at_most(kLibraryM) * at_most(kLibraryN) + at_most(kLibraryDepth) * at_most(kLibraryN) +
           kLibraryScratch / 4;
}

// ctx.scratch as `floats` per thread, each 64-byte aligned, and a piece shared by all.
class SharedScratch {
  public:
    SharedScratch(const Ctx& ctx, int64_t floats, int64_t shared_bytes = 0)
        : floats_(round_up(floats, 16)), threads_(ctx.pool->threads()) {
        const int64_t need = bytes(floats, shared_bytes, threads_);
        VT_CHECK(ctx.scratch.bytes() >= need, "scratch of {} bytes where {} are needed",
                 ctx.scratch.bytes(), need);
        const auto at = reinterpret_cast<uintptr_t>(ctx.scratch.data);
        base_ = reinterpret_cast<float*>((at + 63) / 64 * 64);
    }
    [[nodiscard]] float* of(int thread) const { return base_ + thread * floats_; }
    template <typename T>
    [[nodiscard]] T* shared() const {
        return reinterpret_cast<T*>(base_ + threads_ * floats_);
    }
    [[nodiscard]] static int64_t bytes(int64_t floats, int64_t shared_bytes, int threads) {
        return round_up(floats, 16) * 4 * threads + shared_bytes + 64;
    }

  private:
    int64_t floats_;
    int threads_;
    float* base_;
};

// How a length is cut into equal pieces: at most `limit` long, multiples of `multiple` but for the
// last. A function of the shape alone.
struct Cut {
    int64_t length = 0, piece = 1, count = 0;
    [[nodiscard]] int64_t begin(int64_t i) const { return i * piece; }
    [[nodiscard]] int64_t size(int64_t i) const {
        return (i + 1) * piece <= length ? piece : length - i * piece;
    }
};
[[nodiscard]] inline Cut cut(int64_t length, int64_t limit, int64_t multiple) {
    if (length == 0) return {};
    const int64_t piece = round_up(div_up(length, div_up(length, limit)), multiple);
    return {length, piece, div_up(length, piece)};
}

}  // namespace vt
