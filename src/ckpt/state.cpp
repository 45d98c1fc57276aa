// SPDX-License-Identifier: MIT
#include "ckpt/state.h"

#include "ckpt/manifest.h"

namespace vt {

StateTensor resolved(StateTensor t) {
    if (t.rect.empty()) {
        for (int d = 0; d < t.global.rank; ++d) t.rect.emplace_back(0, t.global[d]);
    }
    VT_CHECK(t.rect.size() == static_cast<size_t>(t.global.rank), "'{}' {}: rect of {} dims",
             t.name, t.global.str(), t.rect.size());
    for (int d = 0; d < t.global.rank; ++d) {
        const auto& [begin, end] = t.rect[static_cast<size_t>(d)];
        VT_CHECK(0 <= begin && begin <= end && end <= t.global[d], "'{}' {}: dim {} is [{},{})",
                 t.name, t.global.str(), d, begin, end);
    }
    const int64_t n = numel(t.rect);
    if (t.flat_end < 0) t.flat_end = n;
    VT_CHECK(0 <= t.flat_begin && t.flat_begin <= t.flat_end && t.flat_end <= n,
             "'{}': flat [{},{}) of {}", t.name, t.flat_begin, t.flat_end, n);
    VT_CHECK(t.local.numel() == t.flat_end - t.flat_begin, "'{}': {} local elements for [{},{})",
             t.name, t.local.numel(), t.flat_begin, t.flat_end);
    VT_CHECK(t.local.data != nullptr || t.local.numel() == 0, "'{}' has no memory", t.name);
    return t;
}

StateTensor share_of(const StateTensor& t, int64_t index, int64_t count) {
    VT_CHECK(0 <= index && index < count, "share {} of {}", index, count);
    StateTensor out = resolved(t);
    const int64_t n = out.flat_end - out.flat_begin;
    // begin of share i is floor(n i / count), written so that n * count cannot overflow
    const auto cut = [&](int64_t i) { return n / count * i + n % count * i / count; };
    const int64_t begin = cut(index), end = cut(index + 1);
    if (out.local.data != nullptr) {
        out.local.data = static_cast<char*>(out.local.data) + begin * size_of(out.local.dtype);
    }
    out.local = {out.local.data, {end - begin}, out.local.dtype};
    out.flat_end = out.flat_begin + end;
    out.flat_begin += begin;
    return out;
}

}  // namespace vt
