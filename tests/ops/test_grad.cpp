// SPDX-License-Identifier: MIT
// Analytic backward against finite differences of the forward, for every pair of ops, in f64 on the
// reference. L = sum of outputs times fixed random weights; dL/dx by the backward must equal
// (8 (L(x+h) - L(x-h)) - (L(x+2h) - L(x-2h))) / 12h at every element, h = 2^-10: truncation h^4 =
// 1e-12 of the fifth derivative, rounding u/h = 1e-13 of |L|.
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/ops/cases.h"
#include "tests/ops/run.h"
#include "tests/ref/ref.h"

using namespace vt;
using namespace vt::test;

namespace {

constexpr DType kF64 = DType::kF64;

// How the backward writes the gradient of an input.
enum class Grad : uint8_t { kNone, kOut, kAcc };

// A computation and its gradient. forward(ctx, a) writes outputs from inputs; backward(ctx, a, d)
// reads the tensors of the forward and d[output] and writes d[input]. Both may keep what they need
// between them in tensors made by saved().
struct Pair {
    std::vector<Tensor> at, d;
    std::vector<Grad> grad;
    std::vector<bool> is_out;
    std::vector<std::vector<double>> memory;

    Tensor make(const Shape& s, const Fill& fill, int salt) {
        Case c("pair", fmt::format("arg{} salt{}", memory.size(), salt), kF64);
        c.in("t", s, kF64, fill);
        const Memory m = make_inputs(c);
        const auto* p = m.args[0].as<double>();
        memory.emplace_back(p, p + s.numel());
        return {memory.back().data(), s, kF64};
    }
    int add(const Shape& s, const Fill& fill, Grad g, bool out) {
        at.push_back(make(s, fill, 0));
        d.push_back(make(s, normal(), 1));
        grad.push_back(g);
        is_out.push_back(out);
        return static_cast<int>(at.size()) - 1;
    }
    int in(const Shape& s, Grad g, const Fill& fill = normal()) { return add(s, fill, g, false); }
    int out(const Shape& s) { return add(s, normal(), Grad::kNone, true); }
    int saved(const Shape& s) { return add(s, normal(), Grad::kNone, false); }
};

using Run = std::function<void(const Ctx&, const Args&)>;
using Back = std::function<void(const Ctx&, const Args&, const Args&)>;

const Ctx& ctx_of_ref() {
    static const Ctx ctx{.ops = &ref_ops()};
    return ctx;
}

double weighted_sum(const Pair& p) {
    double L = 0;
    for (size_t k = 0; k < p.at.size(); ++k) {
        if (!p.is_out[k]) continue;
        for (int64_t i = 0; i < p.at[k].numel(); ++i) {
            L += p.at[k].as<double>()[i] * p.d[k].as<double>()[i];
        }
    }
    return L;
}

void check_pair(const char* name, Pair& p, const Run& forward, const Back& backward) {
    const Args a{p.at}, d{p.d};
    std::vector<std::vector<double>> preset;
    for (size_t k = 0; k < p.at.size(); ++k) {
        double* g = p.d[k].as<double>();
        if (p.grad[k] == Grad::kOut) std::fill(g, g + p.d[k].numel(), std::nan(""));
        preset.emplace_back(g, g + p.d[k].numel());
    }
    forward(ctx_of_ref(), a);
    backward(ctx_of_ref(), a, d);
    const auto L_at = [&](double* x, double value) {
        const double kept = *x;
        *x = value;
        forward(ctx_of_ref(), a);
        *x = kept;
        return weighted_sum(p);
    };
    constexpr double h = 0x1p-10;
    int checked = 0;
    for (size_t k = 0; k < p.at.size(); ++k) {
        if (p.grad[k] == Grad::kNone) continue;
        double largest = 0, worst = 0;
        for (int64_t i = 0; i < p.at[k].numel(); ++i) {
            double* x = p.at[k].as<double>() + i;
            const double x0 = *x;
            const double want = (8 * (L_at(x, x0 + h) - L_at(x, x0 - h)) -
                                 (L_at(x, x0 + 2 * h) - L_at(x, x0 - 2 * h))) /
                                (12 * h);
            double got = p.d[k].as<double>()[i];
            if (p.grad[k] == Grad::kAcc) got -= preset[k][static_cast<size_t>(i)];
            largest = std::max(largest, std::fabs(want));
            const double error = std::fabs(got - want);
            worst = error <= worst ? worst : error;  // keeps NaN
            ++checked;
        }
        // 1e-12 times a fifth derivative of some hundreds, beside 1e-13 |L|
        const double tol = 1e-9 * (1 + largest);
        CHECK_MESSAGE(worst <= tol, name, ": argument ", k, " off by ", worst, ", tolerance ", tol);
    }
    CHECK(checked > 0);
}

}  // namespace

