// SPDX-License-Identifier: MIT
// Inputs are small integers, exact in every type, where a sum is compared with a formula; and
// floats of mixed size where bits are compared with a plain loop in rank order.
#include "tests/comm/cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>

#include <doctest/doctest.h>

#include "core/rng.h"

namespace vt::test {

namespace {

constexpr std::array kNumbers{DType::kF64, DType::kF32, DType::kBF16, DType::kI64, DType::kI32};
// 70,001 is more than one chunk of a reduction
constexpr std::array<int64_t, 6> kSizes{0, 1, 2, 13, 1023, 70001};

struct Buffer {
    DType dtype;
    std::vector<char> bytes;
    Buffer(DType t, int64_t n) : dtype(t), bytes(static_cast<size_t>(n * size_of(t))) {}
    [[nodiscard]] int64_t numel() const { return narrow<int64_t>(bytes.size()) / size_of(dtype); }
    [[nodiscard]] Tensor tensor() { return {bytes.data(), {numel()}, dtype}; }
    [[nodiscard]] Tensor part(int64_t begin, int64_t end) { return tensor().rows(begin, end); }
    template <typename T>
    void put(int64_t i, T x) {
        std::memcpy(bytes.data() + i * size_of(dtype), &x, sizeof(T));
    }
    template <typename T>
    [[nodiscard]] T get(int64_t i) const {
        T x;
        std::memcpy(&x, bytes.data() + i * size_of(dtype), sizeof(T));
        return x;
    }
    void set(int64_t i, double x) {
        switch (dtype) {
            case DType::kF64:
                return put(i, x);
            case DType::kF32:
                return put(i, static_cast<float>(x));
            case DType::kBF16:
                return put(i, to_bf16(static_cast<float>(x)));
            case DType::kI64:
                return put(i, static_cast<int64_t>(x));
            case DType::kI32:
                return put(i, static_cast<int32_t>(x));
            case DType::kU8:
                return put(i, static_cast<uint8_t>(static_cast<int>(x)));
        }
    }
};

void expect(bool ok, const Group& g, const std::string& what) {
    if (!ok) FAIL_CHECK(fmt::format("{} rank {} of {}: {}", g.name(), g.rank(), g.size(), what));
}

// Rank r's element i. Sums over 8 ranks stay under 256: exact in bf16.
double value(int r, int64_t i) {
    return static_cast<double>((r + 1) * (i % 7 - 3));
}
double sum_of(int n, int64_t i) {
    return static_cast<double>(n * (n + 1) / 2 * (i % 7 - 3));
}
double extreme(int n, int64_t i, bool max) {
    const double first = value(0, i), last = value(n - 1, i);
    return max ? std::max(first, last) : std::min(first, last);
}

Buffer filled(DType t, int64_t n, const std::function<double(int64_t)>& f) {
    Buffer b(t, n);
    for (int64_t i = 0; i < n; ++i) b.set(i, f(i));
    return b;
}

void reductions(Group& g, DType t, int64_t n) {
    const int me = g.rank(), size = g.size();
    const std::string what = fmt::format("{} x {}", name_of(t), n);
    const auto mine = [&](int64_t i) { return value(me, i); };
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        Buffer x = filled(t, n, mine);
        g.all_reduce(x.tensor(), op, nullptr).wait();
        const Buffer want = filled(t, n, [&](int64_t i) {
            return op == ReduceOp::kSum ? sum_of(size, i) : extreme(size, i, op == ReduceOp::kMax);
        });
        expect(x.bytes == want.bytes, g, "all_reduce " + what);
    }
    Buffer in = filled(t, n * size, mine), out(t, n);
    const Buffer want = filled(t, n, [&](int64_t i) { return sum_of(size, me * n + i); });
    g.reduce_scatter(out.tensor(), in.tensor(), nullptr).wait();
    expect(out.bytes == want.bytes, g, "reduce_scatter " + what);
    const Tensor place = in.part(me * n, (me + 1) * n);
    g.reduce_scatter(place, in.tensor(), nullptr).wait();
    expect(n == 0 || std::memcmp(place.data, want.bytes.data(), want.bytes.size()) == 0, g,
           "reduce_scatter in place " + what);
}

void copies(Group& g, DType t, int64_t n) {
    const int me = g.rank(), size = g.size();
    const std::string what = fmt::format("{} x {}", name_of(t), n);
    Buffer in = filled(t, n, [&](int64_t i) { return value(me, i); });
    const Buffer all =
        filled(t, n * size, [&](int64_t i) { return value(narrow<int>(i / n), i % n); });
    Buffer out(t, n * size);
    g.all_gather(out.tensor(), in.tensor(), nullptr).wait();
    expect(out.bytes == all.bytes, g, "all_gather " + what);
    Buffer inplace(t, n * size);
    const Tensor place = inplace.part(me * n, (me + 1) * n);
    if (n > 0) std::memcpy(place.data, in.bytes.data(), in.bytes.size());
    g.all_gather(inplace.tensor(), place, nullptr).wait();
    expect(inplace.bytes == all.bytes, g, "all_gather in place " + what);

    // Part j of rank i holds (i, j): transposed by all_to_all.
    const auto pair = [&](int64_t from, int64_t to, int64_t i) {
        return static_cast<double>((from * 5 + to * 3 + i) % 100);
    };
    in = filled(t, n * size, [&](int64_t i) { return pair(me, i / n, i % n); });
    g.all_to_all(out.tensor(), in.tensor(), {}, {}, nullptr).wait();
    expect(
        out.bytes == filled(t, n * size, [&](int64_t i) { return pair(i / n, me, i % n); }).bytes,
        g, "all_to_all " + what);

    for (int root = 0; root < size; ++root) {
        Buffer x = filled(t, n, [&](int64_t i) { return value(me, i); });
        g.broadcast(x.tensor(), root, nullptr).wait();
        expect(x.bytes == filled(t, n, [&](int64_t i) { return value(root, i); }).bytes, g,
               fmt::format("broadcast from {} {}", root, what));
    }
}

// From i to j go (i + 2j) mod 4 x scale elements: some none, few equal.
void ragged(Group& g, int64_t scale) {
    const int me = g.rank(), size = g.size();
    std::vector<int64_t> give, take;
    for (int r = 0; r < size; ++r) {
        give.push_back((me + 2 * r) % 4 * scale);
        take.push_back((r + 2 * me) % 4 * scale);
    }
    const auto total = [](const std::vector<int64_t>& v) {
        int64_t n = 0;
        for (const int64_t x : v) n += x;
        return n;
    };
    Buffer in(DType::kI64, total(give)), want(DType::kI64, total(take) + 1);
    int64_t at = 0;
    for (int r = 0; r < size; ++r) {
        for (int64_t i = 0; i < give[static_cast<size_t>(r)]; ++i)
            in.put(at++, int64_t{me} * 1000 + r * 100 + i);
    }
    at = 0;
    for (int r = 0; r < size; ++r) {
        for (int64_t i = 0; i < take[static_cast<size_t>(r)]; ++i)
            want.put(at++, int64_t{r} * 1000 + me * 100 + i);
    }
    want.put(at, int64_t{-1});  // out has room left: it stays as it was
    Buffer out(DType::kI64, want.numel());
    out.put(at, int64_t{-1});
    const int64_t before = g.count().bytes;
    g.all_to_all(out.tensor(), in.tensor(), take, give, nullptr).wait();
    expect(out.bytes == want.bytes, g, fmt::format("all_to_all ragged x {}", scale));
    expect(g.count().bytes - before == total(give) * 8, g, "all_to_all bytes");
}

void letters(Group& g) {
    const int me = g.rank(), size = g.size();
    const int right = (me + 1) % size, left = (me + size - 1) % size;
    // Three of different sizes to the right; received in order, waited for backwards.
    const std::array<int64_t, 4> sizes{1, 0, 70001, 5};
    std::vector<Buffer> out, in;
    std::vector<CommHandle> sends, receives;
    for (const int64_t n : sizes) {
        out.push_back(filled(DType::kF32, n, [&](int64_t i) { return value(me, i + n); }));
        in.emplace_back(DType::kF32, n);
    }
    for (Buffer& b : out) sends.push_back(g.send(b.tensor(), right, nullptr));
    for (Buffer& b : in) receives.push_back(g.recv(b.tensor(), left, nullptr));
    for (size_t i = in.size(); i-- > 0;) receives[i].wait();
    for (CommHandle& h : sends) h.wait();
    for (size_t i = 0; i < in.size(); ++i) {
        const int64_t n = sizes.at(i);
        expect(in[i].bytes ==
                   filled(DType::kF32, n, [&](int64_t k) { return value(left, k + n); }).bytes,
               g, fmt::format("letter {}", i));
    }
}

void in_flight(Group& g) {
    const int me = g.rank(), size = g.size();
    const auto child = g.split(0, -me, "reversed");
    expect(child->rank() == size - 1 - me, g, "rank by key");
    // Twice the same buffer: the second call sums what the first left.
    Buffer twice = filled(DType::kI64, 5, [&](int64_t i) { return value(me, i); });
    std::vector<Buffer> xs;
    for (int k = 0; k < 6; ++k) {
        xs.push_back(filled(DType::kF32, 300 + k, [&](int64_t i) { return value(me, i + k); }));
    }
    std::vector<CommHandle> handles;
    handles.push_back(g.all_reduce(twice.tensor(), ReduceOp::kSum, nullptr));
    handles.push_back(g.all_reduce(twice.tensor(), ReduceOp::kSum, nullptr));
    for (size_t k = 0; k < xs.size(); ++k) {
        Group& group = k % 2 == 0 ? g : *child;
        handles.push_back(group.all_reduce(xs[k].tensor(), ReduceOp::kSum, nullptr));
    }
    // Each rank waits in another order.
    for (size_t k = 0; k < handles.size(); ++k) {
        handles[(k * 5 + static_cast<size_t>(me)) % handles.size()].wait();
    }
    expect(twice.bytes ==
               filled(DType::kI64, 5, [&](int64_t i) { return size * sum_of(size, i); }).bytes,
           g, "one buffer in two calls");
    for (int k = 0; k < 6; ++k) {
        expect(
            xs[static_cast<size_t>(k)].bytes ==
                filled(DType::kF32, 300 + k, [&](int64_t i) { return sum_of(size, i + k); }).bytes,
            g, fmt::format("in flight {}", k));
    }
    // A rank that waits for a letter lets the collectives it has called go on.
    Buffer x = filled(DType::kF32, 1000, [&](int64_t i) { return value(me, i); });
    Buffer token(DType::kI64, 1);
    CommHandle h = g.all_reduce(x.tensor(), ReduceOp::kSum, nullptr);
    if (me == 0) {
        h.wait();
        for (int r = 1; r < size; ++r) g.send(token.tensor(), r, nullptr).wait();
    } else {
        g.recv(token.tensor(), 0, nullptr).wait();
        h.wait();
    }
    expect(x.bytes == filled(DType::kF32, 1000, [&](int64_t i) { return sum_of(size, i); }).bytes,
           g, "collective behind a letter");
}

void splits(Group& g) {
    const int me = g.rank(), size = g.size();
    for (int round = 0; round < 3; ++round) {
        const auto half = g.split(me % 2 == 0 ? -5 : 7, 0, "half");
        expect(half->name() == "half" && half->rank() == me / 2 &&
                   half->size() == (size + 1 - me % 2) / 2,
               g, "split by parity");
        int64_t sum = me;
        half->all_reduce({&sum, {1}, DType::kI64}, ReduceOp::kSum, nullptr).wait();
        int64_t want = 0;
        for (int r = me % 2; r < size; r += 2) want += r;
        expect(sum == want, g, "sum over a half");
        const auto quarter = half->split(half->rank() % 2, 0, "quarter");
        std::vector<int64_t> ranks(static_cast<size_t>(quarter->size()));
        const int64_t mine = me;
        quarter
            ->all_gather({ranks.data(), {quarter->size()}, DType::kI64}, {&mine, {1}, DType::kI64},
                         nullptr)
            .wait();
        for (size_t i = 0; i < ranks.size(); ++i) {
            expect(ranks[i] == me % 4 + 4 * static_cast<int64_t>(i), g, "ranks of a quarter");
        }
        quarter->barrier();
        const auto alone = quarter->split(me, 0, "alone");
        expect(alone->size() == 1 && alone->rank() == 0, g, "alone");
        alone->all_reduce({&sum, {1}, DType::kI64}, ReduceOp::kSum, nullptr).wait();
        expect(sum == want, g, "sum alone");
    }
}

// Floats between 2^-20 and 2^20: their sum depends on the order.
template <typename T>
void rank_order(Group& g, int64_t n, const std::function<T(double)>& make) {
    using Wide = std::conditional_t<std::is_same_v<T, double>, double, float>;
    const auto element = [&](int r, int64_t i) {
        const auto w = philox::block(7, Purpose::kTest, narrow<uint64_t>(r), narrow<uint64_t>(i));
        const double unit =
            static_cast<double>(w[0]) * 0x1p-32 + static_cast<double>(w[2]) * 0x1p-64;
        return make(std::ldexp(unit - 0.5, static_cast<int>(w[1] % 40) - 20));
    };
    const auto wide = [](T x) {
        if constexpr (std::is_same_v<T, bf16>) {
            return to_float(x);
        } else {
            return x;
        }
    };
    const auto narrowed = [](Wide x) {
        if constexpr (std::is_same_v<T, bf16>) {
            return to_bf16(x);
        } else {
            return x;
        }
    };
    Buffer x(DTypeOf<T>::value, n), want(DTypeOf<T>::value, n);
    int64_t differ = 0;
    for (int64_t i = 0; i < n; ++i) {
        x.put(i, element(g.rank(), i));
        Wide up = wide(element(0, i)), down = wide(element(g.size() - 1, i));
        for (int r = 1; r < g.size(); ++r) {
            up += wide(element(r, i));
            down += wide(element(g.size() - 1 - r, i));
        }
        want.put(i, narrowed(up));
        differ += up != down ? 1 : 0;
    }
    expect(g.size() < 3 || differ > 0, g, "these sums do not depend on the order");
    Buffer whole = x, part(x.dtype, n / g.size());
    g.all_reduce(x.tensor(), ReduceOp::kSum, nullptr).wait();
    expect(x.bytes == want.bytes, g, fmt::format("rank order of {}", name_of(x.dtype)));
    const int64_t m = part.numel();
    g.reduce_scatter(part.tensor(), whole.part(0, m * g.size()), nullptr).wait();
    expect(std::memcmp(part.bytes.data(), want.part(m * g.rank(), m * g.rank() + m).data,
                       part.bytes.size()) == 0,
           g, fmt::format("rank order of {} parts", name_of(x.dtype)));
}

void odd_values(Group& g) {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
        std::array<float, 2> x{g.rank() == g.size() - 1 ? nan : 1.0F, -0.0F};
        g.all_reduce({x.data(), {2}, DType::kF32}, op, nullptr).wait();
        expect(std::isnan(x[0]), g, "a NaN is seen by all");
        expect(x[1] == 0 && std::signbit(x[1]), g, "minus zero stays");
    }
    int64_t big = std::numeric_limits<int64_t>::max() - g.rank();
    g.all_reduce({&big, {1}, DType::kI64}, ReduceOp::kMin, nullptr).wait();
    expect(big == std::numeric_limits<int64_t>::max() - (g.size() - 1), g, "large integers");
}

