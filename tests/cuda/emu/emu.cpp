// SPDX-License-Identifier: MIT
// What emu.h declares, on top of the scheduler in runner.h.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>

#include "tests/cuda/emu/runner.h"

namespace vt::emu {

constinit thread_local Thread* self = nullptr;
void (*watch)(const void*, std::size_t, Access, const void*) = nullptr;
void (*launching)(const char*, double, void*) = nullptr;

std::vector<Traffic>& traffic() {
    static std::vector<Traffic> ranges;
    return ranges;
}

// ------------------------------------------------------------------------------------------------

Options& options() {
    static Options o = [] {
        Options from_environment;
        if (const char* s = std::getenv("VTRAIN_EMU_SEED"))
            from_environment.seed = std::strtoull(s, nullptr, 0);
        if (const char* s = std::getenv("VTRAIN_EMU_WORKERS"))
            from_environment.workers = std::atoi(s);
        return from_environment;
    }();
    return o;
}

void run(dim3 grid, dim3 block, std::size_t dynamic_shared, void (*body)(void*), void* arg) {
    if (self != nullptr) throw Error("emu: a kernel launched a kernel");
    const auto bad = [](const char* what, dim3 d) {
        throw Error(format("emu: bad launch: %s (%u,%u,%u)", what, d.x, d.y, d.z));
    };
    const std::uint64_t threads = std::uint64_t{block.x} * block.y * block.z;
    if (threads == 0 || threads > kMaxThreads || block.z > 64) bad("block", block);
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7FFFFFFF || grid.y > 65535 ||
        grid.z > 65535)
        bad("grid", grid);
    if (dynamic_shared > kMaxShared)
        throw Error(format("emu: bad launch: %zu bytes of shared memory", dynamic_shared));

    static std::mutex one_launch;
    static unsigned launches = 0;
    static std::vector<std::unique_ptr<Runner>> runners;
    const std::lock_guard lock(one_launch);
    ++launches;

    const std::size_t blocks = std::size_t{grid.x} * grid.y * grid.z;
    std::vector<unsigned> order(blocks);
    std::iota(order.begin(), order.end(), 0u);
    if (Rng rng{mix(options().seed + launches)}; options().seed != 0)
        for (std::size_t i = blocks; i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);

    const bool watched = watch != nullptr && options().races;
    const std::size_t workers =
        watched ? 1
                : std::clamp<std::size_t>(static_cast<std::size_t>(options().workers), 1, blocks);
    while (runners.size() < workers) runners.push_back(std::make_unique<Runner>());

    std::atomic<std::size_t> taken = 0;
    std::vector<std::exception_ptr> errors(workers);
    const auto work = [&](std::size_t w) {
        try {
            for (std::size_t i; (i = taken++) < blocks;) {
                Block b;
                b.serial = order[i];
                b.idx = {b.serial % grid.x, b.serial / grid.x % grid.y,
                         b.serial / (grid.x * grid.y)};
                b.dim = block, b.grid = grid, b.launch = launches;
                runners[w]->run_block(b, dynamic_shared, body, arg);
            }
        } catch (...) {
            errors[w] = std::current_exception();
            taken = blocks;
        }
    };
    std::vector<std::thread> others;
    for (std::size_t w = 1; w < workers; ++w) others.emplace_back(work, w);
    work(0);
    for (std::thread& t : others) t.join();
    for (const std::exception_ptr& e : errors)
        if (e) std::rethrow_exception(e);
}

int block_barrier(const char* op, int predicate, Site site) {
    return runner->barrier(op, predicate, site);
}

void warp_op(const char* op, unsigned mask, void* payload, Resolve resolve, Site site,
             bool same_site) {
    runner->warp_op(op, mask, payload, resolve, site, same_site);
}

unsigned living_lanes() {
    return runner->living();
}
void yield() {
    runner->yield();
}

void note_error(const std::string& text) {
    runner->note_error(text);
}

void abandon() {
    runner->abandon();
    std::abort();  // not reached
}

void fail(Site site, const char* f, ...) {
    va_list args;
    va_start(args, f);
    note_error(vformat(f, args) + format(", %s:%u", site.file_name(), site.line()));
    va_end(args);
    abandon();
}

void* shared_variable(const void* key, const char* name, std::size_t bytes, std::size_t align) {
    return runner->variable(key, name, bytes, align);
}

void* dynamic_shared() {
    for (const Variable& v : runner->variables())
        if (v.key == nullptr) return v.data;
    fail(Site::current(), "dynamic shared memory used, but the launch gave none");
}

bool inside_shared_variable(const void* at, std::size_t bytes) {
    const char* p = static_cast<const char*>(at);
    for (const Variable& v : runner->variables())
        if (p >= v.data && p + bytes <= v.data + v.bytes) return true;
    return false;
}

std::string describe(const void* at) {
    const char* p = static_cast<const char*>(at);
    if (p < self->block->shared_lo || p >= self->block->shared_hi) return format("address %p", at);
    const Variable* nearest = nullptr;
    for (const Variable& v : runner->variables())
        if (nearest == nullptr || std::abs(p - v.data) < std::abs(p - nearest->data)) nearest = &v;
    if (nearest == nullptr) return "shared memory";
    return format("shared '%s' (%zu bytes) at byte %td", nearest->name, nearest->bytes,
                  p - nearest->data);
}

void atomic_load(const void* from, void* to, std::size_t bytes) {
    switch (bytes) {
        case 2:
            *static_cast<std::uint16_t*>(to) =
                __atomic_load_n(static_cast<const std::uint16_t*>(from), __ATOMIC_RELAXED);
            return;
        case 4:
            *static_cast<std::uint32_t*>(to) =
                __atomic_load_n(static_cast<const std::uint32_t*>(from), __ATOMIC_RELAXED);
            return;
        case 8:
            *static_cast<std::uint64_t*>(to) =
                __atomic_load_n(static_cast<const std::uint64_t*>(from), __ATOMIC_RELAXED);
            return;
    }
    fail(Site::current(), "no atomics of %zu bytes", bytes);
}

bool atomic_swap_if(void* at, void* expected, const void* desired, std::size_t bytes) {
    if (watch != nullptr) watch(at, bytes, Access::Atomic, __builtin_return_address(0));
    const auto swap = [&]<class U>(U) {
        return __atomic_compare_exchange_n(static_cast<U*>(at), static_cast<U*>(expected),
                                           *static_cast<const U*>(desired), false, __ATOMIC_RELAXED,
                                           __ATOMIC_RELAXED);
    };
    if (bytes == 2) return swap(std::uint16_t{});
    if (bytes == 4) return swap(std::uint32_t{});
    return swap(std::uint64_t{});
}

}  // namespace vt::emu
