// SPDX-License-Identifier: MIT
// Number formats: sizes, names, unit roundoff, bfloat16 rounding.
// Floor 0.
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>

namespace vt {

enum class DType : uint8_t { kF64, kF32, kBF16, kI64, kI32, kU8 };

[[nodiscard]] int64_t size_of(DType dtype);      // bytes per element
[[nodiscard]] const char* name_of(DType dtype);  // "f64" "f32" "bf16" "i64" "i32" "u8"
[[nodiscard]] std::optional<DType> dtype_named(std::string_view name);

/// Unit roundoff u: the largest relative error of rounding to nearest (2^-53, 2^-24, 2^-8).
/// Test tolerances are multiples of it. kBug for integer formats.
[[nodiscard]] double unit_roundoff(DType dtype);

// bfloat16 as its bits; arithmetic happens in float.
struct bf16 {
    uint16_t bits = 0;
};

/// Round to nearest, ties to even; NaN stays NaN (quiet).
[[nodiscard]] constexpr bf16 to_bf16(float x) {
    const uint32_t u = std::bit_cast<uint32_t>(x);
    if ((u & 0x7fffffffU) > 0x7f800000U) return {static_cast<uint16_t>((u >> 16) | 0x40U)};
    return {static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16)};
}
[[nodiscard]] constexpr float to_float(bf16 x) {
    return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16);
}

}  // namespace vt
