// SPDX-License-Identifier: MIT
// The CPU's table of ops: which instruction set, and who fills the slots.
#include "cpu/cpu.h"

#include <algorithm>
#include <array>
#include <cpuid.h>
#include <cstdlib>
#include <string_view>
#include <sys/syscall.h>
#include <unistd.h>

#include "core/check.h"
#include "cpu/isa.h"
#include "cpu/matmul.h"
#include "cpu/rows.h"

namespace vt {

const char* name_of(Isa isa) {
    constexpr std::array<const char*, 4> kNames = {"baseline", "avx2", "avx512", "amx"};
    return kNames.at(static_cast<size_t>(isa));
}

namespace {

// AMX with bf16, and leave from the system to use its registers (which a process has to ask for;
// asking again changes nothing).
bool has_tiles() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
    if ((d & kBf16) == 0 || (d & kTile) == 0) return false;
    constexpr int64_t kRequestPermission = 0x1023, kTileData = 18;  // arch_prctl(2)
    return ::syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

Isa best_isa() {
    // __builtin_cpu_supports asks cpuid and, for the wide registers, xgetbv: the operating system
    // must save them.
    __builtin_cpu_init();
    const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 &&
                      __builtin_cpu_supports("bmi2") != 0;
    const bool avx512 =
        __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
        __builtin_cpu_supports("avx512vl") != 0 && __builtin_cpu_supports("avx512dq") != 0;
    if (!avx2) return Isa::kBaseline;
    if (!avx512) return Isa::kAvx2;
    const bool bf16 = __builtin_cpu_supports("avx512bf16") != 0;
    return bf16 && has_tiles() ? Isa::kAmx : Isa::kAvx512;
}

Isa chosen_isa() {
    const char* asked = std::getenv("VTRAIN_CPU_ISA");
    const Isa best = best_isa();
    if (asked == nullptr || *asked == '\0') return best;
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
        if (std::string_view(asked) != name_of(isa)) continue;
        if (isa > best) {
            raise(Fault::kUser,
                  fmt::format("VTRAIN_CPU_ISA={}: this machine runs {} at best", asked,
                              name_of(best)),
                  fmt::format("unset it, or set it to {}", name_of(best)));
        }
        return isa;
    }
    raise(Fault::kUser, fmt::format("VTRAIN_CPU_ISA={}: no such instruction set", asked),
          "set it to baseline, avx2, avx512 or amx");
}

namespace {

// The kernel copy of one instruction set.
template <Isa I>
const kernel::Table& table() {
    static const kernel::Table kTable = [] {
        kernel::Table t{};
        if constexpr (I >= Isa::kAvx512) {
            avx512::fill_rows(t);
        } else if constexpr (I == Isa::kAvx2) {
            avx2::fill_rows(t);
        } else {
            baseline::fill_rows(t);
        }
        return t;
    }();
    return kTable;
}

// An op of rows.h with the copy to use already chosen: what a slot holds.
template <auto kOp, Isa I, typename... A>
void on(const Ctx& ctx, A... a) {
    kOp(table<I>(), ctx, a...);
}

int64_t scratch_bytes(const ScratchNeed& need) {
    return std::max(rows::scratch_bytes(need), matmul_scratch_bytes(need));
}

template <Isa I>
Ops make_ops() {
    Ops ops;
    ops.backend = "cpu";
    ops.instruction_path = name_of(I);
    ops.scratch_bytes = scratch_bytes;
#define VT_ROW_SLOT(name) ops.name = on<rows::name, I>;
    VT_ROW_SLOT(modnorm_fwd)
    VT_ROW_SLOT(modnorm_bwd)
    VT_ROW_SLOT(layernorm_fwd)
    VT_ROW_SLOT(layernorm_bwd)
    VT_ROW_SLOT(row_sumsq)
    VT_ROW_SLOT(qknorm_rope_fwd)
    VT_ROW_SLOT(qknorm_rope_bwd_dot)
    VT_ROW_SLOT(qknorm_rope_bwd)
    VT_ROW_SLOT(gate_residual_fwd)
    VT_ROW_SLOT(gate_residual_bwd)
    VT_ROW_SLOT(silu_fwd)
    VT_ROW_SLOT(silu_bwd)
    VT_ROW_SLOT(modulation_fwd)
    VT_ROW_SLOT(modulation_bwd)
    VT_ROW_SLOT(cast)
    VT_ROW_SLOT(add)
    VT_ROW_SLOT(flow_noise)
    VT_ROW_SLOT(flow_loss)
    VT_ROW_SLOT(adamw)
    VT_ROW_SLOT(sumsq)
    VT_ROW_SLOT(ema_update)
#undef VT_ROW_SLOT
    ops.fill = rows::fill;
    ops.patchify = rows::patchify;
    ops.unpatchify = rows::unpatchify;
    ops.sinusoid = rows::sinusoid;
    fill_matmul_slots(ops, I);
    return ops;
}

}  // namespace

const Ops& cpu_ops_on(Isa isa) {
    VT_CHECK(isa <= best_isa(), "{} on a machine that runs {} at best", name_of(isa),
             name_of(best_isa()));
    // each made on first use, so that a set the machine lacks is never asked for anything
    switch (isa) {
        case Isa::kAmx: {
            static const Ops kTable = make_ops<Isa::kAmx>();
            return kTable;
        }
        case Isa::kAvx512: {
            static const Ops kTable = make_ops<Isa::kAvx512>();
            return kTable;
        }
        case Isa::kAvx2: {
            static const Ops kTable = make_ops<Isa::kAvx2>();
            return kTable;
        }
        case Isa::kBaseline:
            break;
    }
    static const Ops kTable = make_ops<Isa::kBaseline>();
    return kTable;
}

const Ops& cpu_ops() {
    return cpu_ops_on(chosen_isa());
}

}  // namespace vt
