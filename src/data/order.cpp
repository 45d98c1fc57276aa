// SPDX-License-Identifier: MIT
// Which sample the n-th draw is.
//
// Draws come in blocks of 65,536. In each, source d owns m_d places; a keyed permutation of the
// block says which. The j-th draw of d inside block b is number b m_d + j of all draws from d, and
// every run of source_size(d) such numbers is one epoch, in the order of its own keyed permutation.
// So each source is seen whole before any of it is seen again, and one integer is the position.
// Floor 3.
#include "data/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "core/log.h"
#include "core/rng.h"

namespace vt {

std::vector<int64_t> block_counts(const Dataset& data) {
    const auto n = static_cast<size_t>(data.num_sources());
    double total = 0;
    for (size_t d = 0; d < n; ++d) total += data.source_weight(static_cast<int>(d));
    std::vector<int64_t> counts(n);
    std::vector<double> rest(n);
    int64_t given = 0;
    for (size_t d = 0; d < n; ++d) {
        const double share = data.source_weight(static_cast<int>(d)) / total * double{kBlockDraws};
        counts[d] = static_cast<int64_t>(std::floor(share));
        rest[d] = share - std::floor(share);
        given += counts[d];
    }
    std::vector<size_t> by_rest(n);
    std::iota(by_rest.begin(), by_rest.end(), size_t{0});
    std::stable_sort(by_rest.begin(), by_rest.end(),
                     [&](size_t a, size_t b) { return rest[a] > rest[b]; });
    for (size_t k = 0; given < static_cast<int64_t>(kBlockDraws); ++k, ++given) {
        ++counts[by_rest[k % n]];
    }
    return counts;
}

void warn_unseen(const Dataset& data) {
    const std::vector<int64_t> counts = block_counts(data);
    double total = 0;
    for (int s = 0; s < data.num_sources(); ++s) total += data.source_weight(s);
    for (int s = 0; s < data.num_sources(); ++s) {
        if (counts[static_cast<size_t>(s)] > 0) continue;
        warn(
            "data source '{}' is never drawn: its weight {} is {:.2g} of {}, less than one in "
            "{} draws; give it a larger weight or leave it out",
            data.source_name(s), data.source_weight(s), data.source_weight(s) / total, total,
            kBlockDraws);
    }
}

namespace {

// The source that owns place `place` of the block's permuted line.
int32_t owner(const std::vector<int64_t>& counts, uint64_t place) {
    auto left = static_cast<int64_t>(place);
    int32_t d = 0;
    while (left >= counts[static_cast<size_t>(d)]) left -= counts[static_cast<size_t>(d++)];
    return d;
}

// The draw that is number `rank` of those its source owns in `block`.
Draw draw_of(const Dataset& data, uint64_t seed, uint64_t ordinal, uint64_t block, int32_t source,
             int64_t owned, uint64_t rank) {
    const auto size = static_cast<uint64_t>(data.source_size(source));
    const uint64_t number = block * static_cast<uint64_t>(owned) + rank;
    const uint64_t epoch = number / size;
    const uint64_t id = (static_cast<uint64_t>(source) << 40) | epoch;
    return {.ordinal = ordinal,
            .source = source,
            .index = static_cast<int64_t>(
                keyed_permutation(seed, Purpose::kOrder, id, size, number % size))};
}

}  // namespace

int32_t source_of(const std::vector<int64_t>& counts, uint64_t seed, uint64_t ordinal) {
    return owner(counts, keyed_permutation(seed, Purpose::kMixture, ordinal / kBlockDraws,
                                           kBlockDraws, ordinal % kBlockDraws));
}

BlockOrder::BlockOrder(const Dataset& data, uint64_t seed, Tensor table, uint64_t origin)
    : data_(data), seed_(seed), origin_(origin), table_(table), counts_(block_counts(data)) {
    VT_CHECK(!needs_table(data) || (table.data != nullptr && table.numel() == int64_t{kBlockDraws}),
             "a mixture needs a table of {} entries", kBlockDraws);
}

Draw BlockOrder::at(uint64_t ordinal) {
    VT_CHECK(ordinal >= origin_, "draw {} of an order from {} on", ordinal, origin_);
    const uint64_t offset = (ordinal - origin_) % kBlockDraws;
    const uint64_t block = (ordinal - origin_) / kBlockDraws;
    if (!needs_table(data_)) return draw_of(data_, seed_, ordinal, block, 0, counts_[0], offset);
    int64_t* table = table_.as<int64_t>();  // source << 32 | rank
    if (block != block_) {
        std::vector<int64_t> seen(counts_.size(), 0);
        for (uint64_t i = 0; i < kBlockDraws; ++i) {
            const int32_t d =
                owner(counts_, keyed_permutation(seed_, Purpose::kMixture, block, kBlockDraws, i));
            table[i] = (int64_t{d} << 32) | seen[static_cast<size_t>(d)]++;
        }
        block_ = block;
    }
    const auto source = static_cast<int32_t>(table[offset] >> 32);
    return draw_of(data_, seed_, ordinal, block, source, counts_[static_cast<size_t>(source)],
                   static_cast<uint64_t>(table[offset]) & 0xffffffffU);
}

Draw draw_at(const Dataset& data, uint64_t seed, uint64_t ordinal, uint64_t origin) {
    VT_CHECK(ordinal >= origin, "draw {} of an order from {} on", ordinal, origin);
    const std::vector<int64_t> counts = block_counts(data);
    const uint64_t offset = (ordinal - origin) % kBlockDraws;
    const uint64_t block = (ordinal - origin) / kBlockDraws;
    if (!BlockOrder::needs_table(data)) {
        return draw_of(data, seed, ordinal, block, 0, counts[0], offset);
    }
    const auto source_at = [&](uint64_t i) {
        return owner(counts, keyed_permutation(seed, Purpose::kMixture, block, kBlockDraws, i));
    };
    const int32_t source = source_at(offset);
    uint64_t rank = 0;
    for (uint64_t i = 0; i < offset; ++i) rank += source_at(i) == source ? 1 : 0;
    return draw_of(data, seed, ordinal, block, source, counts[static_cast<size_t>(source)], rank);
}

bool caption_dropped(uint64_t seed, uint64_t ordinal, double probability) {
    return random_unit(seed, Purpose::kDropCaption, ordinal, 0) < probability;
}

int64_t BatchRamp::batch_at(uint64_t cursor, int64_t whole) const {
    if (start == 0 || start == whole) return whole;
    VT_CHECK(1 <= start && start < whole && increment >= 1 && (whole - start) % increment == 0 &&
                 samples >= 1,
             "ramp {}, {}, {} to {}", start, increment, samples, whole);
    if (cursor >= static_cast<uint64_t>(samples)) return whole;
    // floor(cursor / (samples / levels)) in whole numbers; the product may pass 64 bits
    __extension__ using Wide = unsigned __int128;
    const auto levels = static_cast<uint64_t>((whole - start) / increment);
    const auto risen = static_cast<int64_t>(Wide{cursor} * levels / static_cast<uint64_t>(samples));
    return start + risen * increment;
}

void StepPlan::make(const Dataset& data, BlockOrder& order, uint64_t first, int64_t global_batch,
                    int64_t micro_batch) {
    VT_CHECK(global_batch >= 1 && micro_batch >= 1, "batch {} in micro-batches of {}", global_batch,
             micro_batch);
    const auto n = static_cast<size_t>(global_batch);
    draws.resize(n);
    shapes.resize(n);
    slots.resize(n);
    ends.clear();
    for (size_t i = 0; i < n; ++i) {
        draws[i] = order.at(first + i);
        shapes[i] = data.sample(draws[i].source, draws[i].index).shape;
        slots[i] = static_cast<int64_t>(i);
    }
    const auto shape_of = [&](int64_t slot) -> const auto& {
        return shapes[static_cast<size_t>(slot)];
    };
    std::sort(slots.begin(), slots.end(), [&](int64_t a, int64_t b) {
        return shape_of(a) != shape_of(b) ? shape_of(a) < shape_of(b) : a < b;
    });
    int64_t in_this = 0;
    for (size_t i = 0; i < n; ++i) {
        ++in_this;
        const bool last = i + 1 == n || shape_of(slots[i + 1]) != shape_of(slots[i]);
        if (last || in_this == micro_batch) {
            ends.push_back(static_cast<int64_t>(i) + 1);
            in_this = 0;
        }
    }
}

std::vector<MicroPlan> plan_step(const Dataset& data, uint64_t seed, uint64_t first,
                                 int64_t global_batch, int64_t micro_batch) {
    std::vector<int64_t> memory(BlockOrder::needs_table(data) ? kBlockDraws : 0);
    BlockOrder order(data, seed,
                     {memory.data(), {static_cast<int64_t>(memory.size())}, DType::kI64});
    StepPlan plan;
    plan.make(data, order, first, global_batch, micro_batch);
    std::vector<MicroPlan> out;
    int64_t begin = 0;
    for (const int64_t end : plan.ends) {
        const auto at = plan.slots.begin();
        out.push_back({.shape = plan.shapes[static_cast<size_t>(at[begin])],
                       .slots = {at + begin, at + end}});
        begin = end;
    }
    return out;
}

bool next_substitute(const Dataset& data, uint64_t seed, const Draw& bad,
                     const std::array<int64_t, 4>& shape, uint64_t& tried, int64_t& index) {
    const auto size = static_cast<uint64_t>(data.source_size(bad.source));
    while (tried < size) {
        index = static_cast<int64_t>(
            keyed_permutation(seed, Purpose::kReplace, bad.ordinal, size, tried++));
        if (index != bad.index && data.sample(bad.source, index).shape == shape) return true;
    }
    return false;
}

}  // namespace vt