void counts(Group& world) {
    const auto g = world.split(0, 0, "counted");
    Buffer x(DType::kF32, 3), all(DType::kF32, int64_t{3} * g->size());
    expect(g->count().calls == 0 && g->count().bytes == 0, *g, "a new group counts from 0");
    g->all_reduce(x.tensor(), ReduceOp::kMax, nullptr).wait();
    g->all_gather(all.tensor(), x.tensor(), nullptr).wait();
    g->reduce_scatter(x.tensor(), all.tensor(), nullptr).wait();
    g->broadcast(x.tensor(), 0, nullptr).wait();
    g->barrier();
    CommHandle sent = g->send(x.tensor(), g->rank(), nullptr);
    Buffer y(DType::kF32, 3);
    g->recv(y.tensor(), g->rank(), nullptr).wait();
    sent.wait();
    expect(g->count().calls == 7, *g, "calls");
    const int64_t want = 12 + 12 + 12 * g->size() + (g->rank() == 0 ? 12 : 0) + 12;
    expect(g->count().bytes == want, *g, fmt::format("{} bytes for {}", g->count().bytes, want));
}

}  // namespace

void check_group(Group& world) {
    for (const DType t : kNumbers) {
        for (const int64_t n : kSizes) {
            if (n > 2000 && t != DType::kF32 && t != DType::kBF16) continue;
            reductions(world, t, n);
            copies(world, t, n);
        }
    }
    copies(world, DType::kU8, 13);
    ragged(world, 1);
    ragged(world, 20000);
    letters(world);
    in_flight(world);
    splits(world);
    rank_order<float>(world, 70001, [](double x) { return static_cast<float>(x); });
    rank_order<double>(world, 1003, [](double x) { return x; });
    rank_order<bf16>(world, 1003, [](double x) { return to_bf16(static_cast<float>(x)); });
    odd_values(world);
    counts(world);
}

}  // namespace vt::test
