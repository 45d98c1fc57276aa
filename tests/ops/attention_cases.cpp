// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

struct Sizes {
    std::vector<int64_t> q, k;  // lengths of the segments
    int64_t NH, HD;
    double scale = 0;  // 0: 1 / sqrt(HD)
    bool bench = false;
};

int64_t total(const std::vector<int64_t>& lengths) {
    int64_t n = 0;
    for (const int64_t l : lengths) n += l;
    return n;
}

std::string text(const Sizes& z) {
    return fmt::format("q{} k{} NH{} HD{}{}", fmt::join(z.q, "+"), fmt::join(z.k, "+"), z.NH, z.HD,
                       z.scale > 0 ? fmt::format(" scale{}", z.scale) : "");
}

// Standard deviation of the logits for N(0,1) q and k, three of them: how far exp's argument goes.
double spread(const Sizes& z) {
    const double scale = z.scale > 0 ? z.scale : 1 / std::sqrt(static_cast<double>(z.HD));
    return 3 * scale * std::sqrt(static_cast<double>(z.HD));
}

void forward(std::vector<Case>& cases, const Sizes& z, DType t) {
    Case c("attention_fwd", text(z), t);
    const int64_t Sq = total(z.q), Sk = total(z.k), D = z.NH * z.HD, NH = z.NH;
    const double longest = static_cast<double>(*std::max_element(z.k.begin(), z.k.end()));
    const int q = c.in("q", {Sq, D}, t), k = c.in("k", {Sk, D}, t), v = c.in("v", {Sk, D}, t);
    // an error of the logit is a relative error of p: u |logit|, a few u of the dot product's sum
    const double n32 = 8 + 2 * std::sqrt(longest) + 4 * spread(z);
    std::vector<Term> terms = {{n32, kU32, Mag::kMax, v}};
    if (t == kBF16) terms.push_back({1, kUBF16, Mag::kMax, v});  // p rounded for the matrix unit
    const int o =
        c.out("o", {Sq, D}, t, within("softmax and sums in f32, p operand dtype", t, terms));
    const int lse = c.out("lse", {Sq, NH}, kF32,
                          within("logits to 4u of their spread, sum of exp", kF32,
                                 {{8 + 8 * spread(z), kU32, Mag::kOne}, {4, kU32, Mag::kMax}}));
    const double scale = z.scale > 0 ? z.scale : 1 / std::sqrt(static_cast<double>(z.HD));
    const Seg qs = make_seg(z.q), ks = make_seg(z.k);
    c.call = [=](const Ctx& ctx, const Args& a) {
        attention_fwd(ctx, a[o], a[lse], a[q], a[k], a[v], qs.view(), ks.view(), NH, scale);
    };
    c.need = {.rows = std::max(Sq, Sk), .width = D, .head_dim = z.HD, .heads = NH};
    c.bench = z.bench;
    c.memory_bound = false;
    cases.push_back(std::move(c));
}

void delta(std::vector<Case>& cases, int64_t S, int64_t NH, int64_t HD, DType t, bool bench) {
    Case c("attention_delta", fmt::format("S{} NH{} HD{}", S, NH, HD), t);
    const int dout = c.in("dout", {S, NH * HD}, t), o = c.in("o", {S, NH * HD}, t);
    const int d = c.out("delta", {S, NH}, kF32,
                        within("f32 sum over HD", kF32,
                               {{4 * std::sqrt(static_cast<double>(HD)), kU32, Mag::kAbs}}));
    c.call = [=](const Ctx& ctx, const Args& a) { attention_delta(ctx, a[d], a[dout], a[o], NH); };
    c.need = {.rows = S, .width = NH * HD, .head_dim = HD, .heads = NH};
    c.bench = bench;
    cases.push_back(std::move(c));
}

