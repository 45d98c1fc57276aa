// SPDX-License-Identifier: MIT
#include <cmath>
#include <fmt/format.h>

#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;
constexpr double kEps = 1e-6;

double root(int64_t n) {
    return std::sqrt(static_cast<double>(n));
}

int64_t total(const std::vector<int64_t>& lengths) {
    int64_t n = 0;
    for (const int64_t l : lengths) n += l;
    return n;
}

// A sum over S rows added to what was there.
Bound column_sum(int64_t S) {
    return within("f32 sum over S", kF32, {{8 + 4 * root(S), kU32, Mag::kMax}});
}

// How h is made: `offset` deviations off zero, where a variance by E[h^2] - E[h]^2 loses digits.
struct Rows {
    std::vector<int64_t> lengths;
    int64_t D;
    double offset = 0;
    bool bench = false;
    [[nodiscard]] std::string text(const char* what) const {
        return fmt::format("S{} D{}{}{}", fmt::join(lengths, "+"), D,
                           offset > 0 ? fmt::format(" mean{}", offset) : "", what);
    }
};

// xh loses u times the offset in h - mean; two-pass moments otherwise keep 16u.
double digits(const Rows& z) {
    return 16 + 4 * z.offset;
}

void modnorm(std::vector<Case>& cases, const Rows& z, DType th, DType ty) {
    const int64_t S = total(z.lengths), D = z.D, J = 6;
    const auto n_mod = static_cast<int64_t>(z.lengths.size());
    const Seg seg = make_seg(z.lengths);
    const ModIndex at{.shift = 3, .scale = 1};
    const std::string mixed = th != ty ? fmt::format(" h={}", name_of(th)) : "";
    const Shape SD{S, D}, mods{n_mod, J, D};
    {
        Case c("modnorm_fwd", z.text(mixed.c_str()), ty);
        const int h = c.in("h", SD, th, normal(1, z.offset)), mod = c.in("mod", mods, kF32);
        const int y = c.out("y", SD, ty,
                            within("16u of the row, h - mean", ty, {{digits(z), kU32, Mag::kRow}}));
        const int mean =
            c.out("mean", {S}, kF32, within("f32 sum over D", kF32, {{4, kU32, Mag::kMax, h}}));
        const int rstd =
            c.out("rstd", {S}, kF32,
                  within("f32 sum of squares over D", kF32, {{digits(z), kU32, Mag::kRef}}));
        c.call = [=](const Ctx& ctx, const Args& a) {
            modnorm_fwd(ctx, a[y], a[mean], a[rstd], a[h], a[mod], at, seg.view(), kEps);
        };
        c.need = {.rows = S, .width = D};
        c.bench = z.bench;
        cases.push_back(std::move(c));
    }
    Case c("modnorm_bwd", z.text(mixed.c_str()), ty);
    const int h = c.in("h", SD, th, normal(1, z.offset)), mod = c.in("mod", mods, kF32);
    const int y = c.in("y", SD, ty), dy = c.in("dy", SD, ty);
    const int mean = c.in("mean", {S}, kF32), rstd = c.in("rstd", {S}, kF32);
    const int dh =
        c.acc("dh", SD, kF32, within("two row sums, xh", kF32, {{2 * digits(z), kU32, Mag::kMax}}));
    Bound sums = column_sum(S);
    sums.terms.push_back({2 * z.offset, kU32, Mag::kMax});
    const int dmod = c.acc("dmod", mods, kF32, sums);
    c.prepare = [=](const Ctx& ctx, const Args& a) {
        modnorm_fwd(ctx, a[y], a[mean], a[rstd], a[h], a[mod], at, seg.view(), kEps);
    };
    c.call = [=](const Ctx& ctx, const Args& a) {
        modnorm_bwd(ctx, a[dh], a[dmod], a[dy], a[h], a[mean], a[rstd], a[mod], at, seg.view());
    };
    c.need = {.rows = S, .width = D};
    c.bench = z.bench;
    cases.push_back(std::move(c));
}

