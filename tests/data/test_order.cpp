// SPDX-License-Identifier: MIT
// The order of draws: whole epochs, exact shares, pure functions.
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/order.h"

using namespace vt;

namespace {

// Sources of given sizes and weights; shapes alternate by index where `shapes` > 1.
class Fake final : public Dataset {
  public:
    Fake(std::vector<int64_t> sizes, std::vector<double> weights, int64_t shapes = 1)
        : sizes_(std::move(sizes)), weights_(std::move(weights)), shapes_(shapes) {}
    const LatentFacts& facts() const override { return facts_; }
    int num_sources() const override { return static_cast<int>(sizes_.size()); }
    int64_t source_size(int s) const override { return sizes_[static_cast<size_t>(s)]; }
    double source_weight(int s) const override { return weights_[static_cast<size_t>(s)]; }
    Sample sample(int s, int64_t i) const override {
        return {.source = s, .file = 0, .row = i, .shape = {2, 1 + i % shapes_, 2, 2}};
    }
    std::string sample_id(int, int64_t) const override { return ""; }
    std::string caption(int, int64_t) const override { return ""; }
    std::vector<std::array<int64_t, 4>> shapes() const override { return {}; }
    uint64_t fingerprint() const override { return 0; }
    void read(int, int64_t, Tensor, Tensor) const override {}
    void read_empty_text(Tensor) const override {}

  private:
    LatentFacts facts_;
    std::vector<int64_t> sizes_;
    std::vector<double> weights_;
    int64_t shapes_;
};

struct Order {
    std::vector<int64_t> memory = std::vector<int64_t>(kBlockDraws);
    BlockOrder order;
    Order(const Dataset& d, uint64_t seed)
        : order(d, seed, {memory.data(), {int64_t{kBlockDraws}}, DType::kI64}) {}
};

}  // namespace

TEST_CASE("order: every sample once per epoch, another order each epoch and seed") {
    for (const int64_t n : {1, 2, 7, 100, 1000}) {
        const Fake data({n}, {1});
        std::set<std::vector<int64_t>> orders;
        for (uint64_t epoch = 0; epoch < 5; ++epoch) {
            std::vector<int64_t> order;
            for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
                const Draw d = draw_at(data, 3, epoch * static_cast<uint64_t>(n) + i);
                CHECK(d.ordinal == epoch * static_cast<uint64_t>(n) + i);
                order.push_back(d.index);
            }
            orders.insert(order);
            std::sort(order.begin(), order.end());
            std::vector<int64_t> all(order.size());
            std::iota(all.begin(), all.end(), 0);
            REQUIRE(order == all);
        }
        if (n >= 100) {
            CHECK(orders.size() == 5);
            std::vector<int64_t> other;
            for (uint64_t i = 0; i < static_cast<uint64_t>(n); ++i) {
                other.push_back(draw_at(data, 4, i).index);
            }
            CHECK(!orders.contains(other));
        }
    }
}

