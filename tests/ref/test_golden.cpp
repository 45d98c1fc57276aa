// SPDX-License-Identifier: MIT
// The reference against PyTorch in float64 (golden.h): constants and conventions that a gradient
// check cannot see. Tolerance 64 u64 of the largest value: sums of at most 5 terms, one exp.
#include <algorithm>
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ref/golden.h"
#include "tests/ref/ref.h"

using namespace vt;

namespace {

// A tensor that owns f64 values: sin(0.7 i + k) times `by`, as make_golden.py's inputs.
struct Wave {
    std::vector<double> v;
    Shape shape;
    Wave(const Shape& s, double k, double by = 1) : v(static_cast<size_t>(s.numel())), shape(s) {
        for (size_t i = 0; i < v.size(); ++i)
            v[i] = by * std::sin(0.7 * static_cast<double>(i) + k);
    }
    operator Tensor() { return {v.data(), shape, DType::kF64}; }         // NOLINT
    operator CTensor() const { return {v.data(), shape, DType::kF64}; }  // NOLINT
};

void same(const char* name, const std::vector<double>& got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    double top = 0, worst = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        top = std::max(top, std::fabs(want[i]));
        const double error = std::fabs(got[i] - want[i]);
        worst = error <= worst ? worst : error;  // keeps NaN
    }
    CHECK_MESSAGE(worst <= 64 * 0x1p-53 * top, name, " off by ", worst);
}

// (1, heads, rows, width) with the values of a wave, as token rows (rows, heads * width).
Wave token_rows(int64_t rows, double k) {
    const Wave from({2, rows, 4}, k);
    Wave to({rows, 8}, 0);
    for (int64_t n = 0; n < 2; ++n) {
        for (int64_t s = 0; s < rows; ++s) {
            for (int64_t d = 0; d < 4; ++d) {
                to.v[static_cast<size_t>(s * 8 + n * 4 + d)] =
                    from.v[static_cast<size_t>((n * rows + s) * 4 + d)];
            }
        }
    }
    return to;
}

}  // namespace

TEST_CASE("ref: PyTorch's numbers for GELU, SiLU, norms, attention, AdamW") {
    const Ctx ctx{.ops = &test::ref_ops()};
    Wave y({3, 2}, 0), pre({3, 2}, 0);
    // 3 (x w + b): the factor is on w and b
    linear_fwd(ctx, y, pre, Wave({3, 4}, 0), Wave({2, 4}, 1, 3), Wave({2}, 2, 3), Epilogue::kGelu);
    same("gelu", y.v, test::golden::gelu);

    Wave s({3, 4}, 0), mean({3}, 0), stat({3}, 0);
    silu_fwd(ctx, s, Wave({3, 4}, 0, 5));
    same("silu", s.v, test::golden::silu);
    layernorm_fwd(ctx, s, mean, stat, Wave({3, 4}, 0), Wave({4}, 1), Wave({4}, 2), 1e-6);
    same("layernorm", s.v, test::golden::layernorm);
    row_sumsq(ctx, stat, Wave({3, 4}, 0));
    qknorm_rope_fwd(ctx, s, Wave({3, 4}, 0), stat, Wave({4}, 1), {}, 4, 4, 1e-6);
    same("rmsnorm", s.v, test::golden::rmsnorm);

    const std::vector<int64_t> qb{0, 3}, kb{0, 5};
    Wave o({3, 8}, 0), lse({3, 2}, 0);
    attention_fwd(ctx, o, lse, token_rows(3, 0), token_rows(5, 1), token_rows(5, 2),
                  {1, qb.data(), nullptr}, {1, kb.data(), nullptr}, 2, 0.5);
    same("attention", o.v, test::golden::attention);
    same("lse", lse.v, test::golden::lse);

    Wave p({5}, 0), m({5}, 0, 0), v({5}, 0, 0), scalars({kNumStepScalars}, 0, 0);
    for (int step = 1; step <= 3; ++step) {
        scalars.v = {0.1, 1, 0, 1 - std::pow(0.9, step), 1 - std::pow(0.95, step), 0, 0, 0};
        adamw(ctx, p, m, v, {}, Wave({5}, step), scalars, {.weight_decay = 0.05});
    }
    same("adamw", p.v, test::golden::adamw);
}
