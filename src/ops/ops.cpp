// SPDX-License-Identifier: MIT
// Completeness of a backend's table. Floor 1.
#include "ops/ops.h"

namespace vt {

std::string missing_ops(const Ops& ops) {
    std::string missing;
    const auto need = [&](bool there, const char* name) {
        if (there) return;
        if (!missing.empty()) missing += ", ";
        missing += name;
    };
    need(ops.scratch_bytes != nullptr, "scratch_bytes");
#define VT_OP_NEED(name) need(ops.name != nullptr, #name);
    VT_OPS(VT_OP_NEED)
#undef VT_OP_NEED
    return missing;
}

void check_complete(const Ops& ops) {
    const std::string missing = missing_ops(ops);
    if (!missing.empty()) {
        raise(Fault::kBug,
              fmt::format("the backend '{}' has no implementation of: {}", ops.backend, missing));
    }
}

}  // namespace vt
