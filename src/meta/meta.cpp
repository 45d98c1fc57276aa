// SPDX-License-Identifier: MIT
// Floor 2. See meta/meta.h.
#include "meta/meta.h"

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

}  // namespace vt
