// SPDX-License-Identifier: MIT
// Tensor: a non-owning view of typed, contiguous, row-major memory. Arenas own, tensors look.
// Floor 0.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>

#include "core/check.h"
#include "core/dtype.h"

namespace vt {

struct Shape {
    static constexpr int kMaxRank = 6;
    std::array<int64_t, kMaxRank> dim{};  // dim[0] is the slowest; unused entries are 0
    int rank = 0;

    Shape() = default;
    Shape(std::initializer_list<int64_t> dims);  // NOLINT(google-explicit-constructor)
    void push(int64_t d);
    [[nodiscard]] int64_t operator[](int i) const { return dim[static_cast<size_t>(i)]; }
    [[nodiscard]] int64_t numel() const;    // 1 for rank 0
    [[nodiscard]] std::string str() const;  // "(2,8,64)"
    bool operator==(const Shape&) const = default;
};

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<double> {
    static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<float> {
    static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
    static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<int64_t> {
    static constexpr DType value = DType::kI64;
};
template <>
struct DTypeOf<int32_t> {
    static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
    static constexpr DType value = DType::kU8;
};

// A view with data == nullptr and numel() > 0 is a declaration: shape and dtype are known, memory
// is not there (a measuring arena, or the meta backend). Rank-0 empty views (present() false)
// stand for "argument not given".
template <typename Byte>
struct BasicTensor {
    Byte* data = nullptr;
    Shape shape;
    DType dtype = DType::kF32;
    bool given = false;

    BasicTensor() = default;
    BasicTensor(Byte* d, Shape s, DType t) : data(d), shape(s), dtype(t), given(true) {}
    // A writable view may be read.
    template <typename Other,
              typename = std::enable_if_t<std::is_const_v<Byte> && !std::is_const_v<Other>>>
    BasicTensor(const BasicTensor<Other>& o)  // NOLINT(google-explicit-constructor)
        : data(o.data), shape(o.shape), dtype(o.dtype), given(o.given) {}

    [[nodiscard]] bool present() const { return given; }
    [[nodiscard]] int64_t numel() const { return given ? shape.numel() : 0; }
    [[nodiscard]] int64_t bytes() const { return numel() * size_of(dtype); }

    /// Checked cast: dtype must match T; kBug otherwise. Null for a declaration.
    template <typename T>
    [[nodiscard]] auto* as() const {
        VT_CHECK(dtype == DTypeOf<T>::value, "tensor of {} asked as {}", name_of(dtype),
                 name_of(DTypeOf<T>::value));
        if constexpr (std::is_const_v<Byte>) {
            return static_cast<const T*>(data);
        } else {
            return static_cast<T*>(data);
        }
    }
    /// The same memory under another shape of equal numel.
    [[nodiscard]] BasicTensor view(Shape s) const {
        VT_CHECK(s.numel() == shape.numel(), "view {} as {}", shape.str(), s.str());
        return {data, s, dtype};
    }
    /// Rows [begin, end) of dim 0.
    [[nodiscard]] BasicTensor rows(int64_t begin, int64_t end) const {
        VT_CHECK(shape.rank >= 1 && 0 <= begin && begin <= end && end <= shape[0],
                 "rows [{},{}) of {}", begin, end, shape.str());
        Shape s = shape;
        const int64_t stride = shape[0] == 0 ? 0 : shape.numel() / shape[0] * size_of(dtype);
        s.dim[0] = end - begin;
        using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
        Byte* d = data == nullptr ? nullptr : static_cast<Char*>(data) + begin * stride;
        return {d, s, dtype};
    }
};
using Tensor = BasicTensor<void>;         // may be written
using CTensor = BasicTensor<const void>;  // read only

}  // namespace vt
