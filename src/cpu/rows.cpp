// SPDX-License-Identifier: MIT
// What the row ops share: dtypes, scratch, adding up.
#include "cpu/rows.h"

namespace vt::rows {

int type_of(DType dtype, const char* op) {
    if (dtype == DType::kF32) return kernel::kF32;
    if (dtype == DType::kBF16) return kernel::kBF16;
    raise(Fault::kBug, fmt::format("{}: the cpu backend computes in f32 and bf16, not in {}", op,
                                   name_of(dtype)));
}

float* scratch(const Ctx& ctx, int64_t offset, int64_t floats, const char* op) {
    const int64_t need = (offset + floats) * static_cast<int64_t>(sizeof(float));
    VT_CHECK(ctx.scratch.bytes() >= need, "{}: scratch of {} bytes, {} needed", op,
             ctx.scratch.bytes(), need);
    // the arena aligns to 64 bytes; offsets keep floats aligned
    return static_cast<float*>(ctx.scratch.data) + offset;
}

int64_t scratch_bytes(const ScratchNeed& need) {
    const int64_t floats = kSlots * 2 * need.width + need.threads * 2 * need.head_dim;
    return floats * static_cast<int64_t>(sizeof(float));
}

void add_slots(const Table& k, const Ctx& ctx, float* acc, const float* slots, int64_t stride,
               int64_t first, int64_t last, int64_t D) {
    // columns of one task: with all slots about a task's worth of numbers
    constexpr int64_t kColumns = kTask / kSlots;
    ctx.pool->parallel_for(div_up(D, kColumns), [&](int64_t i, int /*thread*/) {
        k.add_parts(acc, slots + first * stride, stride, last - first, i * kColumns,
                    std::min(D, (i + 1) * kColumns));
    });
}

}  // namespace vt::rows