void backward(std::vector<Case>& cases, const Sizes& z, DType t) {
    Case c("attention_bwd", text(z), t);
    const int64_t Sq = total(z.q), Sk = total(z.k), D = z.NH * z.HD, NH = z.NH;
    const double longest = static_cast<double>(std::max(*std::max_element(z.k.begin(), z.k.end()),
                                                        *std::max_element(z.q.begin(), z.q.end())));
    const int q = c.in("q", {Sq, D}, t), k = c.in("k", {Sk, D}, t), v = c.in("v", {Sk, D}, t);
    const int dout = c.in("dout", {Sq, D}, t);
    const int lse = c.in("lse", {Sq, NH}, kF32), dl = c.in("delta", {Sq, NH}, kF32);
    const int o = c.in("o", {Sq, D}, t);  // of the forward, for delta
    // dout.v - delta cancels (to nothing, with one key): its f32 error is that of its terms, not of
    // the difference; 4 deviations of them
    const double scale = z.scale > 0 ? z.scale : 1 / std::sqrt(static_cast<double>(z.HD));
    const double term = 4 * scale * std::sqrt(static_cast<double>(z.HD));
    const double n32 = 16 + 4 * std::sqrt(longest) + 4 * spread(z);
    std::vector<Term> terms = {{n32, kU32, Mag::kMax}, {4 * term, kU32, Mag::kOne}};
    if (t == kBF16) terms.push_back({3, kUBF16, Mag::kMax});  // p and ds rounded for the unit
    const Bound bound = within("f32 sums, p and ds in operand dtype", t, terms);
    const int dq = c.out("dq", {Sq, D}, t, bound), dk = c.out("dk", {Sk, D}, t, bound);
    const int dv = c.out("dv", {Sk, D}, t, bound);
    const Seg qs = make_seg(z.q), ks = make_seg(z.k);
    c.prepare = [=](const Ctx& ctx, const Args& a) {
        attention_fwd(ctx, a[o], a[lse], a[q], a[k], a[v], qs.view(), ks.view(), NH, scale);
        attention_delta(ctx, a[dl], a[dout], a[o], NH);
    };
    c.call = [=](const Ctx& ctx, const Args& a) {
        attention_bwd(ctx, a[dq], a[dk], a[dv], a[dout], a[q], a[k], a[v], a[lse], a[dl], qs.view(),
                      ks.view(), NH, scale);
    };
    c.need = {.rows = std::max(Sq, Sk), .width = D, .head_dim = z.HD, .heads = NH};
    c.bench = z.bench;
    c.memory_bound = false;
    cases.push_back(std::move(c));
}

}  // namespace

void add_attention_cases(std::vector<Case>& cases) {
    const std::vector<Sizes> sizes = {
        {.q = {1}, .k = {1}, .NH = 1, .HD = 2},
        {.q = {3, 0, 5}, .k = {3, 0, 5}, .NH = 2, .HD = 16},
        {.q = {7, 1, 20}, .k = {2, 9, 1}, .NH = 3, .HD = 6},  // cross; width not of 16
        {.q = {0, 4}, .k = {5, 3}, .NH = 1, .HD = 24},        // keys nobody asks
        {.q = {65, 33}, .k = {65, 33}, .NH = 2, .HD = 32},
        {.q = {130}, .k = {77}, .NH = 2, .HD = 64},
        {.q = {40}, .k = {150}, .NH = 1, .HD = 128},
        {.q = {257}, .k = {257}, .NH = 1, .HD = 16},
        {.q = {48},
         .k = {48},
         .NH = 1,
         .HD = 16,
         .scale = 4},  // near one-hot; exp must not overflow
        {.q = {1024}, .k = {1024}, .NH = 12, .HD = 128, .bench = true},
    };
    for (const DType t : {kF32, kBF16}) {
        for (const Sizes& z : sizes) {
            forward(cases, z, t);
            backward(cases, z, t);
        }
        delta(cases, 1, 1, 2, t, false);
        delta(cases, 13, 3, 6, t, false);
        delta(cases, 70, 2, 64, t, false);
        delta(cases, 16384, 12, 128, t, true);
    }
}

}  // namespace vt::test