TEST_CASE("grad: linear with bias; two layers through the GELU epilogue") {
    for (const bool accumulate : {false, true}) {
        Pair p;
        const int x = p.in({5, 3}, accumulate ? Grad::kAcc : Grad::kOut);
        const int w = p.in({4, 3}, Grad::kAcc), b = p.in({4}, Grad::kAcc), y = p.out({5, 4});
        check_pair(
            "linear", p,
            [=](const Ctx& c, const Args& a) {
                linear_fwd(c, a[y], {}, a[x], a[w], a[b], Epilogue::kNone);
            },
            [=](const Ctx& c, const Args& a, const Args& d) {
                linear_bwd_input(c, d[x], d[y], a[w], {}, Epilogue::kNone, accumulate);
                linear_bwd_weight(c, d[w], d[b], d[y], a[x]);
            });
    }
    Pair p;
    const int x = p.in({5, 3}, Grad::kOut), w1 = p.in({6, 3}, Grad::kAcc);
    const int b1 = p.in({6}, Grad::kAcc), w2 = p.in({2, 6}, Grad::kAcc);
    const int pre = p.saved({5, 6}), h = p.saved({5, 6}), y = p.out({5, 2});
    check_pair(
        "mlp", p,
        [=](const Ctx& c, const Args& a) {
            linear_fwd(c, a[h], a[pre], a[x], a[w1], a[b1], Epilogue::kGelu);
            linear_fwd(c, a[y], {}, a[h], a[w2], {}, Epilogue::kNone);
        },
        [=](const Ctx& c, const Args& a, const Args& d) {
            linear_bwd_weight(c, d[w2], {}, d[y], a[h]);
            linear_bwd_input(c, d[pre], d[y], a[w2], a[pre], Epilogue::kGelu, false);
            linear_bwd_weight(c, d[w1], d[b1], d[pre], a[x]);
            linear_bwd_input(c, d[x], d[pre], a[w1], {}, Epilogue::kNone, false);
        });
}

TEST_CASE("grad: attention over segments, self and cross, one of them empty") {
    struct Sizes {
        std::vector<int64_t> q, k;
    };
    for (const Sizes& z : {Sizes{{3, 0, 4}, {3, 0, 4}}, Sizes{{2, 5, 0}, {4, 1, 2}}}) {
        const Seg qs = make_seg(z.q), ks = make_seg(z.k);
        const int64_t Sq = qs.begin.back(), Sk = ks.begin.back(), NH = 2, HD = 4;
        Pair p;
        const int q = p.in({Sq, NH * HD}, Grad::kOut), k = p.in({Sk, NH * HD}, Grad::kOut);
        const int v = p.in({Sk, NH * HD}, Grad::kOut), o = p.out({Sq, NH * HD});
        const int lse = p.saved({Sq, NH}), delta = p.saved({Sq, NH});
        check_pair(
            "attention", p,
            [=](const Ctx& c, const Args& a) {
                attention_fwd(c, a[o], a[lse], a[q], a[k], a[v], qs.view(), ks.view(), NH, 0.5);
            },
            [=](const Ctx& c, const Args& a, const Args& d) {
                attention_delta(c, a[delta], d[o], a[o], NH);
                attention_bwd(c, d[q], d[k], d[v], d[o], a[q], a[k], a[v], a[lse], a[delta],
                              qs.view(), ks.view(), NH, 0.5);
            });
    }
}

