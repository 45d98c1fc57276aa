// SPDX-License-Identifier: MIT
#include "core/pool.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <sched.h>
#include <thread>
#include <utility>
#include <vector>

#include "core/check.h"

namespace vt {

namespace {

// One turn of a loop that waits for another core.
void breathe() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Turns before a thread goes to sleep: some 20 us, about what sleeping and waking costs. A step is
// hundreds of short jobs, one soon after the other.
constexpr int kTurns = 400;

}  // namespace

// Items are claimed one by one through `ticket`; who calls waits for the items that were claimed,
// not for the workers: one that the system has not woken yet is not missed.
struct Pool::Impl {
    std::vector<std::thread> workers;
    int turns = 0;  // before sleeping; none where the threads outnumber the cores
    // Number of the job in the high half, the next item in the low one. A claim is a successful
    // exchange, which fails if the job has changed meanwhile; a job cannot change between a claim
    // and the count in `done`, so what a claimer reads below is of its own job.
    std::atomic<uint64_t> ticket{0};
    std::atomic<int64_t> n{0}, done{0};
    std::atomic<void (*)(const void*, int64_t, int)> call{nullptr};
    std::atomic<const void*> body{nullptr};
    std::atomic<uint32_t> jobs{0};  // what sleeping workers wait for: changes with every job
    std::atomic<bool> stop{false}, running{false};
    std::mutex mutex;
    std::exception_ptr error;  // guarded by mutex

    void drain(int thread) {
        for (;;) {
            uint64_t t = ticket.load(std::memory_order_acquire);
            const auto i = static_cast<int64_t>(t & UINT32_MAX);
            const int64_t items = n.load(std::memory_order_acquire);
            if (i >= items) return;
            if (!ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel)) continue;
            try {
                call.load(std::memory_order_relaxed)(body.load(std::memory_order_relaxed), i,
                                                     thread);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!error) error = std::current_exception();
            }
            if (done.fetch_add(1, std::memory_order_acq_rel) + 1 == items) done.notify_one();
        }
    }
    void loop(int thread) {
        uint32_t seen = 0;
        for (;;) {
            for (int k = 0; k < turns && jobs.load(std::memory_order_acquire) == seen; ++k) {
                breathe();
            }
            jobs.wait(seen, std::memory_order_acquire);
            seen = jobs.load(std::memory_order_acquire);
            if (stop.load(std::memory_order_acquire)) return;
            drain(thread);
        }
    }
    void wake() {
        jobs.fetch_add(1, std::memory_order_release);
        jobs.notify_all();
    }
};

Pool::Pool(int threads) : impl_(std::make_unique<Impl>()) {
    if (threads == 0) {
        cpu_set_t set;
        threads = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    VT_CHECK(threads >= 1 && threads <= 4096, "{} threads", threads);
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    impl_->turns = threads <= cores ? kTurns : 0;
    for (int t = 1; t < threads; ++t) impl_->workers.emplace_back([this, t] { impl_->loop(t); });
}

Pool::~Pool() {
    impl_->stop = true;
    impl_->wake();
    for (std::thread& w : impl_->workers) w.join();
}

int Pool::threads() const {
    return static_cast<int>(impl_->workers.size()) + 1;
}

void Pool::run(int64_t n, void (*call)(const void*, int64_t, int), const void* body) {
    if (n <= 0) return;
    Impl& p = *impl_;
    if (n == 1 || p.workers.empty()) {
        for (int64_t i = 0; i < n; ++i) call(body, i, 0);
        return;
    }
    VT_CHECK(n < UINT32_MAX, "parallel_for over {} items", n);
    VT_CHECK(!p.running.exchange(true), "parallel_for inside parallel_for");
    p.error = nullptr;
    // Closed while the job is written: a worker that has read the old ticket may see the new n, and
    // must then find that its exchange fails.
    const uint64_t job = (p.ticket.load(std::memory_order_relaxed) >> 32) + 1;
    p.ticket.store(job << 32 | UINT32_MAX, std::memory_order_relaxed);
    p.n.store(n, std::memory_order_release);
    p.call.store(call, std::memory_order_relaxed);
    p.body.store(body, std::memory_order_relaxed);
    p.done.store(0, std::memory_order_relaxed);
    p.ticket.store(job << 32, std::memory_order_release);
    p.wake();
    p.drain(0);
    for (int k = 0; k < p.turns && p.done.load(std::memory_order_acquire) < n; ++k) breathe();
    for (;;) {
        const int64_t so_far = p.done.load(std::memory_order_acquire);
        if (so_far == n) break;
        p.done.wait(so_far, std::memory_order_acquire);
    }
    std::exception_ptr error;
    {
        const std::lock_guard lock(p.mutex);
        error = std::exchange(p.error, nullptr);
    }
    p.running = false;
    if (error) std::rethrow_exception(error);
}

}  // namespace vt
