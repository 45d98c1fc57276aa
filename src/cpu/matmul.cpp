// SPDX-License-Identifier: MIT
// The linear and attention slots of the CPU table.
//
// Products are oneDNN's or the project's own kernels', by shape (linear.cpp says which and why).
// oneDNN is held to the instruction set that the path names, and the path names its version.
#include "cpu/matmul.h"

#include <algorithm>

#include "cpu/matmul_parts.h"

namespace vt {

namespace {

kernel::MatmulTable make_table(Isa isa) {
    kernel::MatmulTable t;
    switch (isa) {
        case Isa::kAmx:
            amx::fill_linear(t);
            avx512::fill_linear(t);
            avx512::fill_attention(t);
            amx::fill_attention(t);
            t.onednn_f32 = true;
            break;
        case Isa::kAvx512:
            avx512::fill_linear(t);
            avx512::fill_attention(t);
            t.onednn_f32 = true;
            break;
        case Isa::kAvx2:
            avx2::fill_linear(t);
            avx2::fill_attention(t);
            break;
        case Isa::kBaseline:
            baseline::fill_linear(t);
            baseline::fill_attention(t);
            break;
    }
    return t;
}

// A slot is a plain function; this binds the instruction set to it.
template <Isa isa, auto op>
struct Slot;
template <Isa isa, typename... Args, void (*op)(Isa, const Ctx&, Args...)>
struct Slot<isa, op> {
    static void call(const Ctx& ctx, Args... args) { op(isa, ctx, args...); }
};

template <Isa isa>
void fill(Ops& ops) {
    ops.linear_fwd = Slot<isa, cpu_linear_fwd>::call;
    ops.linear_bwd_input = Slot<isa, cpu_linear_bwd_input>::call;
    ops.linear_bwd_weight = Slot<isa, cpu_linear_bwd_weight>::call;
    ops.attention_fwd = Slot<isa, cpu_attention_fwd>::call;
    ops.attention_delta = Slot<isa, cpu_attention_delta>::call;
    ops.attention_bwd = Slot<isa, cpu_attention_bwd>::call;
    if (isa >= Isa::kAvx512) ops.instruction_path += "+" + library_name();
}

}  // namespace

const kernel::MatmulTable& matmul_table(Isa isa) {
    // each made on first use: filling one may already execute instructions of its set
    switch (isa) {
        case Isa::kAmx: {
            static const kernel::MatmulTable kTable = make_table(Isa::kAmx);
            return kTable;
        }
        case Isa::kAvx512: {
            static const kernel::MatmulTable kTable = make_table(Isa::kAvx512);
            return kTable;
        }
        case Isa::kAvx2: {
            static const kernel::MatmulTable kTable = make_table(Isa::kAvx2);
            return kTable;
        }
        case Isa::kBaseline:
            break;
    }
    static const kernel::MatmulTable kTable = make_table(Isa::kBaseline);
    return kTable;
}

void fill_matmul_slots(Ops& ops, Isa isa) {
    switch (isa) {
        case Isa::kAmx:
            fill<Isa::kAmx>(ops);
            break;
        case Isa::kAvx512:
            fill<Isa::kAvx512>(ops);
            break;
        case Isa::kAvx2:
            fill<Isa::kAvx2>(ops);
            break;
        case Isa::kBaseline:
            fill<Isa::kBaseline>(ops);
            break;
    }
}

int64_t matmul_scratch_bytes(const ScratchNeed& need) {
    int64_t floats = 0, shared = 0;
    const int64_t rows = round_up(need.rows, 32), width = round_up(need.width, 32);
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
        if (isa > best_isa()) break;
        const kernel::MatmulTable& t = matmul_table(isa);
        floats = std::max({floats, t.product_floats, t.packed.product_floats,
                           attention_bwd_floats(t, need.head_dim, need.rows)});
        if (t.onednn_f32) {
            floats = std::max(floats, library_floats(std::max(need.rows, need.width)));
        }
        if (t.packed.product == nullptr) continue;
        // both operands packed whole, never more than a panel of each above the limit
        shared = std::min(2 * width * width + 4 * rows * width,
                          std::max(kPackedBytes, 64 * 2 * std::max(rows, width)));
    }
    return SharedScratch::bytes(floats, shared, need.threads);
}

}  // namespace vt
