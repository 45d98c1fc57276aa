// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr double kLr = 1e-2;

// lr, clip, skip, 1 - 0.9^3, 1 - 0.95^3
Fill scalars(bool skip) {
    return values({kLr, 0.7, skip ? 1.0 : 0.0, 0.271, 0.142625, 0, 0, 0});
}

void adam(std::vector<Case>& cases, int64_t n, bool low, bool skip, bool bench) {
    Case c("adamw", fmt::format("n{}{}{}", n, low ? " low" : "", skip ? " skip" : ""), kF32);
    const auto bound = [&](const char* why, std::vector<Term> terms) {
        return skip ? exact("a skipped step changes nothing") : within(why, kF32, std::move(terms));
    };
    // the step is lr times m / sqrt(v), at most some 10 with these inputs
    const int p = c.acc("p", {n}, kF32,
                        bound("decay, then a step of lr 10 to 16u",
                              {{2, kU32, Mag::kRef}, {160 * kLr, kU32, Mag::kOne}}));
    const int m =
        c.acc("m", {n}, kF32, bound("two products, one sum", {{4, kU32, Mag::kAbs}}), normal(0.1));
    const int v = c.acc("v", {n}, kF32, bound("two products, one sum", {{6, kU32, Mag::kRef}}),
                        uniform(0.01, 0.1));
    const int l = low ? c.acc("low", {n}, kBF16,
                              skip ? exact("a skipped step changes nothing")
                                   : within("p's neighbour in bf16", kBF16, {}))
                      : -1;
    const int g = c.in("g", {n}, kF32), s = c.in("scalars", {kNumStepScalars}, kF32, scalars(skip));
    c.call = [=](const Ctx& ctx, const Args& a) {
        adamw(ctx, a[p], a[m], a[v], a[l], a[g], a[s],
              {.beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.05, .lr_scale = 0.5});
    };
    if (low && !skip) {
        c.also = [=](const Args& a) -> std::string {
            for (int64_t i = 0; i < n; ++i) {
                if (a[l].as<bf16>()[i].bits != to_bf16(a[p].as<float>()[i]).bits) {
                    return fmt::format("low[{}] is not p rounded to bf16", i);
                }
            }
            return "";
        };
    }
    c.bench = bench;
    cases.push_back(std::move(c));
}

}  // namespace

void add_optimize_cases(std::vector<Case>& cases) {
    for (const bool low : {true, false}) {
        for (const int64_t n : {1, 37, 1030}) adam(cases, n, low, false, false);
        adam(cases, 37, low, true, false);
        adam(cases, 16 << 20, low, false, true);
    }
    for (const int64_t n : {1, 37, 70001, 16 << 20}) {
        Case c("sumsq", fmt::format("n{}", n), kF32);
        const int sum = c.acc("sum", {1}, DType::kF64,
                              within("f64 sum in any order", DType::kF64,
                                     {{8 + std::sqrt(static_cast<double>(n)), kU64, Mag::kRef}}),
                              uniform(1, 2));
        const int x = c.in("x", {n}, kF32);
        c.call = [=](const Ctx& ctx, const Args& a) { sumsq(ctx, a[sum], a[x]); };
        c.bench = n > 100000;
        cases.push_back(std::move(c));
    }
    const struct {
        const char* name;
        bool skip;
        double decay;
    } kinds[] = {
        {"", false, 0.999}, {" skip", true, 0.999}, {" copy", false, 0}, {" rest", false, 1}};
    for (const auto& [name, skip, decay] : kinds) {
        for (const int64_t n : {1, 37, 1030, 16 << 20}) {
            if (*name != 0 && n > 1000) continue;
            Case c("ema_update", fmt::format("n{}{}", n, name), kF32);
            const int e =
                c.acc("e", {n}, kF32,
                      skip || decay == 0 || decay == 1
                          ? exact("a skipped step changes nothing; a copy is one; rest is rest")
                          : within("difference, product, sum", kF32, {{3, kU32, Mag::kAbs}}));
            const int p = c.in("p", {n}, kF32), d = c.in("decay", {1}, kF32, values({decay}));
            const int s = c.in("scalars", {kNumStepScalars}, kF32, scalars(skip));
            c.call = [=](const Ctx& ctx, const Args& a) {
                ema_update(ctx, a[e], a[p], a[d], a[s]);
            };
            c.bench = n > 100000;
            cases.push_back(std::move(c));
        }
    }
}

}  // namespace vt::test
