// SPDX-License-Identifier: MIT
// UniPC of order 2 on a given schedule of flow sigmas.
// Floor 5.
#pragma once

#include <memory>

#include "sample/solver.h"

namespace vt {

[[nodiscard]] std::unique_ptr<Solver> make_unipc(UniPcSchedule schedule);

}  // namespace vt
