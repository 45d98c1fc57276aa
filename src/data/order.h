// SPDX-License-Identifier: MIT
// The order of draws, without and with memory between calls. All of it is a pure function of the
// data set, the seed and the ordinal.
// Floor 3.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "core/tensor.h"
#include "data/loader.h"

namespace vt {

inline constexpr uint64_t kBlockDraws = 65536;

// draw_at for a run of ordinals: the order of the current block is kept in `table`, (65,536) i64,
// and made anew when the ordinal enters another block (some milliseconds each 65,536 draws). A data
// set of one source needs no table.
class BlockOrder {
  public:
    BlockOrder(const Dataset& data, uint64_t seed, Tensor table, uint64_t origin = 0);
    [[nodiscard]] static bool needs_table(const Dataset& data) { return data.num_sources() > 1; }
    [[nodiscard]] Draw at(uint64_t ordinal);  // not before the origin

  private:
    const Dataset& data_;
    uint64_t seed_, origin_;
    Tensor table_;
    std::vector<int64_t> counts_;  // m_d of each source
    uint64_t block_ = UINT64_MAX;
};

/// How many of each block of 65,536 draws every source owns: its share by weight, rounded by the
/// largest remainder; ties go to the source named first.
[[nodiscard]] std::vector<int64_t> block_counts(const Dataset& data);

/// Whose draw `ordinal` (counted from the order's origin) is; `counts` as block_counts() says.
/// O(1), pure.
[[nodiscard]] int32_t source_of(const std::vector<int64_t>& counts, uint64_t seed,
                                uint64_t ordinal);
/// Warns of each source that is never drawn, since its share of a block is under half a draw.
void warn_unseen(const Dataset& data);

// One step's plan in memory that is used again. Slots are grouped by shape (ascending), in each
// group by slot, and cut into pieces of at most micro_batch.
struct StepPlan {
    std::vector<Draw> draws;                     // (N), by slot
    std::vector<std::array<int64_t, 4>> shapes;  // (N), by slot
    std::vector<int64_t> slots;                  // (N), in the order of the micro-batches
    std::vector<int64_t> ends;                   // one past the last of each, into slots
    void make(const Dataset& data, BlockOrder& order, uint64_t first, int64_t global_batch,
              int64_t micro_batch);
};

/// The next candidate to stand in for a bad sample of draw `bad`: of the same source and shape, in
/// an order keyed by the ordinal. `tried` starts at 0 and moves on; false when none is left.
[[nodiscard]] bool next_substitute(const Dataset& data, uint64_t seed, const Draw& bad,
                                   const std::array<int64_t, 4>& shape, uint64_t& tried,
                                   int64_t& index);

}  // namespace vt