TEST_CASE("grad: modulated and affine LayerNorm") {
    const Seg seg = make_seg({2, 0, 3, 1});
    const ModIndex slice{.shift = 2, .scale = 0};
    {
        Pair p;
        const int h = p.in({6, 5}, Grad::kAcc), mod = p.in({4, 3, 5}, Grad::kAcc);
        const int y = p.out({6, 5}), mean = p.saved({6}), rstd = p.saved({6});
        check_pair(
            "modnorm", p,
            [=](const Ctx& c, const Args& a) {
                modnorm_fwd(c, a[y], a[mean], a[rstd], a[h], a[mod], slice, seg.view(), 1e-6);
            },
            [=](const Ctx& c, const Args& a, const Args& d) {
                modnorm_bwd(c, d[h], d[mod], d[y], a[h], a[mean], a[rstd], a[mod], slice,
                            seg.view());
            });
    }
    Pair p;
    const int h = p.in({6, 5}, Grad::kAcc), w = p.in({5}, Grad::kAcc), b = p.in({5}, Grad::kAcc);
    const int y = p.out({6, 5}), mean = p.saved({6}), rstd = p.saved({6});
    check_pair(
        "layernorm", p,
        [=](const Ctx& c, const Args& a) {
            layernorm_fwd(c, a[y], a[mean], a[rstd], a[h], a[w], a[b], 1e-6);
        },
        [=](const Ctx& c, const Args& a, const Args& d) {
            layernorm_bwd(c, d[h], d[w], d[b], d[y], a[h], a[mean], a[rstd], a[w]);
        });
}

TEST_CASE("grad: QK-norm with rotation; two shares of the width with summed statistics") {
    constexpr int64_t S = 4, NH = 2, HD = 8, D = NH * HD;
    Pair p;
    std::vector<double> circle;
    for (int i = 0; i < 40; ++i) {
        circle.push_back(std::cos(0.7 * i));
        circle.push_back(std::sin(0.7 * i));
    }
    const int cs_t = p.in({5, 2, 2}, Grad::kNone, values(circle));
    const int cs_h = p.in({5, 1, 2}, Grad::kNone, values(circle));
    const int cs_w = p.in({5, 1, 2}, Grad::kNone, values(circle));
    std::vector<int32_t> pos{0, 1, 2, 4, 3, 0, 2, 2, 1, 3, 0, 4};
    const CTensor pos_t(pos.data(), {S, 3}, DType::kI32);
    // the two shares of a row that two ranks would hold
    const int x0 = p.in({S, D}, Grad::kOut), x1 = p.in({S, D}, Grad::kOut);
    const int w0 = p.in({D}, Grad::kAcc), w1 = p.in({D}, Grad::kAcc);
    const int y0 = p.out({S, D}), y1 = p.out({S, D}), ssq = p.saved({S}), part = p.saved({S});
    for (const bool rotate : {true, false}) {
        check_pair(
            "qknorm", p,
            [=](const Ctx& c, const Args& a) {
                const Rope rope = rotate ? Rope{a[cs_t], a[cs_h], a[cs_w], pos_t} : Rope{};
                row_sumsq(c, a[ssq], a[x0]);
                row_sumsq(c, a[part], a[x1]);
                add(c, a[ssq], a[part]);
                qknorm_rope_fwd(c, a[y0], a[x0], a[ssq], a[w0], rope, HD, 2 * D, 1e-6);
                qknorm_rope_fwd(c, a[y1], a[x1], a[ssq], a[w1], rope, HD, 2 * D, 1e-6);
            },
            [=](const Ctx& c, const Args& a, const Args& d) {
                const Rope rope = rotate ? Rope{a[cs_t], a[cs_h], a[cs_w], pos_t} : Rope{};
                qknorm_rope_bwd_dot(c, d[ssq], d[y0], a[x0], a[w0], rope, HD);
                qknorm_rope_bwd_dot(c, d[part], d[y1], a[x1], a[w1], rope, HD);
                add(c, d[ssq], d[part]);
                qknorm_rope_bwd(c, d[x0], d[w0], d[y0], a[x0], a[ssq], d[ssq], a[w0], rope, HD,
                                2 * D, 1e-6);
                qknorm_rope_bwd(c, d[x1], d[w1], d[y1], a[x1], a[ssq], d[ssq], a[w1], rope, HD,
                                2 * D, 1e-6);
            });
    }
}

