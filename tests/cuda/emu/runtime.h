// SPDX-License-Identifier: MIT
// runtime.h - what emu.cpp offers race.cpp beyond emu.h.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "tests/cuda/emu/emu.h"

namespace vt::emu {

enum class Access { Read, Write, Atomic };

// Set by race.cpp when it is linked; called for the runtime's own atomics.
extern void (*watch)(const void* at, std::size_t bytes, Access kind, const void* pc);

std::string describe(const void* at);  // "shared 'tile' + 12" or "address 0x..."
bool inside_shared_variable(const void* at, std::size_t bytes);
void note_error(
    const std::string& text);  // fail() is these two; nothing on the fiber's stack may own
[[noreturn]] void abandon();   // memory when abandon() is called, or it leaks

// Bytes of global memory that kernels read and wrote inside [lo, hi), each access counted. Ranges
// put here are counted where race.cpp is linked.
struct Traffic {
    const char *lo, *hi;
    std::int64_t read = 0, written = 0;
};
std::vector<Traffic>& traffic();

}  // namespace vt::emu
