// SPDX-License-Identifier: MIT
// The order of draws: whole epochs, exact shares, pure functions.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
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
    Order(const Dataset& d, uint64_t seed, uint64_t origin = 0)
        : order(d, seed, {memory.data(), {int64_t{kBlockDraws}}, DType::kI64}, origin) {}
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

TEST_CASE("order: after a change of data the order begins anew, the ordinals go on") {
    const Fake before({10, 1000}, {1, 3}), after({17, 400}, {2, 1});
    const uint64_t origin = 123'457;
    Order fresh(after, 5);
    Order moved(after, 5, origin);
    for (const uint64_t i : {0U, 1U, 400U, 65'535U, 65'536U, 200'000U}) {
        const Draw a = fresh.order.at(i), b = moved.order.at(origin + i);
        CHECK(a.source == b.source);
        CHECK(a.index == b.index);
        CHECK(b.ordinal == origin + i);
        const Draw c = draw_at(after, 5, origin + i, origin);
        CHECK(c.index == b.index);
        CHECK(c.ordinal == b.ordinal);
    }
    // an epoch of the new data begins right there
    const Fake one({50}, {1});
    std::set<int64_t> seen;
    for (uint64_t i = 0; i < 50; ++i) seen.insert(draw_at(one, 5, origin + i, origin).index);
    CHECK(seen.size() == 50);
    CHECK_THROWS_AS((void)draw_at(one, 5, origin - 1, origin), Error);
    CHECK_THROWS_AS((void)moved.order.at(origin - 1), Error);
}

TEST_CASE("order: whole epochs and exact shares over sources, sizes and seeds") {
    struct Mix {
        std::vector<int64_t> sizes;
        std::vector<double> weights;
    };
    const std::vector<Mix> mixes = {{{1, 2}, {1, 1}},
                                    {{7, 65'536, 3}, {0.3, 0.3, 0.4}},
                                    {{40'000, 13, 999, 5, 70'001}, {5, 0.01, 1, 1e-3, 2}},
                                    {{101, 103}, {1e6, 1}}};
    for (const Mix& mix : mixes) {
        const Fake data(mix.sizes, mix.weights);
        const std::vector<int64_t> counts = block_counts(data);
        double total = 0;
        for (const double w : mix.weights) total += w;
        for (size_t d = 0; d < counts.size(); ++d) {
            // the largest remainder moves a share by less than one draw
            CHECK(std::fabs(static_cast<double>(counts[d]) -
                            mix.weights[d] / total * double{kBlockDraws}) < 1);
        }
        CHECK(std::accumulate(counts.begin(), counts.end(), int64_t{0}) == int64_t{kBlockDraws});
        Order o(data, 31);
        std::vector<std::vector<int64_t>> drawn(mix.sizes.size());
        for (uint64_t i = 0; i < 3 * kBlockDraws; ++i) {
            const Draw d = o.order.at(i);
            drawn[static_cast<size_t>(d.source)].push_back(d.index);
        }
        for (size_t d = 0; d < drawn.size(); ++d) {
            CHECK(std::ssize(drawn[d]) == 3 * counts[d]);
            const auto n = static_cast<size_t>(mix.sizes[d]);
            std::vector<size_t> last(n, SIZE_MAX);  // the epoch that had this sample last
            bool once = true;
            for (size_t i = 0; i < drawn[d].size(); ++i) {
                size_t& epoch = last[static_cast<size_t>(drawn[d][i])];
                once &= epoch != i / n;
                epoch = i / n;
            }
            CHECK(once);  // no sample twice in an epoch, so each whole epoch has each once
            if (n >= 100 && drawn[d].size() >= 2 * n) {
                CHECK(!std::equal(drawn[d].begin(), drawn[d].begin() + std::ssize(last),
                                  drawn[d].begin() + std::ssize(last)));
            }
        }
    }
}

TEST_CASE("order: places of a source in a block, and of a sample in an epoch, are uniform") {
    // 64 bins of 1,024 places; 16,384 of source 1 give 256 a bin. Drawn without replacement, so the
    // statistic is at most that of 63 degrees of freedom: mean 63, deviation sqrt(126) = 11.2.
    const auto chi_square = [](const std::vector<int64_t>& bins) {
        double n = 0, sum = 0;
        for (const int64_t b : bins) n += static_cast<double>(b);
        const double each = n / static_cast<double>(bins.size());
        for (const int64_t b : bins) {
            const double off = static_cast<double>(b) - each;
            sum += off * off / each;
        }
        return sum;
    };
    const double most = 63 + 5 * 11.2;
    const Fake data({100'000, 4096}, {3, 1});
    Order o(data, 77);
    std::vector<int64_t> blocks(64, 0), epochs(64, 0);
    for (uint64_t i = 0; i < kBlockDraws; ++i) {
        if (o.order.at(i).source == 1) ++blocks[static_cast<size_t>(i / 1024)];
    }
    CHECK(chi_square(blocks) < most);
    // where 128 of 4,096 samples fall, over 64 epochs: 8,192 places in 64 bins of 128
    const Fake one({4096}, {1});
    for (uint64_t epoch = 0; epoch < 64; ++epoch) {
        for (uint64_t i = 0; i < 4096; ++i) {
            const Draw d = draw_at(one, 77, epoch * 4096 + i);
            if (d.index < 128) ++epochs[static_cast<size_t>(i / 64)];
        }
    }
    CHECK(chi_square(epochs) < most);
    // neighbours in an epoch are no neighbours in the data: of 4,095 pairs about one is
    int64_t followed = 0;
    for (uint64_t i = 1; i < 4096; ++i) {
        followed += draw_at(one, 77, i).index == draw_at(one, 77, i - 1).index + 1 ? 1 : 0;
    }
    CHECK(followed <= 8);  // Poisson of mean 1: beyond 8 once in a million
}

TEST_CASE("order: what a sample is and what is drawn for it are independent") {
    // Over 65,536 draws the product of two centred uniforms has deviation 1/12 / sqrt(65536): the
    // correlation of independent ones is below 5 / 256 with five deviations.
    const Fake data({65'536}, {1});
    const auto n = static_cast<uint64_t>(65'536);
    std::array<double, 6> sum{};
    int64_t dropped_low = 0, low = 0;
    for (uint64_t i = 0; i < n; ++i) {
        const double place = static_cast<double>(draw_at(data, 3, i).index) / 65'535 - 0.5;
        const double time = random_unit(3, Purpose::kTimestep, i, 0) - 0.5;
        const double drop = random_unit(3, Purpose::kDropCaption, i, 0) - 0.5;
        const double next = random_unit(3, Purpose::kTimestep, i + 1, 0) - 0.5;
        const double ordinal = static_cast<double>(i) / 65'535 - 0.5;
        sum[0] += place * time;
        sum[1] += place * drop;
        sum[2] += time * drop;
        sum[3] += time * next;
        sum[4] += place * ordinal;
        sum[5] += drop * ordinal;
        low += time < 0 ? 1 : 0;
        dropped_low += time < 0 && caption_dropped(3, i, 0.1) ? 1 : 0;
    }
    for (const double s : sum) CHECK(std::fabs(s * 12 / static_cast<double>(n)) < 5.0 / 256);
    // of the low timesteps a tenth is dropped, within 5 deviations of a binomial
    const double p = 0.1, m = static_cast<double>(low);
    CHECK(std::fabs(static_cast<double>(dropped_low) - m * p) < 5 * std::sqrt(m * p * (1 - p)));
}

TEST_CASE("order: images and videos share steps, whatever divides what") {
    // 5 shapes over 103 samples; batches that divide neither
    const Fake data({103}, {1}, 5);
    for (const int64_t batch : {1, 7, 16, 103, 250}) {
        std::map<int64_t, int64_t> times;
        uint64_t cursor = 0;
        for (; cursor < 1030; cursor += static_cast<uint64_t>(batch)) {
            int64_t n = 0;
            for (const MicroPlan& m : plan_step(data, 2, cursor, batch, 3)) {
                n += std::ssize(m.slots);
                for (const int64_t slot : m.slots) {
                    const uint64_t ordinal = cursor + static_cast<uint64_t>(slot);
                    if (ordinal < 1030) ++times[draw_at(data, 2, ordinal).index];
                }
            }
            CHECK(n == batch);
        }
        CHECK(times.size() == 103);
        for (const auto& [index, count] : times) CHECK(count == 10);
    }
}
