// SPDX-License-Identifier: MIT
#include "model/params.h"

#include <algorithm>

#include "core/hash.h"
#include "core/rng.h"

namespace vt {

int64_t find_row(const ParamTable& table, const std::string& name) {
    const auto it = std::find_if(table.begin(), table.end(),
                                 [&](const ParamRow& row) { return row.name == name; });
    VT_CHECK(it != table.end(), "no parameter named '{}' among {}", name, table.size());
    return it - table.begin();
}

int64_t count_elements(const ParamTable& table) {
    int64_t n = 0;
    for (const ParamRow& row : table) n += row.shape.numel();
    return n;
}

namespace {

// Values are made in float32 and stored in out's dtype, so that a float64 model starts from the
// same numbers.
template <typename T>
void init_slice(const ParamRow& row, uint64_t seed, int64_t begin, int64_t end, T* out) {
    if (row.init == Init::kZeros || row.init == Init::kOnes) {
        std::fill(out, out + (end - begin), static_cast<T>(row.init == Init::kOnes ? 1 : 0));
        return;
    }
    const uint64_t id = xxh3(row.name);
    int64_t i = begin;
    while (i < end) {
        const auto index = static_cast<uint64_t>(i / 4);
        std::array<float, 4> value{};
        if (row.init == Init::kNormal) {
            value = random_normal4(seed, Purpose::kInit, id, index);
            for (float& v : value) v = static_cast<float>(double(v) * row.init_scale);
        } else {
            const philox::Block bits = philox::block(seed, Purpose::kInit, id, index);
            // the middle of each of 2^32 equal steps of (-1, 1): symmetric, exact in float64
            for (size_t k = 0; k < 4; ++k) {
                value.at(k) = static_cast<float>((double(bits.at(k)) * 0x1p-31 + 0x1p-32 - 1.0) *
                                                 row.init_scale);
            }
        }
        const int64_t stop = std::min(end, (i / 4 + 1) * 4);
        for (; i < stop; ++i) out[i - begin] = static_cast<T>(value.at(static_cast<size_t>(i % 4)));
    }
}

}  // namespace

void init_param_slice(const ParamRow& row, uint64_t seed, int64_t begin, int64_t end, Tensor out) {
    VT_CHECK(0 <= begin && begin <= end && end <= row.shape.numel() && out.numel() == end - begin,
             "{}: elements [{},{}) of {} into {}", row.name, begin, end, row.shape.str(),
             out.shape.str());
    if (begin == end) return;
    if (out.dtype == DType::kF64) {
        init_slice(row, seed, begin, end, out.as<double>());
    } else {
        init_slice(row, seed, begin, end, out.as<float>());
    }
}

void init_param(const ParamRow& row, uint64_t seed, Tensor out) {
    VT_CHECK(out.shape == row.shape, "{}: {} into {}", row.name, row.shape.str(), out.shape.str());
    init_param_slice(row, seed, 0, row.shape.numel(), out);
}

}  // namespace vt