void layernorm(std::vector<Case>& cases, const Rows& z, DType th, DType ty) {
    const int64_t S = total(z.lengths), D = z.D;
    const std::string mixed = th != ty ? fmt::format(" h={}", name_of(th)) : "";
    const Shape SD{S, D};
    {
        Case c("layernorm_fwd", z.text(mixed.c_str()), ty);
        const int h = c.in("h", SD, th, normal(1, z.offset));
        const int w = c.in("w", {D}, kF32), b = c.in("b", {D}, kF32);
        const int y = c.out("y", SD, ty,
                            within("16u of the row, h - mean", ty, {{digits(z), kU32, Mag::kRow}}));
        const int mean =
            c.out("mean", {S}, kF32, within("f32 sum over D", kF32, {{4, kU32, Mag::kMax, h}}));
        const int rstd =
            c.out("rstd", {S}, kF32,
                  within("f32 sum of squares over D", kF32, {{digits(z), kU32, Mag::kRef}}));
        c.call = [=](const Ctx& ctx, const Args& a) {
            layernorm_fwd(ctx, a[y], a[mean], a[rstd], a[h], a[w], a[b], kEps);
        };
        c.need = {.rows = S, .width = D};
        c.bench = z.bench;
        cases.push_back(std::move(c));
    }
    Case c("layernorm_bwd", z.text(mixed.c_str()), ty);
    const int h = c.in("h", SD, th, normal(1, z.offset));
    const int w = c.in("w", {D}, kF32), b = c.in("b", {D}, kF32);
    const int y = c.in("y", SD, ty), dy = c.in("dy", SD, ty);
    const int mean = c.in("mean", {S}, kF32), rstd = c.in("rstd", {S}, kF32);
    const int dh =
        c.acc("dh", SD, kF32, within("two row sums, xh", kF32, {{2 * digits(z), kU32, Mag::kMax}}));
    Bound sums = column_sum(S);
    sums.terms.push_back({2 * z.offset, kU32, Mag::kMax});
    const int dw = c.acc("dw", {D}, kF32, sums), db = c.acc("db", {D}, kF32, column_sum(S));
    c.prepare = [=](const Ctx& ctx, const Args& a) {
        layernorm_fwd(ctx, a[y], a[mean], a[rstd], a[h], a[w], a[b], kEps);
    };
    c.call = [=](const Ctx& ctx, const Args& a) {
        layernorm_bwd(ctx, a[dh], a[dw], a[db], a[dy], a[h], a[mean], a[rstd], a[w]);
    };
    c.need = {.rows = S, .width = D};
    c.bench = z.bench;
    cases.push_back(std::move(c));
}

struct Heads {
    int64_t S, NH, HD;
    int64_t share = 1;  // D_global / Dl, as under tensor parallelism
    bool rotate = true, in_place = false, bench = false;
    [[nodiscard]] int64_t D() const { return NH * HD; }
    [[nodiscard]] std::string text() const {
        return fmt::format("S{} NH{} HD{}{}{}{}", S, NH, HD, share > 1 ? " share" : "",
                           rotate ? " rope" : "", in_place ? " in-place" : "");
    }
};

// Rope tables of one case: pairs split over t, h, w as evenly as Wan does (t takes the rest).
struct RopeArgs {
    int t = -1, h = -1, w = -1, pos = -1;
    [[nodiscard]] Rope of(const Args& a) const { return {a[t], a[h], a[w], a[pos]}; }
};

RopeArgs rope_of(Case& c, const Heads& z) {
    if (!z.rotate) return {};
    const int64_t pairs = z.HD / 2, hw = pairs / 3, positions = 9;
    std::vector<double> circle;  // (cos, sin) of angles that repeat nowhere near a period
    for (int i = 0; i < 997; ++i) {
        circle.push_back(std::cos(0.37 * i));
        circle.push_back(std::sin(0.37 * i));
    }
    RopeArgs r;
    r.t = c.in("cs_t", {positions, pairs - 2 * hw, 2}, kF32, values(circle));
    r.h = c.in("cs_h", {positions, hw, 2}, kF32, values(circle));
    r.w = c.in("cs_w", {positions, hw, 2}, kF32, values(circle));
    r.pos = c.in("pos", {z.S, 3}, DType::kI32, index_below(positions));
    return r;
}

