// SPDX-License-Identifier: MIT
// The front desk: wrong arguments are named, right ones are counted once and observed.
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "meta/meta.h"
#include "tests/ref/ref.h"

using namespace vt;

namespace {

// The message of the error a call throws; "" if it throws none.
template <typename Call>
std::string error_of(const Call& call) {
    try {
        call();
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kBug);
        return e.message();
    }
    return "";
}

// Declarations are enough where the front desk refuses or the backend is meta.
Tensor decl(Shape shape, DType dtype = DType::kF32) {
    return {nullptr, shape, dtype};
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

struct Meta {
    Ops ops = meta_ops(test::ref_ops());
    OpCount count;
    Ctx ctx{.ops = &ops, .count = &count};
};

}  // namespace

TEST_CASE("front desk: a wrong shape or dtype names op, argument, got and want") {
    const Meta m;
    const auto linear = [&](const Tensor& y, const Tensor& w, const Tensor& b) {
        return error_of([&] { linear_fwd(m.ctx, y, {}, decl({5, 3}), w, b, Epilogue::kNone); });
    };
    CHECK(linear(decl({5, 7}), decl({7, 3}), decl({7})).empty());
    const std::string shape = linear(decl({5, 7}), decl({7, 4}), {});
    CHECK(shape == "linear_fwd: w is (7,4) f32, want (N,K) = (7,3) f32");
    CHECK(linear(decl({5, 7}), decl({7, 3}, DType::kBF16), {}) ==
          "linear_fwd: w is (7,3) bf16, want (N,K) = (7,3) f32");
    CHECK(linear(decl({5, 7}), decl({21}), {}) == "linear_fwd: w is (21) f32, want (N,K) (rank 2)");
    CHECK(has(linear(decl({5, 8}), decl({7, 3}), {}), "linear_fwd: y is (5,8) f32, want (S,N)"));
    CHECK(has(linear(decl({5, 7}), decl({7, 3}), decl({8})), "linear_fwd: b is (8)"));
    CHECK(has(linear({}, decl({7, 3}), {}), "linear_fwd: y is absent"));
    CHECK(has(error_of([&] {
                  linear_fwd(m.ctx, decl({5, 7}), decl({5, 7}), decl({5, 3}), decl({7, 3}), {},
                             Epilogue::kNone);
              }),
              "linear_fwd: pre is (5,7) f32, want absent"));
}

TEST_CASE("front desk: segments and modulation rows") {
    const Meta m;
    const auto gate = [&](std::vector<int64_t> begin, std::vector<int64_t> rows) {
        const Segments seg{static_cast<int64_t>(rows.size()), begin.data(), rows.data()};
        return error_of([&] {
            gate_residual_fwd(m.ctx, decl({9, 4}), decl({9, 4}), decl({2, 6, 4}), 5, seg);
        });
    };
    CHECK(gate({0, 4, 4, 9}, {1, 0, 1}).empty());
    CHECK(has(gate({0, 4, 8}, {0, 1}), "seg covers 8 rows, want S = 9"));
    CHECK(has(gate({0, 5, 4, 9}, {0, 1, 1}), "begin[2] = 4 < begin[1] = 5"));
    CHECK(has(gate({1, 9}, {0}), "seg starts at row 1"));
    CHECK(has(gate({0, 9}, {2}), "seg.mod_row[0] is 2, want [0, n_mod) = [0, 2)"));
    const std::vector<int64_t> q{0, 3, 9}, k{0, 0, 5}, rows{0, 1};
    const Segments qs{2, q.data(), rows.data()}, ks{2, k.data(), rows.data()};
    CHECK(has(error_of([&] {
                  attention_fwd(m.ctx, decl({9, 4}), decl({9, 2}), decl({9, 4}), decl({5, 4}),
                                decl({5, 4}), qs, ks, 2, 1.0);
              }),
              "a segment with queries to have keys"));
}

TEST_CASE("front desk: a declaration is refused outside the meta backend; missing slots named") {
    OpCount count;
    Ctx ctx{.ops = &test::ref_ops(), .count = &count};
    CHECK(has(error_of([&] { fill(ctx, decl({4}), 0); }), "fill: y (4) f32 has no memory"));
    CHECK(count.calls == 0);
    Ops holes = test::ref_ops();
    holes.fill = nullptr;
    holes.adamw = nullptr;
    ctx.ops = &holes;
    CHECK(has(error_of([&] { fill(ctx, decl({4}), 0); }), "'ref' has no such op"));
    CHECK(error_of([&] { check_complete(holes); }) ==
          "the backend 'ref' has no implementation of: fill, adamw");
    check_complete(test::ref_ops());
    ctx.ops = nullptr;
    CHECK(has(error_of([&] { fill(ctx, decl({4}), 0); }), "'none' has no such op"));
}

TEST_CASE("meta: complete, touches nothing, counts what the docstrings say") {
    Meta m;
    check_complete(m.ops);
    CHECK((m.ops.scratch_bytes == test::ref_ops().scratch_bytes));
    const Ctx& ctx = m.ctx;
    const double S = 5, N = 7, K = 3;
    linear_fwd(ctx, decl({5, 7}, DType::kBF16), decl({5, 7}, DType::kBF16),
               decl({5, 3}, DType::kBF16), decl({7, 3}, DType::kBF16), decl({7}), Epilogue::kGelu);
    CHECK(m.count.calls == 1);
    CHECK(m.count.flop == 2 * S * N * K);
    CHECK(m.count.matmul_flop == 2 * S * N * K);
    CHECK(m.count.bytes == 2 * (S * K + N * K) + 2 * S * N + 2 * S * N + 4 * N);

    m.count = {};
    linear_bwd_weight(ctx, decl({7, 3}), decl({7}), decl({5, 7}, DType::kBF16),
                      decl({5, 3}, DType::kBF16));
    CHECK(m.count.flop == 2 * S * N * K + S * N);
    CHECK(m.count.bytes == 2 * S * N + 2 * S * K + 8 * N * K + 8 * N);

    m.count = {};
    const std::vector<int64_t> begin{0, 2, 5}, rows{0, 1};
    const Segments seg{2, begin.data(), rows.data()};
    attention_fwd(ctx, decl({5, 8}), decl({5, 2}), decl({5, 8}), decl({5, 8}), decl({5, 8}), seg,
                  seg, 2, 1.0);
    CHECK(m.count.matmul_flop == 4 * (2 * 2 + 3 * 3) * 8.0);

    m.count = {};
    adamw(ctx, decl({11}), decl({11}), decl({11}), decl({11}, DType::kBF16), decl({11}), decl({8}),
          {});
    CHECK(m.count.flop == 14 * 11);
    CHECK(m.count.bytes == 30 * 11);
}

TEST_CASE("front desk: the observer sees begin and end of each call") {
    struct Log : OpObserver {
        std::string text;
        void begin(const char* op, double flop, double bytes) override {
            text += fmt::format("[{} {} {}", op, flop, bytes);
        }
        void end(const char* op) override { text += fmt::format("{}]", op); }
    };
    Meta m;
    Log log;
    m.ctx.observer = &log;
    add(m.ctx, decl({3}), decl({3}, DType::kBF16));
    CHECK(log.text == "[add 3 30add]");
    CHECK_FALSE(error_of([&] { add(m.ctx, decl({3}), decl({4})); }).empty());
    CHECK(log.text == "[add 3 30add]");
}