TEST_CASE("grad: gate and residual, SiLU, modulation") {
    const Seg seg = make_seg({2, 0, 3});
    for (const bool gated : {true, false}) {
        Pair p;
        const int h = p.in({5, 3}, Grad::kAcc), o = p.in({5, 3}, Grad::kOut);
        const int mod = gated ? p.in({3, 2, 3}, Grad::kAcc) : -1, y = p.out({5, 3});
        check_pair(
            "gate", p,
            [=](const Ctx& c, const Args& a) {
                cast(c, a[y], a[h]);
                gate_residual_fwd(c, a[y], a[o], a[mod], 1, seg.view());
            },
            [=](const Ctx& c, const Args& a, const Args& d) {
                gate_residual_bwd(c, d[o], d[mod], d[y], gated ? a[o] : Tensor(), a[mod], 1,
                                  seg.view());
                add(c, d[h], d[y]);
            });
    }
    {
        Pair p;
        const int x = p.in({2, 7}, Grad::kAcc, normal(3)), y = p.out({2, 7});
        check_pair(
            "silu", p, [=](const Ctx& c, const Args& a) { silu_fwd(c, a[y], a[x]); },
            [=](const Ctx& c, const Args& a, const Args& d) { silu_bwd(c, d[x], d[y], a[x]); });
    }
    for (const Shape& ps : {Shape{3, 2, 4}, Shape{3, 4}}) {
        Pair p;
        const int table = p.in({2, 4}, Grad::kAcc), t = p.in(ps, Grad::kAcc);
        const int out = p.out({3, 2, 4});
        check_pair(
            "modulation", p,
            [=](const Ctx& c, const Args& a) { modulation_fwd(c, a[out], a[table], a[t]); },
            [=](const Ctx& c, const Args& /*a*/, const Args& d) {
                modulation_bwd(c, d[table], d[t], d[out]);
            });
    }
}

TEST_CASE("grad: patches are each other's adjoint; the loss's gradient") {
    for (const PatchOrder order : {PatchOrder::kChannelFirst, PatchOrder::kChannelLast}) {
        const Patch patch{2, 1, 3};
        Pair p;
        const int x = p.in({2, 2, 4, 2, 3}, Grad::kOut), rows = p.out({8, 12});
        check_pair(
            "patchify", p,
            [=](const Ctx& c, const Args& a) { patchify(c, a[rows], a[x], patch, order); },
            [=](const Ctx& c, const Args& /*a*/, const Args& d) {
                unpatchify(c, d[x], d[rows], patch, order);
            });
        Pair q;
        const int r = q.in({8, 12}, Grad::kOut), y = q.out({2, 2, 4, 2, 3});
        check_pair(
            "unpatchify", q,
            [=](const Ctx& c, const Args& a) { unpatchify(c, a[y], a[r], patch, order); },
            [=](const Ctx& c, const Args& /*a*/, const Args& d) {
                patchify(c, d[r], d[y], patch, order);
            });
    }
    // sse weighted by coef is the loss, so the weights of L are the coefficients
    Pair p;
    const int v = p.in({2, 2, 1, 2, 3}, Grad::kOut), target = p.in({2, 2, 1, 2, 3}, Grad::kNone);
    const int sse = p.out({2});
    check_pair(
        "loss", p,
        [=, &p](const Ctx& c, const Args& a) {
            flow_loss(c, {}, a[sse], a[v], a[target], p.d[static_cast<size_t>(sse)]);
        },
        [=](const Ctx& c, const Args& a, const Args& d) {
            flow_loss(c, d[v], a[sse], a[v], a[target], d[sse]);
        });
}
