// SPDX-License-Identifier: MIT
// The op case table: one row = op, shapes, dtypes, inputs, tolerance. The comparison with the
// reference, thread invariance and the bench all run the same rows.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace vt::test {

enum class Role : uint8_t {
    kIn,   // read; must not change
    kOut,  // overwritten: preset to NaN
    kAcc,  // added to or updated: preset to the fill's values
};

// How an argument's values are made (Philox, seed 1, by case and argument).
struct Fill {
    enum Kind : uint8_t { kNormal, kUniform, kIndex, kValues } kind = kNormal;
    double a = 0, b = 1;         // mean and deviation; [a, b); [0, a)
    std::vector<double> values;  // repeated to the tensor's length
};
[[nodiscard]] Fill normal(double deviation = 1, double mean = 0);
[[nodiscard]] Fill uniform(double low, double high);
[[nodiscard]] Fill index_below(int64_t n);
[[nodiscard]] Fill values(std::vector<double> v);

// What a tolerance is a multiple of.
enum class Mag : uint8_t {
    kOne,  // 1
    kRef,  // |reference element|
    kRow,  // largest |reference| of the element's last dim
    kMax,  // largest |reference| of the tensor
    kAbs,  // the element of the same op on |inputs|: sum |x||w| for a sum of x w
};
struct Term {
    double n, u;  // n u mag
    Mag mag;
    int of = -1;  // of which argument; -1: of itself
};
// |got - reference| <= sum of terms, element by element. No terms: equal values.
struct Bound {
    std::string why;
    std::vector<Term> terms;
};
inline constexpr double kU32 = 0x1p-24, kU64 = 0x1p-53, kUBF16 = 0x1p-8;
[[nodiscard]] Bound exact(std::string why);
/// The terms, and one rounding of the stored element where it is stored as bf16.
[[nodiscard]] Bound within(std::string why, DType stored, std::vector<Term> terms);

struct Arg {
    std::string name;
    Role role = Role::kIn;
    Shape shape;
    DType dtype = DType::kF32;
    Fill fill;
    Bound bound;     // of outputs
    int alias = -1;  // the same memory as this earlier argument
};

// The tensors of one run, by the index that Case::in/out/acc returned; -1 is an absent tensor.
struct Args {
    std::vector<Tensor> tensors;
    Tensor operator[](int i) const { return i < 0 ? Tensor() : tensors.at(static_cast<size_t>(i)); }
};

// Segments that own their arrays, to be captured by a case's call.
struct Seg {
    std::vector<int64_t> begin, mod_row;
    [[nodiscard]] Segments view() const {
        return {static_cast<int64_t>(mod_row.size()), begin.data(), mod_row.data()};
    }
};
/// Segments of these lengths; modulation rows in reverse order, so that none is its own number.
[[nodiscard]] Seg make_seg(const std::vector<int64_t>& lengths);

struct Case {
    std::string op, shape;      // "linear_fwd", "S5 N7 K3"
    DType dtype = DType::kF32;  // operand or storage dtype, for the printed line
    std::vector<Arg> args;
    std::function<void(const Ctx&, const Args&)> call;
    /// Makes inputs that depend on others (statistics for a backward), with the reference.
    std::function<void(const Ctx&, const Args&)> prepare;
    /// A further demand on the backend's outputs; returns what is wrong, or "".
    std::function<std::string(const Args&)> also;
    ScratchNeed need;
    bool bench = false;        // large: only the bench runs it
    bool memory_bound = true;  // which roof the bench compares with

    Case(std::string op_name, std::string shape_text, DType t)
        : op(std::move(op_name)), shape(std::move(shape_text)), dtype(t) {}
    int in(std::string name, Shape s, DType t, Fill fill = normal());
    int out(std::string name, Shape s, DType t, Bound bound);
    int acc(std::string name, Shape s, DType t, Bound bound, Fill fill = normal());
    [[nodiscard]] std::string name() const;
};

/// All rows, in the order of the families.
[[nodiscard]] const std::vector<Case>& all_cases();

void add_linear_cases(std::vector<Case>& cases);
void add_attention_cases(std::vector<Case>& cases);
void add_norm_cases(std::vector<Case>& cases);
void add_pointwise_cases(std::vector<Case>& cases);
void add_embed_cases(std::vector<Case>& cases);
void add_objective_cases(std::vector<Case>& cases);
void add_optimize_cases(std::vector<Case>& cases);

}  // namespace vt::test
