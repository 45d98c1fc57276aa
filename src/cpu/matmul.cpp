// SPDX-License-Identifier: MIT
// No matrix product yet: the table's linear_* and attention_* slots stay empty, which
// check_complete names.
#include "cpu/matmul.h"

namespace vt {

void fill_matmul_slots(Ops& /*ops*/, Isa /*isa*/) {}

int64_t matmul_scratch_bytes(const ScratchNeed& /*need*/) {
    return 0;
}

}  // namespace vt
