// SPDX-License-Identifier: MIT
#include "ckpt/overlap.h"

#include <algorithm>
#include <cstring>

namespace vt {

Overlap::Overlap(const Shape& global, const Rect& from, const Rect& to, int64_t flat_begin,
                 int64_t flat_end)
    : from_(from), to_(to), flat_begin_(flat_begin), flat_end_(flat_end) {
    if (from_.empty()) {  // a scalar is a row of one
        from_ = to_ = {{0, 1}};
        return;
    }
    int64_t inner = 1;
    while (from_.size() > 1) {
        const auto whole =
            std::pair<int64_t, int64_t>{0, global[static_cast<int>(from_.size()) - 1]};
        if (from_.back() != whole || to_.back() != whole) break;
        inner *= whole.second;
        from_.pop_back();
        to_.pop_back();
    }
    for (Rect* r : {&from_, &to_}) {
        r->back().first *= inner;
        r->back().second *= inner;
    }
}

int64_t Overlap::each(int64_t begin, int64_t end, const char* data, char* out,
                      int64_t width) const {
    const size_t last = from_.size() - 1;
    const int64_t row_from = from_[last].second - from_[last].first;
    const int64_t row_to = to_[last].second - to_[last].first;
    if (row_from == 0 || row_to == 0) return 0;
    int64_t total = 0;
    for (int64_t i = begin; i < end;) {
        const int64_t row = i / row_from, col = i % row_from;
        const int64_t take = std::min(row_from - col, end - i);
        // the row's place in the target
        int64_t rest = row, row_index = 0, stride = 1;
        bool inside = true;
        for (size_t d = last; d-- > 0;) {
            const int64_t extent = from_[d].second - from_[d].first;
            const int64_t at = from_[d].first + rest % extent;
            rest /= extent;
            inside = inside && to_[d].first <= at && at < to_[d].second;
            row_index += (at - to_[d].first) * stride;
            stride *= to_[d].second - to_[d].first;
        }
        if (inside) {
            const int64_t first = from_[last].first + col;
            int64_t lo = std::max(first, to_[last].first);
            int64_t hi = std::min(first + take, to_[last].second);
            // the same range as flat elements of the target, clipped to its [begin, end)
            const int64_t base = row_index * row_to - to_[last].first;
            lo = std::max(lo, flat_begin_ - base);
            hi = std::min(hi, flat_end_ - base);
            if (lo < hi) {
                total += hi - lo;
                if (out != nullptr) {
                    std::memcpy(out + (base + lo - flat_begin_) * width,
                                data + (i - begin + lo - first) * width,
                                static_cast<size_t>((hi - lo) * width));
                }
            }
        }
        i += take;
    }
    return total;
}

}  // namespace vt
