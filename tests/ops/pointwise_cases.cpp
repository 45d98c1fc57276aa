// SPDX-License-Identifier: MIT
#include <cmath>
#include <fmt/format.h>
#include <limits>

#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

double root(int64_t n) {
    return std::sqrt(static_cast<double>(n));
}

void gate(std::vector<Case>& cases, const std::vector<int64_t>& lengths, int64_t D, DType th,
          DType to, bool gated, bool bench) {
    const Seg seg = make_seg(lengths);
    const int64_t S = seg.begin.back(), J = 6;
    const auto n_mod = static_cast<int64_t>(lengths.size());
    const int j = 5;
    const std::string shape =
        fmt::format("S{} D{}{}{}", fmt::join(lengths, "+"), D, gated ? "" : " no gate",
                    th != to ? fmt::format(" h={}", name_of(th)) : "");
    const Shape SD{S, D}, mods{n_mod, J, D};
    {
        Case c("gate_residual_fwd", shape, to);
        const int h =
            c.acc("h", SD, th, within("one product, one sum", th, {{3, kU32, Mag::kAbs}}));
        const int o = c.in("o", SD, to), mod = gated ? c.in("mod", mods, kF32) : -1;
        c.call = [=](const Ctx& ctx, const Args& a) {
            gate_residual_fwd(ctx, a[h], a[o], a[mod], j, seg.view());
        };
        c.need = {.rows = S, .width = D};
        c.bench = bench;
        cases.push_back(std::move(c));
    }
    if (th != kF32) return;  // the backward has no h
    Case c("gate_residual_bwd", shape, to);
    const int dh = c.in("dh", SD, kF32);
    const int o = gated ? c.in("o", SD, to) : -1, mod = gated ? c.in("mod", mods, kF32) : -1;
    const int dout = c.out("dout", SD, to, within("one product", to, {{2, kU32, Mag::kRef}}));
    const int dmod =
        gated ? c.acc("dmod", mods, kF32,
                      within("f32 sum over S", kF32, {{4 + 4 * root(S), kU32, Mag::kAbs}}))
              : -1;
    c.call = [=](const Ctx& ctx, const Args& a) {
        gate_residual_bwd(ctx, a[dout], a[dmod], a[dh], a[o], a[mod], j, seg.view());
    };
    c.need = {.rows = S, .width = D};
    c.bench = bench;
    cases.push_back(std::move(c));
}

void silu(std::vector<Case>& cases, const Shape& s, DType tx, DType ty, bool bench) {
    const std::string shape = fmt::format("{} x={}", s.str(), name_of(tx));
    {
        Case c("silu_fwd", shape, ty);
        const int x = c.in("x", s, tx, normal(4));
        const int y =
            c.out("y", s, ty, within("exp to 4u plus u|x|, |x| < 24", ty, {{32, kU32, Mag::kRef}}));
        c.call = [=](const Ctx& ctx, const Args& a) { silu_fwd(ctx, a[y], a[x]); };
        c.bench = bench;
        cases.push_back(std::move(c));
    }
    Case c("silu_bwd", shape, ty);
    const int x = c.in("x", s, tx, normal(4)), dy = c.in("dy", s, ty);
    // silu' is a sum that can cancel (at x = -1.28): absolute to its size, 1.1
    const int dx = c.acc(
        "dx", s, kF32,
        within("silu' to 16u of 1.1", kF32, {{20, kU32, Mag::kMax, dy}, {4, kU32, Mag::kAbs}}));
    c.call = [=](const Ctx& ctx, const Args& a) { silu_bwd(ctx, a[dx], a[dy], a[x]); };
    c.bench = bench;
    cases.push_back(std::move(c));
}

