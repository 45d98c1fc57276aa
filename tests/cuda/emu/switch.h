// SPDX-License-Identifier: MIT
// Switching between stacks on x86-64, in a dozen instructions and without system calls.
#pragma once

#include <cstddef>
#include <cstdint>

namespace vt::emu {

extern "C" {
/// Saves the caller's registers on its stack and the stack pointer in *from, continues at `to`.
/// Returns when somebody continues at what was saved.
void vt_emu_switch(void** from, void* to);
}

/// What vt_emu_switch needs to begin `entry` on the stack that ends at `high`. entry never returns.
inline void* new_context(char* high, void (*entry)()) {
    // from the top: a return address that ends a walk of the stack, entry, six registers
    auto* top = reinterpret_cast<std::uint64_t*>(reinterpret_cast<std::uintptr_t>(high) & ~15ULL);
    *--top = 0;  // entry begins as after a call, 8 bytes off 16-byte alignment
    *--top = reinterpret_cast<std::uint64_t>(entry);
    for (int i = 0; i < 6; ++i) *--top = 0;
    return top;
}

}  // namespace vt::emu
