// SPDX-License-Identifier: MIT
// Weights and inputs that need not be stored, made by the same rule here and in
// scripts/make_golden.py. Equality tests use these, never the initialisation, whose zero output
// layer and unit norms would hide mistakes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "model/params.h"

namespace vt::test {

/// Element j of stream k, in [0, 1): splitmix64's finalizer of k 2^32 + j + its increment.
[[nodiscard]] inline double fill_unit(uint64_t k, uint64_t j) {
    uint64_t z = (k << 32) + j + 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    z ^= z >> 31;
    return static_cast<double>(z >> 11) * 0x1p-53;
}

/// Input number i: uniform in [-1, 1).
[[nodiscard]] inline std::vector<double> fill_input(uint64_t i, int64_t n) {
    std::vector<double> out(static_cast<size_t>(n));
    for (size_t j = 0; j < out.size(); ++j) out[j] = 2 * (fill_unit(1000 + i, j) - 0.5);
    return out;
}

/// Values of every parameter, in table order. The stream of a parameter is its rank in the
/// byte-sorted list of names: 0.6 (u - 0.5), or 1 + 0.2 (u - 0.5) for one-dimensional weights.
[[nodiscard]] inline std::vector<std::vector<double>> fill_weights(const ParamTable& table) {
    std::vector<size_t> order(table.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(),
              [&](size_t a, size_t b) { return table[a].name < table[b].name; });
    std::vector<std::vector<double>> out(table.size());
    for (size_t k = 0; k < order.size(); ++k) {
        const ParamRow& row = table[order[k]];
        const bool norm = row.shape.rank == 1 && row.name.ends_with("weight");
        std::vector<double>& v = out[order[k]];
        v.resize(static_cast<size_t>(row.shape.numel()));
        for (size_t j = 0; j < v.size(); ++j) {
            const double u = fill_unit(k, j) - 0.5;
            v[j] = norm ? 1 + 0.2 * u : 0.6 * u;
        }
    }
    return out;
}

}  // namespace vt::test
