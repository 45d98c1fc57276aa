// SPDX-License-Identifier: MIT
// Any cut of a tensor loads into any other cut: rectangles (tensor and expert parallel) with flat
// ranges inside them (sharded optimizers), through real files, against an element-by-element copy.
#include <algorithm>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/overlap.h"
#include "ckpt/save.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;

namespace {

class Draw {
  public:
    explicit Draw(uint64_t id) : id_(id) {}
    int64_t below(int64_t n) {
        return static_cast<int64_t>(philox::block(21, Purpose::kTest, id_, next_++)[0]) % n;
    }

  private:
    uint64_t id_, next_ = 0;
};

// The flat index of element i of a rectangle in the whole tensor, by division.
int64_t global_index(const Shape& shape, const Rect& rect, int64_t i) {
    int64_t out = 0, stride = 1;
    for (int d = shape.rank - 1; d >= 0; --d) {
        const auto& [b, e] = rect[static_cast<size_t>(d)];
        out += (b + i % (e - b)) * stride;
        i /= e - b;
        stride *= shape[d];
    }
    return out;
}

struct Part {
    Rect rect;
    int64_t begin, end;
};

// A random tiling: up to two dims cut in up to three pieces, each rectangle in up to four flats.
std::vector<Part> random_tiling(const Shape& shape, Draw& draw) {
    std::vector<Rect> rects(1);
    for (int d = 0; d < shape.rank; ++d) rects[0].emplace_back(0, shape[d]);
    for (int cut = 0; cut < 2 && shape.rank > 0; ++cut) {
        const auto d = static_cast<size_t>(draw.below(shape.rank));
        std::vector<Rect> next;
        for (const Rect& r : rects) {
            std::vector<int64_t> at{r[d].first, r[d].second};
            for (int64_t k = draw.below(3); k > 0; --k) {
                at.push_back(r[d].first + draw.below(r[d].second - r[d].first + 1));
            }
            std::sort(at.begin(), at.end());
            for (size_t i = 0; i + 1 < at.size(); ++i) {
                if (at[i] == at[i + 1]) continue;
                next.push_back(r);
                next.back()[d] = {at[i], at[i + 1]};
            }
        }
        rects = next;
    }
    std::vector<Part> parts;
    for (const Rect& r : rects) {
        std::vector<int64_t> at{0, numel(r)};
        for (int64_t k = draw.below(4); k > 0; --k) at.push_back(draw.below(numel(r) + 1));
        std::sort(at.begin(), at.end());
        // empty parts stay: a rank of a sharded optimizer may hold nothing
        for (size_t i = 0; i + 1 < at.size(); ++i) parts.push_back({r, at[i], at[i + 1]});
    }
    return parts;
}

// The parts of `whole` as states with memory of their own.
struct Cut {
    std::vector<std::vector<float>> memory;
    std::vector<StateTensor> states;
    Cut(const Shape& shape, const std::vector<Part>& parts, const std::vector<float>* whole) {
        for (const Part& p : parts) {
            std::vector<float> m(static_cast<size_t>(p.end - p.begin), -1.0F);
            for (size_t i = 0; whole != nullptr && i < m.size(); ++i) {
                m[i] = (*whole)[static_cast<size_t>(
                    global_index(shape, p.rect, p.begin + static_cast<int64_t>(i)))];
            }
            memory.push_back(std::move(m));
        }
        for (size_t k = 0; k < parts.size(); ++k) {
            const auto n = static_cast<int64_t>(memory[k].size());
            states.push_back({.name = "w",
                              .global = shape,
                              .local = {memory[k].data(), {n}, DType::kF32},
                              .rect = parts[k].rect,
                              .flat_begin = parts[k].begin,
                              .flat_end = parts[k].end});
        }
    }
};

std::vector<float> ramp(int64_t n) {
    std::vector<float> x(static_cast<size_t>(n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    return x;
}

}  // namespace

TEST_CASE("reshard: 60 random layouts to others and to one rank, through files") {
    const Shape shapes[] = {{}, {1}, {97}, {6, 10}, {1, 31}, {4, 3, 5}, {8, 4, 1, 2, 2}};
    const test::TempDir dir;
    const test::Armed quiet(test::Mischief::kNone, -1);
    const auto world = self_group();
    for (uint64_t n = 0; n < 60; ++n) {
        CAPTURE(n);
        Draw draw(n);
        const Shape shape = shapes[n % std::size(shapes)];
        const std::vector<float> whole = ramp(shape.numel());
        const Cut from(shape, random_tiling(shape, draw), &whole);
        const std::vector<Part> to_parts = random_tiling(shape, draw);
        const Cut want(shape, to_parts, &whole);
        Cut to(shape, to_parts, nullptr);
        CheckpointInfo info;
        info.step = static_cast<int64_t>(n);
        const fs::path at = save(dir.path(), info, from.states, *world);
        load(at, to.states);
        CHECK(to.memory == want.memory);
        std::vector<float> one(whole.size(), -1.0F);
        load(at, {{.name = "w", .global = shape, .local = {one.data(), shape, DType::kF32}}});
        CHECK(one == whole);
    }
}

TEST_CASE("reshard: an overlap counts what it copies and reads only what it needs") {
    const Shape shape{4, 3, 5};
    for (uint64_t n = 0; n < 300; ++n) {
        CAPTURE(n);
        Draw draw(1000 + n);
        const auto from_parts = random_tiling(shape, draw), to_parts = random_tiling(shape, draw);
        const Part& from =
            from_parts[static_cast<size_t>(draw.below(static_cast<int64_t>(from_parts.size())))];
        const Part& to =
            to_parts[static_cast<size_t>(draw.below(static_cast<int64_t>(to_parts.size())))];
        const Overlap map(shape, from.rect, to.rect, to.begin, to.end);
        int64_t want = 0;
        for (int64_t i = from.begin; i < from.end; ++i) {
            for (int64_t j = to.begin; j < to.end; ++j) {
                want +=
                    global_index(shape, from.rect, i) == global_index(shape, to.rect, j) ? 1 : 0;
            }
        }
        CHECK(map.count(from.begin, from.end) == want);
    }
    // sharded optimizer on 4 ranks: each reads its own quarter, not the file
    const test::TempDir dir;
    std::vector<float> whole = ramp(4000);
    const StateTensor all{
        .name = "w", .global = {40, 100}, .local = {whole.data(), {40, 100}, DType::kF32}};
    std::vector<StateTensor> quarters;
    for (int64_t r = 0; r < 4; ++r) quarters.push_back(share_of(all, r, 4));
    const test::Armed quiet(test::Mischief::kNone, -1);
    const fs::path at = save(dir.path(), {}, quarters, *self_group());
    for (int64_t r = 0; r < 4; ++r) CHECK(load(at, {share_of(all, r, 4)}).bytes_read == 4000);
}

TEST_CASE("reshard: shares of a replicated tensor tile it, however many") {
    std::vector<float> x = ramp(10);
    const StateTensor all{.name = "w", .global = {10}, .local = {x.data(), {10}, DType::kF32}};
    for (const int64_t count : {1, 3, 10, 16}) {
        int64_t next = 0;
        for (int64_t r = 0; r < count; ++r) {
            const StateTensor s = share_of(all, r, count);
            CHECK(s.flat_begin == next);
            if (s.local.numel() > 0) {
                CHECK(*s.local.as<float>() == static_cast<float>(s.flat_begin));
            }
            next = s.flat_end;
        }
        CHECK(next == 10);
    }
}