void qknorm(std::vector<Case>& cases, const Heads& z, DType t) {
    const int64_t S = z.S, D = z.D(), HD = z.HD, D_global = D * z.share;
    const Shape SD{S, D};
    const ScratchNeed need{.rows = S, .width = D, .head_dim = HD, .heads = z.NH};
    const Fill squares =
        uniform(0.5 * static_cast<double>(D_global), 1.5 * static_cast<double>(D_global));
    if (!z.in_place && z.rotate) {
        Case c("row_sumsq", z.text(), t);
        const int x = c.in("x", SD, t);
        const int ssq = c.out("ssq", {S}, kF32,
                              within("f32 sum of squares", kF32, {{4 * root(D), kU32, Mag::kRef}}));
        c.call = [=](const Ctx& ctx, const Args& a) { row_sumsq(ctx, a[ssq], a[x]); };
        c.need = need;
        c.bench = z.bench;
        cases.push_back(std::move(c));
    }
    const Bound row = within("rsqrt, weight, rotation of a pair", t, {{12, kU32, Mag::kRow}});
    {
        Case c("qknorm_rope_fwd", z.text(), t);
        const int x = z.in_place ? c.acc("x", SD, t, row) : c.in("x", SD, t);
        const int ssq = c.in("ssq", {S}, kF32, squares), w = c.in("w", {D}, kF32);
        const int y = c.out("y", SD, t, row);
        if (z.in_place) c.args[static_cast<size_t>(y)].alias = x;
        const RopeArgs r = rope_of(c, z);
        c.call = [=](const Ctx& ctx, const Args& a) {
            qknorm_rope_fwd(ctx, a[y], a[x], a[ssq], a[w], r.of(a), HD, D_global, kEps);
        };
        c.need = need;
        c.bench = z.bench;
        cases.push_back(std::move(c));
    }
    if (!z.in_place) {
        Case c("qknorm_rope_bwd_dot", z.text(), t);
        const int dy = c.in("dy", SD, t), x = c.in("x", SD, t), w = c.in("w", {D}, kF32);
        // a sum of D signed terms of size one: the bound is on the sum of their magnitudes
        const int dot = c.out("dot", {S}, kF32,
                              within("f32 sum of D terms of size 1", kF32,
                                     {{16 + static_cast<double>(D), kU32, Mag::kOne}}));
        const RopeArgs r = rope_of(c, z);
        c.call = [=](const Ctx& ctx, const Args& a) {
            qknorm_rope_bwd_dot(ctx, a[dot], a[dy], a[x], a[w], r.of(a), HD);
        };
        c.need = need;
        c.bench = z.bench;
        cases.push_back(std::move(c));
    }
    Case c("qknorm_rope_bwd", z.text(), t);
    const Bound grad =
        within("rotation, two products, their difference", t, {{24, kU32, Mag::kRow}});
    const int dy = z.in_place ? c.acc("dy", SD, t, grad) : c.in("dy", SD, t);
    const int x = c.in("x", SD, t), w = c.in("w", {D}, kF32);
    const int ssq = c.in("ssq", {S}, kF32, squares), dot = c.in("dot", {S}, kF32, normal(root(D)));
    const int dx = c.out("dx", SD, t, grad);
    if (z.in_place) c.args[static_cast<size_t>(dx)].alias = dy;
    const int dw = c.acc("dw", {D}, kF32, column_sum(S));
    const RopeArgs r = rope_of(c, z);
    c.call = [=](const Ctx& ctx, const Args& a) {
        qknorm_rope_bwd(ctx, a[dx], a[dw], a[dy], a[x], a[ssq], a[dot], a[w], r.of(a), HD, D_global,
                        kEps);
    };
    c.need = need;
    c.bench = z.bench;
    cases.push_back(std::move(c));
}

}  // namespace

void add_norm_cases(std::vector<Case>& cases) {
    const std::vector<Rows> rows = {
        {{1}, 1},           {{1}, 2},         {{5, 0, 2}, 7},
        {{3, 30}, 33},      {{17, 1, 9}, 65}, {{64}, 64},
        {{40, 200, 7}, 96}, {{2, 1}, 1000},   {{9, 4}, 48, 50},
        {{700}, 40},        {{0, 3}, 130},    {.lengths = {4096, 4096}, .D = 1536, .bench = true},
    };
    for (const Rows& z : rows) {
        for (const auto& [th, ty] : {std::pair{kF32, kF32}, {kF32, kBF16}, {kBF16, kBF16}}) {
            // bf16 cannot hold an offset of 50 and a deviation of 1: h would be three values
            if (z.offset > 0 && th == kBF16) continue;
            modnorm(cases, z, th, ty);
            layernorm(cases, z, th, ty);
        }
    }
    modnorm(cases, {{5, 3}, 33}, kBF16, kF32);
    layernorm(cases, {{5, 3}, 33}, kBF16, kF32);

    const std::vector<Heads> heads = {
        {.S = 1, .NH = 1, .HD = 2, .rotate = false},
        {.S = 5, .NH = 3, .HD = 6},
        {.S = 7, .NH = 1, .HD = 16},
        {.S = 33, .NH = 2, .HD = 24, .share = 3},
        {.S = 65, .NH = 2, .HD = 64, .rotate = false},
        {.S = 19, .NH = 3, .HD = 128},
        {.S = 300, .NH = 1, .HD = 32},
        {.S = 13, .NH = 2, .HD = 10, .in_place = true},
        {.S = 13, .NH = 2, .HD = 32, .rotate = false, .in_place = true},
        {.S = 8192, .NH = 12, .HD = 128, .bench = true},
    };
    for (const DType t : {kF32, kBF16}) {
        for (const Heads& z : heads) qknorm(cases, z, t);
    }
}

}  // namespace vt::test
