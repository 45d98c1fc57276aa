// SPDX-License-Identifier: MIT
#include "core/dtype.h"

#include <array>

#include "core/check.h"

namespace vt {

namespace {
struct Row {
    DType dtype;
    int64_t size;
    const char* name;
    double roundoff;  // 0 for integers
};
constexpr std::array<Row, 6> kRows = {{{DType::kF64, 8, "f64", 0x1p-53},
                                       {DType::kF32, 4, "f32", 0x1p-24},
                                       {DType::kBF16, 2, "bf16", 0x1p-8},
                                       {DType::kI64, 8, "i64", 0},
                                       {DType::kI32, 4, "i32", 0},
                                       {DType::kU8, 1, "u8", 0}}};

const Row& row(DType dtype) {
    const auto i = static_cast<size_t>(dtype);
    VT_CHECK(i < kRows.size() && kRows.at(i).dtype == dtype, "dtype {}", i);
    return kRows.at(i);
}
}  // namespace

int64_t size_of(DType dtype) {
    return row(dtype).size;
}
const char* name_of(DType dtype) {
    return row(dtype).name;
}

std::optional<DType> dtype_named(std::string_view name) {
    for (const Row& r : kRows) {
        if (name == r.name) return r.dtype;
    }
    return std::nullopt;
}

double unit_roundoff(DType dtype) {
    const double u = row(dtype).roundoff;
    VT_CHECK(u > 0, "{} has no roundoff", name_of(dtype));
    return u;
}

}  // namespace vt