TEST_CASE("order: an epoch may cross blocks and be longer than one") {
    const Fake data({100'003}, {1});
    Order o(data, 9);
    std::vector<uint8_t> seen(100'003, 0);
    for (uint64_t i = 0; i < 100'003; ++i) {
        ++seen[static_cast<size_t>(o.order.at(100'003 + i).index)];
    }
    CHECK(std::all_of(seen.begin(), seen.end(), [](uint8_t k) { return k == 1; }));
}

TEST_CASE("order: shares of a mixture are exact, and each source keeps its epochs") {
    const Fake data({10, 1000, 37, 5}, {1, 2.5, 0.7, 0});
    const std::vector<int64_t> counts = block_counts(data);
    // 65,536 / 4.2 x weights = 15603.81, 39009.52, 10922.67, 0: remainders .81 and .67 round up
    CHECK(counts == std::vector<int64_t>{15604, 39009, 10923, 0});
    Order o(data, 11);
    std::map<int32_t, std::vector<int64_t>> drawn;
    for (uint64_t i = 0; i < 2 * kBlockDraws; ++i) {
        const Draw d = o.order.at(i);
        drawn[d.source].push_back(d.index);
        if (i + 1 == kBlockDraws) {
            for (int32_t s = 0; s < 4; ++s) {
                CHECK(static_cast<int64_t>(drawn[s].size()) == counts[static_cast<size_t>(s)]);
            }
        }
    }
    for (const auto& [source, list] : drawn) {
        if (source == 3) CHECK(list.empty());
        const auto n = static_cast<size_t>(data.source_size(source));
        bool whole = true;  // every epoch of every source, across the border of blocks too
        for (size_t e = 0; source != 3 && (e + 1) * n <= list.size(); ++e) {
            const auto at = list.begin() + static_cast<std::ptrdiff_t>(e * n);
            whole &= std::set<int64_t>(at, at + static_cast<std::ptrdiff_t>(n)).size() == n;
        }
        CHECK(whole);
    }
    // sources are mixed well inside a block: the share of the first in each 4,096 draws is within
    // 6 deviations of a draw without replacement, sqrt(4096 p (1-p)) = 27.3
    for (uint64_t w = 0; w < 16; ++w) {
        int64_t k = 0;
        for (uint64_t i = 0; i < 4096; ++i) k += o.order.at(w * 4096 + i).source == 0 ? 1 : 0;
        CHECK(std::abs(static_cast<double>(k) - 4096 * 15604.0 / 65536) < 6 * 27.3);
    }
}

TEST_CASE("order: equal remainders go to the source named first") {
    const Fake data({3, 3, 3}, {1, 1, 1});
    CHECK(block_counts(data) == std::vector<int64_t>{21846, 21845, 21845});
}

TEST_CASE("order: draw_at is BlockOrder, in any order of asking") {
    const Fake data({10, 1000}, {1, 3});
    Order forward(data, 5), jumping(data, 5);
    for (const uint64_t i : {0U, 70'000U, 5U, 65'535U, 65'536U, 3'000'000U, 5U}) {
        const Draw a = draw_at(data, 5, i), b = jumping.order.at(i);
        CHECK(a.source == b.source);
        CHECK(a.index == b.index);
        CHECK(a.index < data.source_size(a.source));
    }
    CHECK(draw_at(data, 5, uint64_t{1} << 40).index >= 0);
}

TEST_CASE("order: captions are dropped with the given probability, by ordinal alone") {
    int64_t dropped = 0;
    for (uint64_t i = 0; i < 10'000; ++i) {
        dropped += caption_dropped(1, i, 0.1) ? 1 : 0;
        CHECK(!caption_dropped(1, i, 0));
        CHECK(caption_dropped(1, i, 1));
        // whoever is dropped at 0.1 is dropped at 0.2
        if (caption_dropped(1, i, 0.1)) CHECK(caption_dropped(1, i, 0.2));
    }
    CHECK(std::abs(dropped - 1000) < 150);  // 5 deviations, sqrt(10^4 x 0.1 x 0.9) = 30
}

TEST_CASE("order: a step's plan covers its slots, in micro-batches of one shape") {
    const Fake data({50, 31}, {2, 1}, 3);
    for (const int64_t batch : {1, 2, 7, 16, 33}) {
        for (const int64_t micro : {1, 2, 4, 64}) {
            const auto plan = plan_step(data, 8, 345, batch, micro);
            std::vector<int64_t> all;
            for (size_t k = 0; k < plan.size(); ++k) {
                const MicroPlan& m = plan[k];
                CHECK(!m.slots.empty());
                CHECK(static_cast<int64_t>(m.slots.size()) <= micro);
                CHECK(std::is_sorted(m.slots.begin(), m.slots.end()));
                // only the last micro-batch of a shape may be short
                if (k + 1 < plan.size() && plan[k + 1].shape == m.shape) {
                    CHECK(static_cast<int64_t>(m.slots.size()) == micro);
                }
                if (k > 0) CHECK(plan[k - 1].shape <= m.shape);
                for (const int64_t slot : m.slots) {
                    const Draw d = draw_at(data, 8, 345 + static_cast<uint64_t>(slot));
                    CHECK(data.sample(d.source, d.index).shape == m.shape);
                    all.push_back(slot);
                }
            }
            std::sort(all.begin(), all.end());
            std::vector<int64_t> want(static_cast<size_t>(batch));
            std::iota(want.begin(), want.end(), 0);
            CHECK(all == want);
            const auto again = plan_step(data, 8, 345, batch, micro);
            REQUIRE(again.size() == plan.size());
            for (size_t k = 0; k < plan.size(); ++k) CHECK(again[k].slots == plan[k].slots);
            if (batch == 33) break;  // draw_at of a mixture is slow by design
        }
    }
}

TEST_CASE("order: substitutes have the shape, differ from the bad one, and end") {
    const Fake data({9}, {1}, 2);
    const Draw bad{.ordinal = 77, .source = 0, .index = 4};
    std::set<int64_t> met;
    uint64_t tried = 0;
    int64_t index = -1;
    while (next_substitute(data, 1, bad, {2, 1, 2, 2}, tried, index)) met.insert(index);
    CHECK(met == std::set<int64_t>{0, 2, 6, 8});
}

TEST_CASE("order: the batch ramp rises in equal steps to the whole batch") {
    const BatchRamp ramp{.start = 4, .increment = 4, .samples = 100};
    // 16 - 4 in threes of 4: a level lasts 100 / 3 samples, so 4 to draw 33, 8 to 66, 12 to 99
    int64_t last = 0;
    for (uint64_t c = 0; c < 200; ++c) {
        const int64_t want = c < 34 ? 4 : c < 67 ? 8 : c < 100 ? 12 : 16;
        CHECK(ramp.batch_at(c, 16) == want);
        CHECK(want >= last);
        last = want;
    }
    CHECK(ramp.batch_at(UINT64_MAX, 16) == 16);
    CHECK(BatchRamp{}.batch_at(0, 16) == 16);
    CHECK(BatchRamp{16, 5, 9}.batch_at(0, 16) == 16);  // starts at the whole batch
    // cursor x levels passes 64 bits
    const int64_t far = int64_t{1} << 60;
    const BatchRamp slow{.start = 1, .increment = 1, .samples = far};
    CHECK(slow.batch_at(static_cast<uint64_t>(far) - 1, 1 << 20) == (1 << 20) - 1);
    CHECK(slow.batch_at(static_cast<uint64_t>(far) / 2, (1 << 20) + 1) == 1 + (1 << 19));
    for (const BatchRamp& bad : {BatchRamp{4, 5, 10}, BatchRamp{17, 1, 10}, BatchRamp{4, 4, 0}}) {
        CHECK_THROWS_AS((void)bad.batch_at(0, 16), Error);
    }
}
