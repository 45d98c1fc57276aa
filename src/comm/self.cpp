// SPDX-License-Identifier: MIT
// A world of one rank: every collective is the identity. Floor 1.
#include <cstring>
#include <deque>

#include "comm/comm.h"

namespace vt {

namespace {

class SelfGroup final : public Group {
  public:
    explicit SelfGroup(std::string name) : name_(std::move(name)) {}

    [[nodiscard]] int rank() const override { return 0; }
    [[nodiscard]] int size() const override { return 1; }
    [[nodiscard]] const std::string& name() const override { return name_; }
    [[nodiscard]] CommCount count() const override { return count_; }

    CommHandle all_reduce(Tensor x, ReduceOp, void*) override {
        add(x);
        return {};
    }
    CommHandle reduce_scatter(Tensor out, CTensor in, void*) override { return copy(out, in); }
    CommHandle all_gather(Tensor out, CTensor in, void*) override { return copy(out, in); }
    CommHandle all_to_all(Tensor out, CTensor in, const std::vector<int64_t>& out_counts,
                          const std::vector<int64_t>& in_counts, void*) override {
        VT_CHECK(out_counts.size() == in_counts.size() && in_counts.size() <= 1,
                 "{}: {} out and {} in counts for one rank", name_, out_counts.size(),
                 in_counts.size());
        if (in_counts.empty()) return copy(out, in);
        VT_CHECK(out_counts[0] == in_counts[0] && 0 <= in_counts[0] && in_counts[0] <= in.numel() &&
                     in_counts[0] <= out.numel(),
                 "{}: counts {} and {} for tensors of {} and {}", name_, out_counts[0],
                 in_counts[0], out.numel(), in.numel());
        return copy({out.data, {out_counts[0]}, out.dtype}, {in.data, {in_counts[0]}, in.dtype});
    }
    /// To itself: the message waits for the matching recv.
    CommHandle send(CTensor x, int to, void*) override {
        VT_CHECK(to == 0, "{}: send to rank {} of 1", name_, to);
        add(x);
        const char* p = static_cast<const char*>(x.data);
        mail_.emplace_back(p, p + x.bytes());
        return {};
    }
    CommHandle recv(Tensor x, int from, void*) override {
        VT_CHECK(from == 0 && !mail_.empty() && narrow<int64_t>(mail_.front().size()) == x.bytes(),
                 "{}: recv of {} bytes from rank {} with {} messages waiting", name_, x.bytes(),
                 from, mail_.size());
        if (x.bytes() > 0) std::memcpy(x.data, mail_.front().data(), mail_.front().size());
        mail_.pop_front();
        ++count_.calls;
        return {};
    }
    CommHandle broadcast(Tensor x, int root, void*) override {
        VT_CHECK(root == 0, "{}: root {} of 1", name_, root);
        add(x);
        return {};
    }
    void barrier() override { ++count_.calls; }
    std::unique_ptr<Group> split(int, int, std::string name) override {
        return std::make_unique<SelfGroup>(std::move(name));
    }

  private:
    void add(CTensor x) {
        ++count_.calls;
        count_.bytes += x.bytes();
    }
    CommHandle copy(Tensor out, CTensor in) {
        VT_CHECK(out.dtype == in.dtype && out.numel() == in.numel(), "{}: {} {} into {} {}", name_,
                 name_of(in.dtype), in.shape.str(), name_of(out.dtype), out.shape.str());
        add(in);
        if (out.data != in.data && in.bytes() > 0) {
            std::memmove(out.data, in.data, static_cast<size_t>(in.bytes()));
        }
        return {};
    }

    std::string name_;
    CommCount count_;
    std::deque<std::vector<char>> mail_;
};

}  // namespace

std::unique_ptr<Group> self_group() {
    return std::make_unique<SelfGroup>("world");
}

}  // namespace vt
