// SPDX-License-Identifier: MIT
// Numbers of a TOML text that neither int64 nor double can hold. Floor 1.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace vt {

struct HugeNumber {
    size_t begin = 0, end = 0;  // bytes of the text
    double value = 0;           // nearest double; an infinity beyond the largest
};

/// The number that `at` lies in or just behind, if it is written as TOML writes numbers (signs,
/// underscores, 0x, 0o, 0b, fractions and exponents) and is an integer beyond int64 or a float
/// beyond double. A parser stops at such a number, with a position at one of its ends.
[[nodiscard]] std::optional<HugeNumber> huge_number_near(std::string_view text, size_t at);

}  // namespace vt
