// SPDX-License-Identifier: MIT
// ops/pointwise.h on the CPU.
#include "cpu/rows.h"

namespace vt::rows {

void gate_residual_fwd(const Table& k, const Ctx& ctx, Tensor h, CTensor o, CTensor mod, int j,
                       const Segments& seg) {
    const auto kernel =
        k.gate_fwd[type_of(h.dtype, "gate_residual_fwd")][type_of(o.dtype, "gate_residual_fwd")];
    kernel::Gate args{};
    args.h = h.data;
    args.o = o.data;
    args.D = h.shape[1];
    const bool gated = mod.present();
    const float* base = gated ? mod.as<float>() : nullptr;
    const int64_t J = gated ? mod.shape[1] : 0;
    each_rows(ctx, h.shape[0], args.D, [&](int64_t begin, int64_t end, int /*thread*/) {
        if (!gated) {
            kernel(args, begin, end);
            return;
        }
        each_segment(seg, begin, end, [&](int64_t row, int64_t b, int64_t e) {
            kernel::Gate a = args;
            a.gate = base + (row * J + j) * a.D;
            kernel(a, b, e);
        });
    });
}

void gate_residual_bwd(const Table& k, const Ctx& ctx, Tensor dout, Tensor dmod, CTensor dh,
                       CTensor o, CTensor mod, int j, const Segments& seg) {
    const int type = type_of(dout.dtype, "gate_residual_bwd");
    const auto kernel =
        k.gate_bwd[type][o.present() ? type_of(o.dtype, "gate_residual_bwd") : type];
    kernel::Gate args{};
    args.dout = dout.data;
    args.dh = dh.as<float>();
    args.D = dh.shape[1];
    const int64_t D = args.D;
    if (!mod.present()) {
        each_rows(ctx, dh.shape[0], D,
                  [&](int64_t begin, int64_t end, int /*thread*/) { kernel(args, begin, end); });
        return;
    }
    args.o = o.data;
    const float* base = mod.as<float>();
    const int64_t J = mod.shape[1];
    float* sums = scratch(ctx, 0, kSlots * D, "gate_residual_bwd");
    in_waves(
        ctx, seg,
        [&](const Piece& piece, int64_t slot, int /*thread*/) {
            kernel::Gate a = args;
            a.gate = base + (piece.mod_row * J + j) * D;
            a.dgate = sums + slot * D;
            kernel(a, piece.begin, piece.end);
        },
        [&](int64_t first, int64_t last, int64_t row) {
            add_slots(k, ctx, dmod.as<float>() + (row * J + j) * D, sums, D, first, last, D);
        });
}

void silu_fwd(const Table& k, const Ctx& ctx, Tensor y, CTensor x) {
    const auto kernel = k.silu_fwd[type_of(y.dtype, "silu_fwd")][type_of(x.dtype, "silu_fwd")];
    each_elements(ctx, x.numel(),
                  [&](int64_t begin, int64_t end) { kernel(y.data, x.data, begin, end); });
}

void silu_bwd(const Table& k, const Ctx& ctx, Tensor dx, CTensor dy, CTensor x) {
    const auto kernel = k.silu_bwd[type_of(dy.dtype, "silu_bwd")][type_of(x.dtype, "silu_bwd")];
    each_elements(ctx, x.numel(), [&](int64_t begin, int64_t end) {
        kernel(dx.as<float>(), dy.data, x.data, begin, end);
    });
}

void modulation_fwd(const Table& k, const Ctx& ctx, Tensor out, CTensor table, CTensor p) {
    const int64_t J = table.shape[0], D = table.shape[1];
    const bool shared = p.shape.rank == 2;  // all slots add the same row
    const float* rows = p.as<float>();
    ctx.pool->parallel_for(out.shape[0] * J, [&](int64_t i, int /*thread*/) {
        k.sum_of(out.as<float>() + i * D, table.as<float>() + i % J * D,
                 rows + (shared ? i / J : i) * D, 0, D);
    });
}

void modulation_bwd(const Table& k, const Ctx& ctx, Tensor dtable, Tensor dp, CTensor dout) {
    const int64_t B = dout.shape[0], J = dout.shape[1], D = dout.shape[2];
    const float* up = dout.as<float>();
    if (dp.shape.rank == 2) {
        ctx.pool->parallel_for(B, [&](int64_t b, int /*thread*/) {
            k.add_parts(dp.as<float>() + b * D, up + b * J * D, D, J, 0, D);
        });
    } else {
        add(k, ctx, dp, dout);
    }
    constexpr int64_t kColumns = 1024;
    ctx.pool->parallel_for(div_up(J * D, kColumns), [&](int64_t i, int /*thread*/) {
        k.add_parts(dtable.as<float>(), up, J * D, B, i * kColumns,
                    std::min(J * D, (i + 1) * kColumns));
    });
}

void cast(const Table& k, const Ctx& ctx, Tensor y, CTensor x) {
    const auto kernel = k.cast[type_of(y.dtype, "cast")][type_of(x.dtype, "cast")];
    each_elements(ctx, x.numel(),
                  [&](int64_t begin, int64_t end) { kernel(y.data, x.data, begin, end); });
}

void add(const Table& k, const Ctx& ctx, Tensor y, CTensor x) {
    const auto kernel = k.add[type_of(x.dtype, "add")];
    each_elements(ctx, x.numel(),
                  [&](int64_t begin, int64_t end) { kernel(y.as<float>(), x.data, begin, end); });
}

namespace {
template <typename T>
void fill_as(const Ctx& ctx, Tensor y, T value) {
    T* p = y.as<T>();
    each_elements(ctx, y.numel(),
                  [&](int64_t begin, int64_t end) { std::fill(p + begin, p + end, value); });
}
}  // namespace

void fill(const Ctx& ctx, Tensor y, double value) {
    switch (y.dtype) {
        case DType::kF64:
            return fill_as(ctx, y, value);
        case DType::kF32:
            return fill_as(ctx, y, static_cast<float>(value));
        case DType::kBF16:
            return fill_as(ctx, y, to_bf16(static_cast<float>(value)));
        case DType::kI64:
            return fill_as(ctx, y, static_cast<int64_t>(value));
        case DType::kI32:
            return fill_as(ctx, y, static_cast<int32_t>(value));
        case DType::kU8:
            return fill_as(ctx, y, static_cast<uint8_t>(value));
    }
}

}  // namespace vt::rows
