// SPDX-License-Identifier: MIT
// What groups on host memory share: the contracts of each call, its counts, the sum in group-rank
// order. An implementation says how a checked call is carried out.
// Floor 1.
#pragma once

#include <span>

#include "comm/comm.h"

namespace vt {

enum class CommOp : int32_t {
    kAllReduce,
    kReduceScatter,
    kAllGather,
    kAllToAll,
    kBroadcast,
    kBarrier,
    kSplit
};

// What all ranks of a group must say alike in one collective.
struct Call {
    CommOp op = CommOp::kBarrier;
    DType dtype = DType::kU8;
    ReduceOp reduce = ReduceOp::kSum;
    int32_t root = 0;
    int64_t numel = 0;  // all_reduce, broadcast: of x; reduce_scatter: of out; all_gather: of in
    bool operator==(const Call&) const = default;
};

/// "all_reduce(sum, f32, 12 elements)"
[[nodiscard]] std::string str(const Call& call);
/// The message of kBug where two ranks disagree.
[[nodiscard]] std::string mismatch(const std::string& group, int rank_a, const Call& a, int rank_b,
                                   const Call& b);

// One rank's share of a collective: shapes checked.
struct Job {
    Call call;
    Tensor out;
    CTensor in;                      // all_reduce, broadcast: the same memory as out
    std::vector<int64_t> out_parts;  // all_to_all: offsets in elements, size() + 1
    std::vector<int64_t> in_parts;
    int64_t color = 0;
    int64_t key = 0;
};

class HostGroup : public Group {
  public:
    HostGroup(std::string name, int rank, int size)
        : name_(std::move(name)), rank_(rank), size_(size) {}

    [[nodiscard]] int rank() const final { return rank_; }
    [[nodiscard]] int size() const final { return size_; }
    [[nodiscard]] const std::string& name() const final { return name_; }
    [[nodiscard]] CommCount count() const final { return count_; }

    CommHandle all_reduce(Tensor x, ReduceOp op, void* stream) final;
    CommHandle reduce_scatter(Tensor out, CTensor in, void* stream) final;
    CommHandle all_gather(Tensor out, CTensor in, void* stream) final;
    CommHandle all_to_all(Tensor out, CTensor in, const std::vector<int64_t>& out_counts,
                          const std::vector<int64_t>& in_counts, void* stream) final;
    CommHandle send(CTensor x, int to, void* stream) final;
    CommHandle recv(Tensor x, int from, void* stream) final;
    CommHandle broadcast(Tensor x, int root, void* stream) final;
    void barrier() final;
    std::unique_ptr<Group> split(int color, int key, std::string name) final;

  protected:
    [[nodiscard]] virtual CommHandle start(Job job) = 0;
    [[nodiscard]] virtual CommHandle start_send(CTensor x, int to) = 0;
    [[nodiscard]] virtual CommHandle start_recv(Tensor x, int from) = 0;
    [[nodiscard]] virtual std::unique_ptr<Group> start_split(Job job, std::string name) = 0;
    /// Every rank's next call, and every wait in progress, raises this.
    virtual void abort(Fault fault, const std::string& why) = 0;

  private:
    void need(bool ok, const std::string& what);
    void add(int64_t bytes) {
        ++count_.calls;
        count_.bytes += bytes;
    }

    std::string name_;
    int rank_;
    int size_;
    CommCount count_;
};

/// outs[k][i] = inputs[0][i] + inputs[1][i] + ... in this order (or max, min; a NaN wins both), i
/// in [0, n). bf16 is summed in f32 and rounded once; integers wrap. Every input is read before
/// any output is written, so that an output may be one of the inputs. kBug for u8.
void reduce_in_order(std::span<void* const> outs, std::span<const void* const> inputs, int64_t n,
                     DType dtype, ReduceOp op);

/// Members of the new group of rank `me`: old ranks of its colour, by key, then rank.
[[nodiscard]] std::vector<int> members_of_split(const std::vector<int64_t>& colors,
                                                const std::vector<int64_t>& keys, int me);

}  // namespace vt
