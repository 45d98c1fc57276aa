// SPDX-License-Identifier: MIT
// Floor 2. See meta/meta.h.
#include "meta/meta.h"

#include <algorithm>

namespace vt {

namespace {

// A slot of any signature that does nothing.
template <typename Signature>
struct Nothing;
template <typename... Args>
struct Nothing<void (*)(Args...)> {
    static void call(Args... /*unused*/) {}
};

}  // namespace

Ops meta_ops(const Ops& target) {
    Ops ops;
    ops.backend = "meta";
    ops.instruction_path = target.instruction_path;
    ops.scratch_bytes = target.scratch_bytes;
#define VT_OP_NOTHING(name) ops.name = Nothing<decltype(ops.name)>::call;
    VT_OPS(VT_OP_NOTHING)
#undef VT_OP_NOTHING
    return ops;
}

void Ledger::begin(const char* op, double flop, double bytes) {
    OpTotal& t = by_op_[op];
    t.op = op;
    t.calls += 1;
    t.flop += flop;
    t.bytes += bytes;
}

std::vector<OpTotal> Ledger::totals() const {
    std::vector<OpTotal> out;
    for (const auto& [op, total] : by_op_) out.push_back(total);
    std::stable_sort(out.begin(), out.end(),
                     [](const OpTotal& a, const OpTotal& b) { return a.flop > b.flop; });
    return out;
}

}  // namespace vt
