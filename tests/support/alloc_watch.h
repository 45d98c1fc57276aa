// SPDX-License-Identifier: MIT
// Counts heap allocations of 4 KiB or more, by any thread, while a watch is on. The test program's
// malloc family and mmap are replaced by counting ones (not under sanitizers, which replace them
// themselves).
#pragma once

#include <cstddef>

namespace vt::test {

[[nodiscard]] bool can_watch_allocations();
void watch_allocations(bool on);         // on: counters to zero
[[nodiscard]] long large_allocations();  // since the watch began
[[nodiscard]] size_t largest_allocation();

}  // namespace vt::test
