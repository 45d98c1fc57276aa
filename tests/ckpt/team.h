// SPDX-License-Identifier: MIT
// Ranks as threads, with the collectives that checkpoints use, for tests of what several ranks do
// together. Floor: tests.
#pragma once

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/comm.h"

namespace vt::test {

class Team {
  public:
    explicit Team(int size) : size_(size) {}

    /// body(group) on every rank, each in its thread; returns when all have.
    void run(const std::function<void(Group&)>& body) {
        std::vector<std::thread> threads;
        for (int r = 0; r < size_; ++r) {
            threads.emplace_back([this, r, &body] {
                Member member(*this, r);
                body(member);
            });
        }
        for (std::thread& t : threads) t.join();
    }

  private:
    using Box = std::deque<std::vector<char>>;

    class Member final : public Group {
      public:
        Member(Team& team, int rank) : team_(team), rank_(rank) {}
        [[nodiscard]] int rank() const override { return rank_; }
        [[nodiscard]] int size() const override { return team_.size_; }
        [[nodiscard]] const std::string& name() const override { return name_; }
        [[nodiscard]] CommCount count() const override { return {}; }
        CommHandle send(CTensor x, int to, void*) override {
            const std::lock_guard lock(team_.mutex_);
            const char* p = static_cast<const char*>(x.data);
            team_.boxes_[{rank_, to}].emplace_back(p, p + x.bytes());
            team_.news_.notify_all();
            return {};
        }
        CommHandle recv(Tensor x, int from, void*) override {
            std::unique_lock lock(team_.mutex_);
            Box& box = team_.boxes_[{from, rank_}];
            team_.news_.wait(lock, [&] { return !box.empty(); });
            VT_CHECK(narrow<int64_t>(box.front().size()) == x.bytes(), "{} bytes for {}",
                     box.front().size(), x.bytes());
            if (x.bytes() > 0) std::memcpy(x.data, box.front().data(), box.front().size());
            box.pop_front();
            return {};
        }
        CommHandle broadcast(Tensor x, int root, void* stream) override {
            for (int r = 0; rank_ == root && r < size(); ++r) {
                if (r != root) send(x, r, stream);
            }
            if (rank_ != root) recv(x, root, stream);
            return {};
        }
        CommHandle all_reduce(Tensor x, ReduceOp op, void* stream) override {
            int64_t* mine = x.as<int64_t>();
            std::vector<int64_t> theirs(static_cast<size_t>(x.numel()));
            const Tensor in(theirs.data(), x.shape, DType::kI64);
            if (rank_ != 0) send(x, 0, stream);
            for (int r = 1; rank_ == 0 && r < size(); ++r) {
                recv(in, r, stream);
                for (int64_t i = 0; i < x.numel(); ++i) {
                    const int64_t y = theirs[static_cast<size_t>(i)];
                    mine[i] = op == ReduceOp::kSum   ? mine[i] + y
                              : op == ReduceOp::kMax ? std::max(mine[i], y)
                                                     : std::min(mine[i], y);
                }
            }
            return broadcast(x, 0, stream);
        }
        void barrier() override {
            int64_t one = 1;
            all_reduce({&one, {1}, DType::kI64}, ReduceOp::kSum, nullptr);
        }
        CommHandle reduce_scatter(Tensor, CTensor, void*) override { return unused(); }
        CommHandle all_gather(Tensor, CTensor, void*) override { return unused(); }
        CommHandle all_to_all(Tensor, CTensor, const std::vector<int64_t>&,
                              const std::vector<int64_t>&, void*) override {
            return unused();
        }
        std::unique_ptr<Group> split(int, int, std::string) override {
            raise(Fault::kBug, "checkpoints do not split groups");
        }

      private:
        static CommHandle unused() { raise(Fault::kBug, "checkpoints do not use this"); }
        Team& team_;
        int rank_;
        std::string name_ = "world";
    };

    int size_;
    std::mutex mutex_;
    std::condition_variable news_;
    std::map<std::pair<int, int>, Box> boxes_;
};

}  // namespace vt::test
