// SPDX-License-Identifier: MIT
// The decision about a step: limits, windows, all ranks alike, and the record's text.
#include <cmath>
#include <limits>
#include <mutex>

#include <doctest/doctest.h>

#include "comm/threads.h"
#include "core/rng.h"
#include "fault/checked_ops.h"
#include "fault/health.h"

using namespace vt;

namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

HealthOptions small() {
    HealthOptions o;
    o.window = 8;
    o.min_history = 4;
    return o;
}

void feed(Health& h, int64_t from, int64_t steps) {
    for (int64_t i = from; i < from + steps; ++i) {
        const double noise = random_normal(3, Purpose::kTest, 1, static_cast<uint64_t>(i));
        h.note(i, Verdict::kGood, 1 + 0.2 * noise, 2 + 0.3 * noise);
    }
}

}  // namespace

TEST_CASE("health: what is not finite is bad without any history, also where spikes are off") {
    HealthOptions off = small();
    off.loss_z = off.grad_norm_z = 0;
    for (const double bad : {kNan, kInf, -kInf}) {
        CHECK(judge(bad, 1, Health(off).limits()) == Verdict::kNotFinite);
        CHECK(judge(1, bad, Health(small()).limits()) == Verdict::kNotFinite);
    }
    CHECK(judge(1e300, 1e300, Health(off).limits()) == Verdict::kGood);
}

TEST_CASE("health: a spike is z deviations over the window's mean, after min_history good steps") {
    Health h(small());
    feed(h, 1, 3);
    CHECK(judge(1e9, 1e9, h.limits()) == Verdict::kGood);  // nothing is known yet
    feed(h, 4, 20);
    // by hand: the last eight values
    double mean = 0, square = 0;
    for (uint64_t i = 16; i < 24; ++i) mean += 1 + 0.2 * random_normal(3, Purpose::kTest, 1, i);
    mean /= 8;
    for (uint64_t i = 16; i < 24; ++i) {
        const double d = 1 + 0.2 * random_normal(3, Purpose::kTest, 1, i) - mean;
        square += d * d;
    }
    const double limit = mean + 6 * std::sqrt(square / 8);
    CHECK(std::abs(h.limits().loss / limit - 1) < 64 * 0x1p-53);  // a dozen roundings of doubles
    CHECK(judge(limit * 1.001, 2, h.limits()) == Verdict::kSpike);
    CHECK(judge(limit * 0.999, 2, h.limits()) == Verdict::kGood);
    CHECK(judge(1, 50, h.limits()) == Verdict::kSpike);
    CHECK(judge(0, 0, h.limits()) == Verdict::kGood);  // only upwards

    // what is skipped leaves the windows alone
    const StepLimits before = h.limits();
    h.note(24, Verdict::kSpike, 1e9, 1e9);
    h.note(25, Verdict::kNotFinite, kNan, kNan);
    CHECK(h.limits().loss == before.loss);
    CHECK(h.limits().grad_norm == before.grad_norm);
    CHECK(h.in_a_row() == 2);
    CHECK(h.first_bad() == 24);
    CHECK(h.skipped() == 2);
    CHECK(!h.exhausted());
    h.note(26, Verdict::kSpike, 1e9, 1e9);
    CHECK(h.exhausted());
    h.note(27, Verdict::kGood, 1, 2);
    CHECK(h.in_a_row() == 0);
    CHECK(h.skipped() == 3);
}

TEST_CASE("health: a very even run is not stopped by a small change") {
    Health h(small());
    for (int64_t i = 1; i < 20; ++i) h.note(i, Verdict::kGood, 1, 1);
    CHECK(judge(1.5, 1, h.limits()) == Verdict::kGood);
    CHECK(judge(1.7, 1, h.limits()) == Verdict::kSpike);
}

TEST_CASE("health: a checkpoint proves good by the steps after it; rollbacks are forgotten later") {
    Health h(small());  // settle_iters 10
    feed(h, 1, 50);
    h.note(51, Verdict::kNotFinite, kNan, 1);
    CHECK(h.proved(40));
    CHECK(!h.proved(41));
    CHECK(!h.proved(50));
    h.rolled_back(53, 2);
    feed(h, 41, 22);
    CHECK(h.rollbacks() == 2);  // step 62: nine past 53
    feed(h, 63, 1);
    CHECK(h.rollbacks() == 0);
}

TEST_CASE("health: the record reads back to the bit, a damaged one is refused") {
    Health a(small());
    feed(a, 1, 13);
    a.note(14, Verdict::kSpike, 1e9, 2);
    a.rolled_back(14, 1);
    Health b(small());
    b.decode(a.encode());
    CHECK(b.encode() == a.encode());
    CHECK(b.limits().loss == a.limits().loss);
    CHECK(b.limits().grad_norm == a.limits().grad_norm);
    CHECK(b.in_a_row() == 1);
    CHECK(b.rollbacks() == 1);
    HealthOptions shorter = small();
    shorter.window = 4;
    Health c(shorter);
    c.decode(a.encode());  // the newest four
    Health d(shorter);
    feed(d, 1, 13);
    CHECK(c.limits().loss == d.limits().loss);
    const std::string text = a.encode();
    for (const std::string& bad : {std::string(), std::string("2 0 0"), text.substr(0, 20),
                                   std::string("1 0 0 0 0 0 99999999999999999999")}) {
        CAPTURE(bad);
        CHECK_THROWS_AS(b.decode(bad), Error);
    }
}

TEST_CASE("health: what one rank sees, all ranks decide alike") {
    for (const double value : {kNan, kInf, 1e9, 1.0}) {
        std::mutex mutex;
        std::vector<Verdict> said;
        run_ranks(3, [&](Group& world) {
            // rank 1 alone has the value; the others' shares are healthy
            double loss = 0.5, squares = world.rank() == 1 ? value : 1.0;
            sum_over_ranks(world, loss, squares, nullptr);
            const Verdict v = judge(loss, std::sqrt(squares), {10, 10});
            const std::lock_guard lock(mutex);
            said.push_back(v);
        });
        REQUIRE(said.size() == 3);
        const Verdict want = !std::isfinite(value) ? Verdict::kNotFinite
                             : value > 1e3         ? Verdict::kSpike
                                                   : Verdict::kGood;
        for (const Verdict v : said) CHECK(v == want);
    }
}

TEST_CASE("health: the first value that is not finite, in every float format") {
    std::vector<float> f = {1, 2, 3, 4};
    std::vector<double> d = {1, 2, 3, 4};
    std::vector<bf16> b(4);
    const Tensor tf(f.data(), {2, 2}, DType::kF32), td(d.data(), {4}, DType::kF64),
        tb(b.data(), {4}, DType::kBF16);
    for (const Tensor& t : {tf, td, tb}) CHECK(first_not_finite(t) == -1);
    f[2] = static_cast<float>(kNan);
    d[3] = -kInf;
    b[1] = to_bf16(std::numeric_limits<float>::infinity());
    CHECK(first_not_finite(tf) == 2);
    CHECK(first_not_finite(td) == 3);
    CHECK(first_not_finite(tb) == 1);
    CHECK(element_of(td, 3) == -kInf);
    CHECK(element_of(tb, 1) == kInf);
    CHECK(first_not_finite(Tensor(nullptr, {4}, DType::kF32)) == -1);  // a declaration
    CHECK(first_not_finite(Tensor()) == -1);
    const int64_t whole = 7;
    CHECK(first_not_finite(CTensor(&whole, {1}, DType::kI64)) == -1);
    d[3] = 1e308;  // finite, though not as a float
    CHECK(first_not_finite(td) == -1);
}
