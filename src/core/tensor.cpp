// SPDX-License-Identifier: MIT
#include "core/tensor.h"

namespace vt {

Shape::Shape(std::initializer_list<int64_t> dims) {
    for (const int64_t d : dims) push(d);
}

void Shape::push(int64_t d) {
    VT_CHECK(rank < kMaxRank && d >= 0, "rank {}, dim {}", rank, d);
    dim[static_cast<size_t>(rank++)] = d;
}

int64_t Shape::numel() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) {
        VT_CHECK(!__builtin_mul_overflow(n, (*this)[i], &n), "{} overflows", str());
    }
    return n;
}

std::string Shape::str() const {
    std::string out = "(";
    for (int i = 0; i < rank; ++i) out += (i == 0 ? "" : ",") + std::to_string((*this)[i]);
    return out + ")";
}

}  // namespace vt