void modulation(std::vector<Case>& cases, int64_t B, int64_t J, int64_t D, bool shared) {
    const std::string shape = fmt::format("B{} J{} D{}{}", B, J, D, shared ? " shared" : "");
    const Shape full{B, J, D}, ps = shared ? Shape{B, D} : full;
    {
        Case c("modulation_fwd", shape, kF32);
        const int table = c.in("table", {J, D}, kF32), p = c.in("p", ps, kF32);
        const int out = c.out("out", full, kF32, within("one sum", kF32, {}));
        c.call = [=](const Ctx& ctx, const Args& a) {
            modulation_fwd(ctx, a[out], a[table], a[p]);
        };
        cases.push_back(std::move(c));
    }
    Case c("modulation_bwd", shape, kF32);
    const int dout = c.in("dout", full, kF32);
    const Bound bound =
        within("f32 sums over B, over J", kF32, {{4 + 4 * root(std::max(B, J)), kU32, Mag::kAbs}});
    const int dtable = c.acc("dtable", {J, D}, kF32, bound), dp = c.acc("dp", ps, kF32, bound);
    c.call = [=](const Ctx& ctx, const Args& a) { modulation_bwd(ctx, a[dtable], a[dp], a[dout]); };
    cases.push_back(std::move(c));
}

void casts(std::vector<Case>& cases) {
    constexpr double kInf = std::numeric_limits<double>::infinity();
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    // ties to even on both sides, the largest finite, overflow to infinity, subnormals, specials
    const Fill edges = values({1.00390625, 1.01171875, -1.00390625, 750, 3.3895314e38, 3.4e38,
                               1e-40, -1e-40, 9.2e-41, 0.0, -0.0, kInf, -kInf, kNan, 0.1});
    for (const auto& [from, to] :
         {std::pair{kF32, kBF16}, {kBF16, kF32}, {kF32, kF32}, {kBF16, kBF16}}) {
        for (const int64_t n : {1, 15, 37, 1000}) {
            Case c("cast", fmt::format("n{} from {}", n, name_of(from)), to);
            const int x = c.in("x", {n}, from, n == 1000 ? normal() : edges);
            const int y = c.out("y", {n}, to, exact("one rounding to nearest even"));
            c.call = [=](const Ctx& ctx, const Args& a) { cast(ctx, a[y], a[x]); };
            cases.push_back(std::move(c));
        }
        Case c("cast", fmt::format("n{} from {}", 16 << 20, name_of(from)), to);
        const int x = c.in("x", {16 << 20}, from);
        const int y = c.out("y", {16 << 20}, to, exact("one rounding to nearest even"));
        c.call = [=](const Ctx& ctx, const Args& a) { cast(ctx, a[y], a[x]); };
        c.bench = true;
        cases.push_back(std::move(c));
    }
}

}  // namespace

void add_pointwise_cases(std::vector<Case>& cases) {
    for (const auto& [th, to] : {std::pair{kF32, kF32}, {kF32, kBF16}, {kBF16, kBF16}}) {
        for (const bool gated : {true, false}) {
            gate(cases, {1}, 1, th, to, gated, false);
            gate(cases, {4, 0, 3}, 7, th, to, gated, false);
            gate(cases, {33, 70, 1}, 65, th, to, gated, false);
            gate(cases, {0, 64}, 64, th, to, gated, false);
            gate(cases, {2000}, 3, th, to, gated, false);
        }
        gate(cases, {4096, 4096}, 1536, th, to, true, true);
        silu(cases, {3, 5}, th, to, false);
        silu(cases, {1}, th, to, false);
        silu(cases, {17, 67}, th, to, false);
        silu(cases, {4096, 1536}, th, to, true);
    }
    modulation(cases, 1, 1, 1, false);
    modulation(cases, 3, 6, 33, false);
    modulation(cases, 5, 2, 70, true);
    modulation(cases, 2, 6, 128, true);
    casts(cases);
    for (const DType t : {kF32, kBF16, DType::kF64, DType::kI64, DType::kI32, DType::kU8}) {
        Case c("fill", "n37", t);
        const int y = c.out("y", {37}, t, exact("one value"));
        c.call = [=](const Ctx& ctx, const Args& a) { fill(ctx, a[y], 3); };
        cases.push_back(std::move(c));
    }
    for (const DType t : {kF32, kBF16}) {
        for (const int64_t n : {1, 37, 4099, 16 << 20}) {
            Case c("add", fmt::format("n{}", n), t);
            const int y = c.acc("y", {n}, kF32, within("one sum", kF32, {}));
            const int x = c.in("x", {n}, t);
            c.call = [=](const Ctx& ctx, const Args& a) { add(ctx, a[y], a[x]); };
            c.bench = n > 10000;
            cases.push_back(std::move(c));
        }
    }
}

}  // namespace vt::test
