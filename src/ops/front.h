// SPDX-License-Identifier: MIT
// The front desk's tools: checks of one op call that name op, argument, got and want, and the
// counted, observed jump through the table. Private to ops/front_*.cpp.
// Floor 1.
#pragma once

#include <cstdint>

#include "ops/cost.h"
#include "ops/ctx.h"
#include "ops/ops.h"

namespace vt::front {

// A set of dtypes, one bit each.
using DTypes = uint32_t;
[[nodiscard]] constexpr DTypes only(DType t) {
    return 1U << static_cast<uint32_t>(t);
}
inline constexpr DTypes kF32OrF64 = only(DType::kF32) | only(DType::kF64);
inline constexpr DTypes kAnyFloat = kF32OrF64 | only(DType::kBF16);

/// What "f32" means next to a tensor of this dtype: f64 beside f64 (tests), f32 otherwise.
[[nodiscard]] constexpr DType wide(DType t) {
    return t == DType::kF64 ? DType::kF64 : DType::kF32;
}
/// What "operand or residual dtype" may be there: f64 beside f64, else f32 or bf16.
[[nodiscard]] constexpr DTypes floats(DType w) {
    return w == DType::kF64 ? only(DType::kF64) : only(DType::kF32) | only(DType::kBF16);
}
[[nodiscard]] inline double size(const CTensor& t) {
    return static_cast<double>(size_of(t.dtype));
}
[[nodiscard]] inline double bytes(const CTensor& t) {
    return static_cast<double>(t.bytes());
}
[[nodiscard]] inline double count(const CTensor& t) {
    return static_cast<double>(t.numel());
}

// The checks of one call. Every failure is kBug: "<op>: <argument> is <got>, want <want>".
class Desk {
  public:
    /// The backend must have the op's slot; `missing` is slot == nullptr.
    Desk(const Ctx& ctx, const char* op, bool missing);

    /// Present, and of this rank; `letters` as the docstring writes the shape, "(S,K)".
    void rank(const char* arg, const CTensor& t, const char* letters, int rank) const;
    /// Present, of this shape and one of these dtypes, and (outside the meta backend) in memory.
    void tensor(const char* arg, const CTensor& t, const char* letters, const Shape& want,
                DTypes dtypes) const;
    /// The same, or absent.
    void optional(const char* arg, const CTensor& t, const char* letters, const Shape& want,
                  DTypes dtypes) const;
    void absent(const char* arg, const CTensor& t, const char* why) const;
    /// Ascending from 0 and covering exactly `rows` rows.
    void segments(const char* arg, const Segments& seg, const char* letter, int64_t rows) const;
    /// Every segment has a modulation row, and the tensor has it.
    void mod_rows(const Segments& seg, int64_t n_mod) const;
    void rule(bool holds, const char* rule, int64_t got, int64_t other) const;

  private:
    [[noreturn]] void wrong(const char* arg, const CTensor& t, const char* letters,
                            const Shape& want, DTypes dtypes) const;
    const char* op_;
    bool declarations_;  // the meta backend: tensors need no memory
};

// Counts a call and tells the observer of its begin and, also when the slot throws, its end.
class Counted {
  public:
    Counted(const Ctx& ctx, const char* op, const Cost& cost);
    ~Counted();
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;

  private:
    OpObserver* observer_;
    const char* op_;
};

}  // namespace vt::front
