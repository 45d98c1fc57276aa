// SPDX-License-Identifier: MIT
#include "tests/ops/cases.h"

namespace vt::test {

namespace {

constexpr DType kF32 = DType::kF32, kBF16 = DType::kBF16;

void patches(std::vector<Case>& cases, const Shape& s, Patch patch, DType tx, DType tr,
             bool bench) {
    const int64_t rows = s[0] * (s[2] / patch.t) * (s[3] / patch.h) * (s[4] / patch.w);
    const Shape rs{rows, s[1] * patch.volume()};
    for (const PatchOrder order : {PatchOrder::kChannelFirst, PatchOrder::kChannelLast}) {
        const std::string shape =
            fmt::format("{} p{}{}{}{} rows={}", s.str(), patch.t, patch.h, patch.w,
                        order == PatchOrder::kChannelFirst ? " c-first" : " c-last", name_of(tr));
        {
            Case c("patchify", shape, tx);
            const int x = c.in("x", s, tx);
            const int r = c.out("rows", rs, tr, exact("a permutation, one rounding"));
            c.call = [=](const Ctx& ctx, const Args& a) {
                patchify(ctx, a[r], a[x], patch, order);
            };
            c.bench = bench;
            cases.push_back(std::move(c));
        }
        Case c("unpatchify", shape, tx);
        const int r = c.in("rows", rs, tr);
        const int x = c.out("x", s, tx, exact("a permutation, one rounding"));
        c.call = [=](const Ctx& ctx, const Args& a) { unpatchify(ctx, a[x], a[r], patch, order); };
        c.bench = bench;
        cases.push_back(std::move(c));
    }
}

}  // namespace

void add_embed_cases(std::vector<Case>& cases) {
    for (const auto& [tx, tr] :
         {std::pair{kF32, kF32}, {kF32, kBF16}, {kBF16, kBF16}, {kBF16, kF32}}) {
        patches(cases, {1, 1, 1, 1, 1}, {1, 1, 1}, tx, tr, false);
        patches(cases, {2, 3, 2, 4, 6}, {1, 2, 2}, tx, tr, false);
        patches(cases, {1, 5, 6, 9, 4}, {2, 3, 1}, tx, tr, false);
        patches(cases, {3, 16, 1, 10, 14}, {1, 2, 2}, tx, tr, false);
    }
    patches(cases, {2, 16, 21, 60, 104}, {1, 2, 2}, kF32, kBF16, true);
    for (const int64_t n : {2, 6, 34, 256}) {
        Case c("sinusoid", fmt::format("B5 n{}", n), kF32);
        const int t = c.in("t", {5}, kF32, values({0, 1, 999.5, 750, 752}));
        const int out = c.out(
            "out", {5, n}, kF32,
            within("f64 angle to 4u64 of 1000, rounded once", kF32, {{4000, kU64, Mag::kOne}}));
        c.call = [=](const Ctx& ctx, const Args& a) { sinusoid(ctx, a[out], a[t]); };
        cases.push_back(std::move(c));
    }
}

}  // namespace vt::test
