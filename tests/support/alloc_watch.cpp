// SPDX-License-Identifier: MIT
#include "tests/support/alloc_watch.h"

#include <atomic>
#include <cstring>

namespace {

std::atomic<bool> g_on{false};
std::atomic<long> g_count{0};
std::atomic<size_t> g_largest{0};

constexpr size_t kLarge = 4096;

[[maybe_unused]] void note(size_t bytes) {
    if (!g_on.load(std::memory_order_relaxed) || bytes < kLarge) return;
    g_count.fetch_add(1, std::memory_order_relaxed);
    size_t seen = g_largest.load(std::memory_order_relaxed);
    while (bytes > seen && !g_largest.compare_exchange_weak(seen, bytes)) {}
}

}  // namespace

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define VT_WATCH 1
extern "C" {
void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t n) {
    note(n);
    return __libc_malloc(n);
}
void* calloc(size_t n, size_t size) {
    note(n * size);
    return __libc_calloc(n, size);
}
void* realloc(void* p, size_t n) {
    note(n);
    return __libc_realloc(p, n);
}
void* memalign(size_t align, size_t n) {
    note(n);
    return __libc_memalign(align, n);
}
void* aligned_alloc(size_t align, size_t n) {
    return memalign(align, n);
}
int posix_memalign(void** out, size_t align, size_t n) {
    void* p = memalign(align, n);
    if (p == nullptr) return 12;  // ENOMEM
    *out = p;
    return 0;
}
}
#endif

namespace vt::test {

bool can_watch_allocations() {
#ifdef VT_WATCH
    return true;
#else
    return false;
#endif
}

void watch_allocations(bool on) {
    if (on) {
        g_count = 0;
        g_largest = 0;
    }
    g_on = on;
}
long large_allocations() {
    return g_count;
}
size_t largest_allocation() {
    return g_largest;
}

}  // namespace vt::test
