// SPDX-License-Identifier: MIT
// Worker threads for one process. Work is cut by shape, never by thread count, so results do not
// depend on how many there are.
// Floor 0.
#pragma once

#include <cstdint>
#include <memory>
#include <type_traits>

namespace vt {

class Pool {
  public:
    /// threads >= 1 includes the caller. 0 = as many as the process may run on.
    explicit Pool(int threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    [[nodiscard]] int threads() const;

    /// Calls body(i, thread) for every i in [0, n), each once, on any thread (thread in
    /// [0, threads())), and returns when all are done. Items are handed out one by one, in order.
    /// The first exception is rethrown here after the others have finished. Allocates nothing.
    /// Not reentrant: body must not call parallel_for.
    template <typename Body>
    void parallel_for(int64_t n, const Body& body) {
        run(
            n, [](const void* b, int64_t i, int t) { (*static_cast<const Body*>(b))(i, t); },
            &body);
    }

  private:
    void run(int64_t n, void (*call)(const void*, int64_t, int), const void* body);
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace vt
