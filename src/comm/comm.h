// SPDX-License-Identifier: MIT
// Groups of ranks and their collectives. Host implementations reduce in group-rank order, so that
// threads and MPI give the same bits. Each call takes a stream and returns a handle; the caller
// waits late, where it needs the result.
// Floor 1.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace vt {

enum class ReduceOp : uint8_t { kSum, kMax, kMin };

// Work in flight. wait() makes the result visible on the stream given to the call (on the host: it
// blocks). A default handle is complete.
class CommHandle {
  public:
    struct Work {
        virtual ~Work() = default;
        virtual void wait() = 0;
    };
    CommHandle() = default;
    explicit CommHandle(std::unique_ptr<Work> work) : work_(std::move(work)) {}
    void wait() {
        if (work_) work_->wait();
        work_.reset();
    }

  private:
    std::unique_ptr<Work> work_;
};

struct CommCount {
    int64_t calls = 0;
    int64_t bytes = 0;  // payload this rank handed in
};

class Group {
  public:
    virtual ~Group() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    [[nodiscard]] virtual const std::string& name() const = 0;  // "world" "dp" "tp" ...
    [[nodiscard]] virtual CommCount count() const = 0;

    /// x acc over ranks, every rank gets the result. f64 f32 bf16 (summed in f32) i64 i32.
    [[nodiscard]] virtual CommHandle all_reduce(Tensor x, ReduceOp op, void* stream) = 0;
    /// in (n * size()), out (n): rank r gets the sum of everyone's r-th part.
    [[nodiscard]] virtual CommHandle reduce_scatter(Tensor out, CTensor in, void* stream) = 0;
    /// in (n), out (n * size()), parts in rank order.
    [[nodiscard]] virtual CommHandle all_gather(Tensor out, CTensor in, void* stream) = 0;
    /// Part r of `in` goes to rank r. Counts in elements; equal parts when the counts are empty.
    [[nodiscard]] virtual CommHandle all_to_all(Tensor out, CTensor in,
                                                const std::vector<int64_t>& out_counts,
                                                const std::vector<int64_t>& in_counts,
                                                void* stream) = 0;
    [[nodiscard]] virtual CommHandle send(CTensor x, int to, void* stream) = 0;
    [[nodiscard]] virtual CommHandle recv(Tensor x, int from, void* stream) = 0;
    [[nodiscard]] virtual CommHandle broadcast(Tensor x, int root, void* stream) = 0;
    virtual void barrier() = 0;
    /// Ranks of equal colour form a group, ordered by key then rank.
    [[nodiscard]] virtual std::unique_ptr<Group> split(int color, int key, std::string name) = 0;
};

/// A world of one rank: every collective is the identity (a copy where out is not in).
[[nodiscard]] std::unique_ptr<Group> self_group();

}  // namespace vt
