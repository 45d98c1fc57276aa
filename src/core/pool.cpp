// SPDX-License-Identifier: MIT
#include "core/pool.h"

#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <sched.h>
#include <thread>
#include <vector>

#include "core/check.h"

namespace vt {

struct Pool::Impl {
    std::vector<std::thread> workers;
    std::mutex mutex;
    std::condition_variable wake, idle;
    uint64_t generation = 0;  // guarded by mutex; a new value is a new job
    int busy = 0;             // guarded by mutex
    bool stop = false;        // guarded by mutex
    // The job. Written under mutex before generation changes, read after seeing it.
    int64_t n = 0;
    void (*call)(const void*, int64_t, int) = nullptr;
    const void* body = nullptr;
    std::atomic<int64_t> next{0};
    std::exception_ptr error;  // guarded by mutex

    void drain(int thread) {
        for (;;) {
            const int64_t i = next.fetch_add(1, std::memory_order_relaxed);
            if (i >= n) return;
            try {
                call(body, i, thread);
            } catch (...) {
                const std::lock_guard lock(mutex);
                if (!error) error = std::current_exception();
            }
        }
    }
    void loop(int thread) {
        uint64_t seen = 0;
        std::unique_lock lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return stop || generation != seen; });
            if (stop) return;
            seen = generation;
            lock.unlock();
            drain(thread);
            lock.lock();
            if (--busy == 0) idle.notify_one();
        }
    }
};

Pool::Pool(int threads) : impl_(std::make_unique<Impl>()) {
    if (threads == 0) {
        cpu_set_t set;
        threads = ::sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    }
    VT_CHECK(threads >= 1 && threads <= 4096, "{} threads", threads);
    for (int t = 1; t < threads; ++t) impl_->workers.emplace_back([this, t] { impl_->loop(t); });
}

Pool::~Pool() {
    {
        const std::lock_guard lock(impl_->mutex);
        impl_->stop = true;
    }
    impl_->wake.notify_all();
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
    {
        const std::lock_guard lock(p.mutex);
        VT_CHECK(p.busy == 0, "parallel_for inside parallel_for");
        p.n = n;
        p.call = call;
        p.body = body;
        p.next.store(0, std::memory_order_relaxed);
        p.error = nullptr;
        p.busy = static_cast<int>(p.workers.size());
        ++p.generation;
    }
    p.wake.notify_all();
    p.drain(0);
    std::unique_lock lock(p.mutex);
    p.idle.wait(lock, [&] { return p.busy == 0; });
    if (p.error) std::rethrow_exception(p.error);
}

}  // namespace vt
