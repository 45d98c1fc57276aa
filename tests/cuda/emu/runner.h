// SPDX-License-Identifier: MIT
// The scheduler of one OS thread: runs the threads of a block as fibers, one block at a time.
#pragma once

#include <cstdarg>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <vector>

#include "tests/cuda/emu/runtime.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace vt::emu {

// Without ASan these do nothing and guard bands are compared instead.
#ifdef __SANITIZE_ADDRESS__
inline constexpr bool kAsan = true;
inline void poison(const void* p, std::size_t n) {
    __asan_poison_memory_region(p, n);
}
inline void unpoison(const void* p, std::size_t n) {
    __asan_unpoison_memory_region(p, n);
}
#else
inline constexpr bool kAsan = false;
inline void poison(const void*, std::size_t) {}
inline void unpoison(const void*, std::size_t) {}
#endif

inline constexpr unsigned kMaxThreads = 1024;
inline constexpr std::size_t kMaxShared = 227 << 10;  // per block on sm_90
inline constexpr std::size_t kArena = 320 << 10;      // the above with guard bands
inline constexpr std::size_t kGuard = 128;
inline constexpr int kGuardByte = 0xA5,
                     kPoisonByte = 0xFF;  // 0xFF.. is a NaN in float, bf16 and half
inline constexpr unsigned kMaxYields = 1 << 20;
inline constexpr std::size_t kPage = 4096;
// stacks start at different places in a page, or they share cache sets
inline constexpr std::size_t kStackShift = 320;

inline std::uint64_t mix(std::uint64_t x) {  // a bijection that scatters its argument
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

struct Rng {
    std::uint64_t state = 0;
    unsigned below(std::size_t n) { return static_cast<unsigned>((mix(state++) >> 32) * n >> 32); }
};

std::string format(const char* f, ...) __attribute__((format(printf, 1, 2)));
std::string vformat(const char* f, va_list args);

enum class State : std::uint8_t { Ready, AtBarrier, InWarpOp, Exited };

struct Fiber : Thread {
    void* context = nullptr;      // its stack pointer while it does not run
    const void* stack = nullptr;  // lowest address and size, for ASan
    std::size_t stack_bytes = 0;
    void* fake_stack = nullptr;
    State state = State::Ready;
    const char* op = nullptr;  // where it waits, and for what
    Site site;
    int predicate = 0, result = 0;
    unsigned mask = 0;
    bool same_site = false;
    void* payload = nullptr;
    Resolve resolve = nullptr;
};

struct Warp {
    unsigned living = 0, arrived = 0;
};

struct Variable {
    const void* key;
    const char* name;
    char* data;
    std::size_t bytes;
};

class Runner;
extern constinit thread_local Runner* runner;  // the one whose fibers run on this OS thread

// Runs blocks, one at a time, on the OS thread that calls it.
class Runner {
  public:
    Runner() : arena_(static_cast<char*>(std::aligned_alloc(kPage, kArena))) {
        poison(arena_, kArena);
    }
    ~Runner() {
        unpoison(arena_, kArena);
        std::free(arena_);
        if (stacks_ != nullptr) ::munmap(stacks_, stacks_bytes_);
    }
    Runner(const Runner&) = delete;
    Runner& operator=(const Runner&) = delete;

    void run_block(const Block& block, std::size_t dynamic, void (*body)(void*), void* arg);

    Fiber& me() { return static_cast<Fiber&>(*self); }
    int barrier(const char* op, int predicate, Site site);
    void warp_op(const char* op, unsigned mask, void* payload, Resolve resolve, Site site,
                 bool same_site);
    unsigned living() { return warps_[self->rank / 32].living; }
    void yield();
    void note_error(const std::string& text);
    // the fiber is never resumed, so its frames must own nothing
    void abandon() { jump(me(), main_, false); }
    void* variable(const void* key, const char* name, std::size_t bytes, std::size_t align);
    const std::vector<Variable>& variables() const { return variables_; }

  private:
    static void enter();
    void need_stacks(unsigned threads);
    void jump(Fiber& from, Fiber& to, bool leaving);
    void switch_from(Fiber& from, bool leaving = false) { jump(from, next(), leaving); }
    Fiber& next();
    void release(Fiber& f) { f.state = State::Ready, ready_.push_back(&f); }
    void try_barrier();
    bool try_warp(Fiber& waiting);
    void leave();
    void check_guards(const char* when);
    std::string stuck() const;

    char* arena_;
    char* top_ = nullptr;  // end of the used part of the arena
    std::vector<Variable> variables_;
    std::size_t shared_bytes_ = 0;

    char* stacks_ = nullptr;
    std::size_t stacks_bytes_ = 0, stack_stride_ = 0;
    unsigned stack_count_ = 0;

    Block block_;
    Fiber main_;
    Fiber* came_from_ = nullptr;  // who jumped last
    std::vector<Fiber> fibers_;
    std::vector<Warp> warps_;
    std::vector<Fiber*> ready_;
    Rng rng_;
    bool shuffled_ = false;
    unsigned yields_ = 0;  // since the last thing that was not a yield
    unsigned at_barrier_ = 0, exited_ = 0;
    std::string error_;
    void (*body_)(void*) = nullptr;
    void* arg_ = nullptr;
};

}  // namespace vt::emu
