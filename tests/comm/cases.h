// SPDX-License-Identifier: MIT
// What every group must do, whatever it is made of. Floor: tests.
#pragma once

#include "comm/comm.h"

namespace vt::test {

/// Every collective, type, size and order of waiting, against results known beforehand. Called by
/// all ranks of the group; failures are doctest's, and name the rank.
void check_group(Group& world);

}  // namespace vt::test
