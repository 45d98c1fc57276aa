// SPDX-License-Identifier: MIT
#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

void noise(std::vector<Case>& cases, const Shape& s, DType t, bool bench) {
    Case c("flow_noise", s.str(), t);
    const int x0 = c.in("x0", s, t), mix = c.in("mix", {s[0], 4}, kF32);
    // ordinals past 32 bits
    const int ids = c.in("ids", {s[0]}, DType::kI64, values({7, 5000000000.0, 0, 6}));
    const Bound bits = exact("the op's arithmetic is part of its definition");
    const int xt = c.out("xt", s, kF32, bits), target = c.out("target", s, kF32, bits);
    c.call = [=](const Ctx& ctx, const Args& a) {
        flow_noise(ctx, a[xt], a[target], a[x0], a[mix], a[ids], 77, Purpose::kNoise);
    };
    c.bench = bench;
    cases.push_back(std::move(c));
}

void loss(std::vector<Case>& cases, const Shape& s, bool grad, bool bench) {
    Case c("flow_loss", s.str() + (grad ? "" : " no dv"), kF32);
    const int v = c.in("v", s, kF32), target = c.in("target", s, kF32);
    const int coef = c.in("coef", {s[0]}, kF32, uniform(0.1, 2));
    const int dv = grad ? c.out("dv", s, kF32,
                                within("difference, two products", kF32, {{2, kU32, Mag::kRef}}))
                        : -1;
    // v - target may be rounded to f32 before it is squared; the sum itself is f64
    const int sse = c.out("sse", {s[0]}, DType::kF64,
                          within("f32 difference, f64 sum", DType::kF64, {{2, kU32, Mag::kRef}}));
    c.call = [=](const Ctx& ctx, const Args& a) {
        flow_loss(ctx, a[dv], a[sse], a[v], a[target], a[coef]);
    };
    c.bench = bench;
    cases.push_back(std::move(c));
}

}  // namespace

void add_objective_cases(std::vector<Case>& cases) {
    for (const DType t : {kF32, kBF16}) {
        noise(cases, {1, 1, 1, 1, 1}, t, false);
        noise(cases, {3, 3, 1, 5, 7}, t, false);  // a sample's elements are no multiple of 4
        noise(cases, {4, 16, 2, 10, 9}, t, false);
        noise(cases, {2, 16, 21, 60, 104}, t, true);
    }
    for (const bool grad : {true, false}) {
        loss(cases, {1, 1, 1, 1, 1}, grad, false);
        loss(cases, {3, 3, 1, 5, 7}, grad, false);
        loss(cases, {2, 16, 5, 20, 19}, grad, false);
        loss(cases, {2, 16, 21, 60, 104}, grad, true);
    }
}

}  // namespace vt::test
