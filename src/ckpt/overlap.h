// SPDX-License-Identifier: MIT
// Which elements two parts of one tensor share, as contiguous runs. Floor 5.
#pragma once

#include <cstdint>

#include "ckpt/state.h"

namespace vt {

// From the elements of rectangle `from`, row-major, to the elements [flat_begin, flat_end) of
// rectangle `to` of the same tensor.
class Overlap {
  public:
    Overlap(const Shape& global, const Rect& from, const Rect& to, int64_t flat_begin,
            int64_t flat_end);

    /// How many of from's elements [begin, end) the target has.
    [[nodiscard]] int64_t count(int64_t begin, int64_t end) const {
        return each(begin, end, nullptr, nullptr, 0);
    }
    /// Copies them. `data` points at from's element `begin`, `out` at the target's element
    /// flat_begin; width in bytes. Returns how many.
    int64_t copy(const char* data, int64_t begin, int64_t end, char* out, int64_t width) const {
        return each(begin, end, data, out, width);
    }

  private:
    int64_t each(int64_t begin, int64_t end, const char* data, char* out, int64_t width) const;

    // Trailing dims that both rectangles hold whole are merged into the dim before them, so that
    // runs are as long as they can be.
    Rect from_, to_;
    int64_t flat_begin_, flat_end_;
};

}  // namespace vt
