// SPDX-License-Identifier: MIT
// The row and element ops of the CPU backend: they cut the work by shape, hand ranges to a kernel
// copy, and add partial sums up in a fixed order. Arguments as in ops/*.h, after the copy to use.
// Floor 2.
#pragma once

#include <algorithm>
#include <array>

#include "cpu/isa.h"
#include "cpu/kernels.h"

namespace vt::rows {

using kernel::Table;

// norm.cpp
void modnorm_fwd(const Table& k, const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h,
                 CTensor mod, ModIndex at, const Segments& seg, double eps);
void modnorm_bwd(const Table& k, const Ctx& ctx, Tensor dh, Tensor dmod, CTensor dy, CTensor h,
                 CTensor mean, CTensor rstd, CTensor mod, ModIndex at, const Segments& seg);
void layernorm_fwd(const Table& k, const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h,
                   CTensor w, CTensor b, double eps);
void layernorm_bwd(const Table& k, const Ctx& ctx, Tensor dh, Tensor dw, Tensor db, CTensor dy,
                   CTensor h, CTensor mean, CTensor rstd, CTensor w);
void row_sumsq(const Table& k, const Ctx& ctx, Tensor ssq, CTensor x);
void qknorm_rope_fwd(const Table& k, const Ctx& ctx, Tensor y, CTensor x, CTensor ssq, CTensor w,
                     const Rope& rope, int64_t HD, int64_t D_global, double eps);
void qknorm_rope_bwd_dot(const Table& k, const Ctx& ctx, Tensor dot, CTensor dy, CTensor x,
                         CTensor w, const Rope& rope, int64_t HD);
void qknorm_rope_bwd(const Table& k, const Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x,
                     CTensor ssq, CTensor dot, CTensor w, const Rope& rope, int64_t HD,
                     int64_t D_global, double eps);
// pointwise.cpp
void gate_residual_fwd(const Table& k, const Ctx& ctx, Tensor h, CTensor o, CTensor mod, int j,
                       const Segments& seg);
void gate_residual_bwd(const Table& k, const Ctx& ctx, Tensor dout, Tensor dmod, CTensor dh,
                       CTensor o, CTensor mod, int j, const Segments& seg);
void silu_fwd(const Table& k, const Ctx& ctx, Tensor y, CTensor x);
void silu_bwd(const Table& k, const Ctx& ctx, Tensor dx, CTensor dy, CTensor x);
void modulation_fwd(const Table& k, const Ctx& ctx, Tensor out, CTensor table, CTensor p);
void modulation_bwd(const Table& k, const Ctx& ctx, Tensor dtable, Tensor dp, CTensor dout);
void cast(const Table& k, const Ctx& ctx, Tensor y, CTensor x);
void add(const Table& k, const Ctx& ctx, Tensor y, CTensor x);
void fill(const Ctx& ctx, Tensor y, double value);
// embed.cpp
void patchify(const Ctx& ctx, Tensor rows, CTensor x, Patch patch, PatchOrder order);
void unpatchify(const Ctx& ctx, Tensor x, CTensor rows, Patch patch, PatchOrder order);
void sinusoid(const Ctx& ctx, Tensor out, CTensor t);
// objective.cpp
void flow_noise(const Table& k, const Ctx& ctx, Tensor xt, Tensor target, CTensor x0, CTensor mix,
                CTensor ids, uint64_t seed, Purpose purpose);
void flow_loss(const Table& k, const Ctx& ctx, Tensor dv, Tensor sse, CTensor v, CTensor target,
               CTensor coef);
// optimize.cpp
void adamw(const Table& k, const Ctx& ctx, Tensor p, Tensor m, Tensor v, Tensor low, CTensor g,
           CTensor scalars, const AdamW& hyper);
void sumsq(const Table& k, const Ctx& ctx, Tensor sum, CTensor x);
void ema_update(const Table& k, const Ctx& ctx, Tensor e, CTensor p, CTensor decay,
                CTensor scalars);

/// Scratch bytes of all of these.
[[nodiscard]] int64_t scratch_bytes(const ScratchNeed& need);

// --- how work is cut: by shape alone, so that sums do not depend on the thread count -------------

/// Index of a kernel table; kBug for a dtype the CPU's kernels are not made for (f64 among them).
[[nodiscard]] int type_of(DType dtype, const char* op);

// Elements of one task: enough to hide the hand-out, little enough to stay in a core's cache.
inline constexpr int64_t kTask = 16384;

/// body(begin, end, thread) over rows [0, S) of width D.
template <typename Body>
void each_rows(const Ctx& ctx, int64_t S, int64_t D, const Body& body) {
    const int64_t step = std::max<int64_t>(1, kTask / std::max<int64_t>(1, D));
    ctx.pool->parallel_for(div_up(S, step), [&](int64_t i, int thread) {
        body(i * step, std::min(S, (i + 1) * step), thread);
    });
}
/// body(begin, end) over elements [0, n); every begin is a multiple of 64.
template <typename Body>
void each_elements(const Ctx& ctx, int64_t n, const Body& body) {
    ctx.pool->parallel_for(div_up(n, kTask), [&](int64_t i, int /*thread*/) {
        body(i * kTask, std::min(n, (i + 1) * kTask));
    });
}
/// body(mod_row, begin, end) for the parts of rows [begin, end) in each segment.
template <typename Body>
void each_segment(const Segments& seg, int64_t begin, int64_t end, const Body& body) {
    // the last segment that starts at or before the first row; empty ones are passed over
    int64_t i = std::upper_bound(seg.begin, seg.begin + seg.n + 1, begin) - seg.begin - 1;
    for (; i < seg.n && begin < end; ++i) {
        const int64_t stop = std::min(end, seg.begin[i + 1]);
        if (begin < stop) body(seg.mod_row[i], begin, stop);
        begin = std::max(begin, stop);
    }
}

// Sums over rows: every segment is cut into pieces of so many rows that there are about kSlots
// pieces in all; each piece sums alone into its slot of the scratch; waves of kSlots pieces are
// added up in order.
inline constexpr int64_t kSlots = 64;
struct Piece {
    int64_t mod_row, begin, end;
};

/// run(piece, slot, thread) for every piece, combine(first, last, mod_row) after each wave for
/// every run of its slots [first, last) with one mod_row, in order, on the calling thread.
template <typename Run, typename Combine>
void in_waves(const Ctx& ctx, const Segments& seg, const Run& run, const Combine& combine) {
    const int64_t step = std::max<int64_t>(8, div_up(seg.rows(), kSlots));
    std::array<Piece, kSlots> wave;
    int64_t count = 0;
    const auto flush = [&] {
        ctx.pool->parallel_for(count, [&](int64_t slot, int thread) {
            run(wave[static_cast<size_t>(slot)], slot, thread);
        });
        for (int64_t first = 0; first < count;) {
            const int64_t m = wave[static_cast<size_t>(first)].mod_row;
            int64_t last = first + 1;
            while (last < count && wave[static_cast<size_t>(last)].mod_row == m) ++last;
            combine(first, last, m);
            first = last;
        }
        count = 0;
    };
    for (int64_t i = 0; i < seg.n; ++i) {
        for (int64_t b = seg.begin[i]; b < seg.begin[i + 1]; b += step) {
            wave[static_cast<size_t>(count++)] = {seg.mod_row[i], b,
                                                  std::min(seg.begin[i + 1], b + step)};
            if (count == kSlots) flush();
        }
    }
    if (count > 0) flush();
}

/// acc[c] += the sum of slots [first, last), which lie `stride` floats apart, for c in [0, D).
void add_slots(const Table& k, const Ctx& ctx, float* acc, const float* slots, int64_t stride,
               int64_t first, int64_t last, int64_t D);

/// `floats` floats of the scratch from `offset` on; kBug if it was declared smaller.
[[nodiscard]] float* scratch(const Ctx& ctx, int64_t offset, int64_t floats, const char* op);

}  // namespace vt::rows
