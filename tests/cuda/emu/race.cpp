// SPDX-License-Identifier: MIT
// race.cpp - finds data races between barriers, out-of-bounds shared accesses and reads of
// uninitialised shared memory.
//
// Kernel files are compiled with -fsanitize=thread, which makes g++ call __tsan_read4(address) and
// its kin at each memory access; the program is linked without that flag, and the functions are
// ours. So kernels stay free of wrappers. Two accesses of different threads conflict if one is a
// plain write (or they mix plain and atomic) and nothing orders them: a block barrier, or a
// __syncwarp of the whole warp they share. Threads of different blocks are never ordered within a
// launch.
//
// Two bytes of memory share one cell, with a mask of the bytes touched. A cell keeps the last write
// and the last read; of several concurrent readers it keeps one and how far apart they are.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <memory>
#include <unistd.h>
#include <unordered_map>

#include "tests/cuda/emu/runtime.h"

namespace vt::emu {
namespace {

enum Spread : std::uint8_t { OneThread, OneWarp, OneBlock, Blocks };

struct Stamp {
    const void* pc = nullptr;
    unsigned block = 0, epoch = 0, warp_epoch = 0;
    std::uint16_t rank = 0;
    std::uint8_t bytes = 0;  // which of the cell's two; 0 if there was no such access
    bool atomic = false;
};

struct Cell {
    Stamp write, read;
    unsigned launch = 0, block = 0;  // block counts for shared memory only
    Spread readers = OneThread;
};

constexpr std::uintptr_t kCells = 2048;  // per page of shadow
struct Page {
    Cell cell[kCells];
};

Cell& cell_of(std::uintptr_t address) {
    static std::unordered_map<std::uintptr_t, std::unique_ptr<Page>> pages;
    static std::uintptr_t last = 0;
    static Page* page = nullptr;
    const std::uintptr_t number = address / (2 * kCells);
    if (page == nullptr || number != last) {
        std::unique_ptr<Page>& p = pages[number];
        if (!p) p = std::make_unique<Page>();
        page = p.get(), last = number;
    }
    return page->cell[address / 2 % kCells];
}

std::string where(
    const void* pc) {  // "file:line", and what it was inlined into, by way of addr2line
    Dl_info info;
    char exe[4096];
    const ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    if (n <= 0 || dladdr(pc, &info) == 0) return "?";
    exe[n] = 0;
    char command[4400], line[512];
    const auto offset = static_cast<const char*>(pc) - 1 - static_cast<const char*>(info.dli_fbase);
    std::snprintf(command, sizeof command, "addr2line -i -e '%s' 0x%tx 2>/dev/null", exe, offset);
    std::string text;
    FILE* f = popen(command, "r");
    for (int frames = 0; f != nullptr && frames < 4 && std::fgets(line, sizeof line, f) != nullptr;
         ++frames) {
        line[std::strcspn(line, " \n")] = 0;  // cuts "(discriminator 3)" too
        text += (frames == 0 ? "" : " in ") + std::string(line);
    }
    if (f != nullptr) pclose(f);
    return text.empty() ? "?" : text;
}

std::string tell(const Stamp& s, const char* verb) {
    return "\n    " + std::string(s.atomic ? "atomic" : verb) + " by thread " +
           std::to_string(s.rank) + " of block " + std::to_string(s.block) + ", " + where(s.pc);
}

[[noreturn]] void race(const void* at, const Stamp& before, const char* verb_before,
                       const Stamp& now, const char* verb) {
    note_error("data race on " + describe(at) + tell(before, verb_before) + tell(now, verb));
    abandon();
}

bool same_thread(const Stamp& a, const Stamp& b) {
    return a.block == b.block && a.rank == b.rank;
}
bool same_warp(const Stamp& a, const Stamp& b) {
    return a.block == b.block && a.rank / 32 == b.rank / 32;
}

// Whether a barrier stands between a past access and this one; `spread` says whose access it was.
bool barrier_between(const Stamp& past, const Stamp& now, Spread spread) {
    if (past.block != now.block || spread == Blocks) return false;
    if (past.epoch < now.epoch) return true;
    return spread <= OneWarp && same_warp(past, now) && past.warp_epoch < now.warp_epoch;
}

void touch(const void* at, bool shared, Access kind, std::uint8_t bytes, const void* pc) {
    const Thread& t = *self;
    Cell& c = cell_of(reinterpret_cast<std::uintptr_t>(at));
    if (c.launch != t.block->launch || (shared && c.block != t.block->serial))
        c = Cell{.write = {},
                 .read = {},
                 .launch = t.block->launch,
                 .block = t.block->serial,
                 .readers = OneThread};
    const Stamp now{
        pc,    t.block->serial,       t.epoch, t.warp_epoch, static_cast<std::uint16_t>(t.rank),
        bytes, kind == Access::Atomic};
    const char* verb = kind == Access::Read ? "read" : "write";

    if ((c.write.bytes & bytes) != 0 && !(c.write.atomic && now.atomic) &&
        !same_thread(c.write, now) && !barrier_between(c.write, now, OneThread))
        race(at, c.write, "write", now, verb);

    if (kind == Access::Read) {
        if (shared && c.write.bytes == 0 && options().uninitialised_shared) {
            note_error("read of uninitialised " + describe(at) + tell(now, verb));
            abandon();
        }
        if (c.read.bytes == 0 || barrier_between(c.read, now, c.readers))
            c.readers = OneThread;
        else if (c.read.block != now.block)
            c.readers = Blocks;
        else if (!same_warp(c.read, now))
            c.readers = std::max(c.readers, OneBlock);
        else if (!same_thread(c.read, now))
            c.readers = std::max(c.readers, OneWarp);
        c.read = now;
        return;
    }
    if ((c.read.bytes & bytes) != 0 && !(c.readers == OneThread && same_thread(c.read, now)) &&
        !barrier_between(c.read, now, c.readers))
        race(at, c.read, "read", now, verb);
    c.write = now;
    c.read.bytes = 0;
}

void access(const void* at, std::size_t bytes, Access kind, const void* pc) {
    if (self == nullptr || !options().races || at == &self) return;
    const char* p = static_cast<const char*>(at);
    const Block& b = *self->block;
    if ((p >= b.runtime_lo && p < b.runtime_hi))
        return;  // a fiber's own stack, or a warp operation's payload
    const auto* t = reinterpret_cast<const char*>(self);
    if (p >= t && p < t + sizeof(Thread)) return;
    if (p >= reinterpret_cast<const char*>(&b) && p < reinterpret_cast<const char*>(&b + 1)) return;
    const bool shared = p >= b.shared_lo && p < b.shared_hi;
    if (shared && !inside_shared_variable(at, bytes)) {
        const Stamp now{
            .pc = pc, .block = b.serial, .rank = static_cast<std::uint16_t>(self->rank)};
        note_error("access outside " + describe(at) +
                   tell(now, kind == Access::Read ? "read" : "write"));
        abandon();
    }
    if (!shared) {
        for (Traffic& range : traffic()) {
            if (p < range.lo || p >= range.hi) continue;
            (kind == Access::Read ? range.read : range.written) += static_cast<std::int64_t>(bytes);
        }
        if (!options().global_races) return;
    }
    for (const char* end = p + bytes; p < end;) {
        const bool odd = (reinterpret_cast<std::uintptr_t>(p) & 1) != 0;
        const bool both = !odd && end - p > 1;
        touch(p, shared, kind, both ? 3 : odd ? 2 : 1, pc);
        p += both ? 2 : 1;
    }
}

[[maybe_unused]] const bool installed = (watch = access, true);

}  // namespace
}  // namespace vt::emu

