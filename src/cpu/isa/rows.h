// SPDX-License-Identifier: MIT
// The files that together fill one copy of kernel::Table.
// Floor 2.
#pragma once

#include "cpu/kernels.h"

namespace vt::VT_ISA {

void fill_norm(kernel::Table& t);
void fill_pointwise(kernel::Table& t);
void fill_objective(kernel::Table& t);
void fill_optimize(kernel::Table& t);

}  // namespace vt::VT_ISA
