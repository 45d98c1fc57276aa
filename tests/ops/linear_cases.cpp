// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

// Sums of n products in f32 in any order: the error of a random walk, with a factor for luck.
Term sum_of(int64_t n, int arg = -1) {
    return {4 * std::sqrt(static_cast<double>(n)), kU32, Mag::kAbs, arg};
}

std::string text(int64_t S, int64_t N, int64_t K) {
    return fmt::format("S{} N{} K{}", S, N, K);
}

void forward(std::vector<Case>& cases, int64_t S, int64_t N, int64_t K, DType t, DType ty,
             bool bias, Epilogue f, bool bench) {
    const bool gelu = f == Epilogue::kGelu;
    Case c("linear_fwd",
           text(S, N, K) + (gelu ? " gelu" : "") + (bias ? " b" : "") +
               (t != ty ? fmt::format(" y={}", name_of(ty)) : ""),
           t);
    const int x = c.in("x", {S, K}, t), w = c.in("w", {N, K}, t, normal(0.3));
    const int b = bias ? c.in("b", {N}, kF32) : -1;
    int pre = -1, y = -1;
    if (gelu) {
        pre = c.out("pre", {S, N}, t, within("f32 sum over K", t, {sum_of(K)}));
        // pre may be rounded to the other neighbour: |gelu'| <= 1.13 times one step of pre
        const double step = t == kBF16 ? kUBF16 : kU32;
        y = c.out("y", {S, N}, ty,
                  within("gelu' <= 1.13 times pre's error, tanh to 8u", ty,
                         {sum_of(K, pre), {2.3, step, Mag::kRef, pre}, {8, kU32, Mag::kRef, pre}}));
    } else {
        y = c.out("y", {S, N}, ty, within("f32 sum over K", ty, {sum_of(K)}));
    }
    c.call = [=](const Ctx& ctx, const Args& a) {
        linear_fwd(ctx, a[y], a[pre], a[x], a[w], a[b], f);
    };
    c.need = {.rows = S, .width = std::max(N, K)};
    c.bench = bench;
    c.memory_bound = false;
    cases.push_back(std::move(c));
}

void input_grad(std::vector<Case>& cases, int64_t S, int64_t N, int64_t K, DType t, DType tdx,
                Epilogue f, bool accumulate, bool bench) {
    const bool gelu = f == Epilogue::kGelu;
    Case c("linear_bwd_input",
           text(S, N, K) + (gelu ? " gelu" : "") + (accumulate ? " acc" : "") +
               (t != tdx ? fmt::format(" dx={}", name_of(tdx)) : ""),
           t);
    const int dy = c.in("dy", {S, N}, t), w = c.in("w", {N, K}, t, normal(0.3));
    const int pre = gelu ? c.in("pre", {S, K}, t) : -1;
    // on |inputs| gelu'(|pre|) is in [0.5, 1.13]: at least half the magnitude of the sum
    Term sum = sum_of(N);
    if (gelu) sum.n = 2 * sum.n + 16;
    const Bound bound = within(gelu ? "f32 sum over N, gelu' to 8u" : "f32 sum over N", tdx, {sum});
    const int dx = accumulate ? c.acc("dx", {S, K}, tdx, bound) : c.out("dx", {S, K}, tdx, bound);
    c.call = [=](const Ctx& ctx, const Args& a) {
        linear_bwd_input(ctx, a[dx], a[dy], a[w], a[pre], f, accumulate);
    };
    c.need = {.rows = S, .width = std::max(N, K)};
    c.bench = bench;
    c.memory_bound = false;
    cases.push_back(std::move(c));
}

void weight_grad(std::vector<Case>& cases, int64_t S, int64_t N, int64_t K, DType t, bool bias,
                 bool bench) {
    Case c("linear_bwd_weight", text(S, N, K) + (bias ? " db" : ""), t);
    const Bound bound = within("f32 sum over S", kF32, {sum_of(S)});
    const int dw = c.acc("dw", {N, K}, kF32, bound);
    const int db = bias ? c.acc("db", {N}, kF32, bound) : -1;
    const int dy = c.in("dy", {S, N}, t), x = c.in("x", {S, K}, t);
    c.call = [=](const Ctx& ctx, const Args& a) {
        linear_bwd_weight(ctx, a[dw], a[db], a[dy], a[x]);
    };
    c.need = {.rows = S, .width = std::max(N, K)};
    c.bench = bench;
    c.memory_bound = false;
    cases.push_back(std::move(c));
}

}  // namespace

void add_linear_cases(std::vector<Case>& cases) {
    struct Size {
        int64_t S, N, K;
    };
    const std::vector<Size> sizes = {{1, 1, 1},    {5, 7, 3},      {17, 33, 65},
                                     {64, 48, 32}, {96, 128, 160}, {1, 130, 67},
                                     {67, 1, 130}, {130, 67, 1},   {513, 96, 50}};
    for (const DType t : {kF32, kBF16}) {
        for (const auto& [S, N, K] : sizes) {
            forward(cases, S, N, K, t, t, true, Epilogue::kNone, false);
            forward(cases, S, N, K, t, t, true, Epilogue::kGelu, false);
            input_grad(cases, S, N, K, t, t, Epilogue::kNone, false, false);
            input_grad(cases, S, N, K, t, t, Epilogue::kGelu, false, false);
            weight_grad(cases, S, N, K, t, true, false);
        }
        forward(cases, 19, 34, 40, t, t, false, Epilogue::kNone, false);
        forward(cases, 19, 34, 40, t, t, false, Epilogue::kGelu, false);
        forward(cases, 19, 34, 40, t, kF32, true, Epilogue::kGelu, false);
        forward(cases, 37, 41, 100, t, kF32, true, Epilogue::kNone, false);
        input_grad(cases, 37, 41, 100, t, kF32, Epilogue::kNone, false, false);
        input_grad(cases, 37, 41, 100, t, kF32, Epilogue::kNone, true, false);
        input_grad(cases, 37, 41, 100, t, kF32, Epilogue::kGelu, true, false);
        weight_grad(cases, 300, 41, 33, t, false, false);
        weight_grad(cases, 1500, 9, 11, t, true, false);  // a long sum, cut or not

        forward(cases, 1024, 1536, 1536, t, t, true, Epilogue::kNone, true);
        forward(cases, 1024, 8960, 1536, t, t, true, Epilogue::kGelu, true);
        input_grad(cases, 1024, 1536, 1536, t, t, Epilogue::kNone, false, true);
        input_grad(cases, 1024, 1536, 8960, t, t, Epilogue::kGelu, false, true);
        weight_grad(cases, 1024, 1536, 1536, t, true, true);
    }
}

}  // namespace vt::test