#define VT_EMU_CALLBACK(name, bytes, kind)                                             \
    void name(const void* p) {                                                         \
        vt::emu::access(p, bytes, vt::emu::Access::kind, __builtin_return_address(0)); \
    }
#define VT_EMU_CALLBACKS(n)                              \
    VT_EMU_CALLBACK(__tsan_read##n, n, Read)             \
    VT_EMU_CALLBACK(__tsan_write##n, n, Write)           \
    VT_EMU_CALLBACK(__tsan_unaligned_read##n, n, Read)   \
    VT_EMU_CALLBACK(__tsan_unaligned_write##n, n, Write) \
    VT_EMU_CALLBACK(__tsan_volatile_read##n, n, Read)    \
    VT_EMU_CALLBACK(__tsan_volatile_write##n, n, Write)
extern "C" {
VT_EMU_CALLBACKS(1)
VT_EMU_CALLBACKS(2)
VT_EMU_CALLBACKS(4)
VT_EMU_CALLBACKS(8)
VT_EMU_CALLBACKS(16)
void __tsan_read_range(const void* p, unsigned long n) {
    vt::emu::access(p, n, vt::emu::Access::Read, __builtin_return_address(0));
}
void __tsan_write_range(const void* p, unsigned long n) {
    vt::emu::access(p, n, vt::emu::Access::Write, __builtin_return_address(0));
}
void __tsan_vptr_update(void*, void*) {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_init() {}
}
