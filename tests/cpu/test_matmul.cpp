// SPDX-License-Identifier: MIT
// The CPU's matrix products and attention, on every instruction set this machine can run, against
// float64 loops; and that the bits do not depend on the thread count.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
#include "cpu/isa.h"
#include "ops/ops.h"

namespace vt {
namespace {

constexpr double kU32 = 0x1p-24, kU16 = 0x1p-8;

// A tensor with memory: its values as stored (rounded to dtype), readable as double.
struct Buffer {
    Shape shape;
    DType dtype = DType::kF32;
    std::vector<char> bytes;
    static constexpr int64_t kGuard = 64;  // bytes on either side that nobody may write

    Buffer(Shape s, DType t)
        : shape(s),
          dtype(t),
          bytes(static_cast<size_t>(s.numel() * size_of(t) + 2 * kGuard), 0x55) {}
    [[nodiscard]] char* data() { return bytes.data() + kGuard; }
    [[nodiscard]] const char* data() const { return bytes.data() + kGuard; }
    [[nodiscard]] Tensor tensor() { return {data(), shape, dtype}; }
    [[nodiscard]] bool guarded() const {
        const auto intact = [](char c) { return c == 0x55; };
        return std::all_of(bytes.begin(), bytes.begin() + kGuard, intact) &&
               std::all_of(bytes.end() - kGuard, bytes.end(), intact);
    }
    [[nodiscard]] double at(int64_t i) const {
        if (dtype == DType::kF32) {
            float x = 0;
            std::memcpy(&x, data() + 4 * i, 4);
            return x;
        }
        bf16 x;
        std::memcpy(&x, data() + 2 * i, 2);
        return to_float(x);
    }
    void set(int64_t i, float x) {
        if (dtype == DType::kF32) {
            std::memcpy(data() + 4 * i, &x, 4);
            return;
        }
        const bf16 r = to_bf16(x);
        std::memcpy(data() + 2 * i, &r, 2);
    }
    Buffer& random(uint64_t id, float factor = 1) {
        for (int64_t i = 0; i < shape.numel(); ++i) {
            set(i, factor * random_normal(7, Purpose::kTest, id, static_cast<uint64_t>(i)));
        }
        return *this;
    }
};

std::vector<Isa> sets() {
    std::vector<Isa> all;
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
        if (isa <= best_isa()) all.push_back(isa);
    }
    return all;
}

// What an op call needs besides its tensors.
struct Bench {
    Pool pool;
    std::vector<char> scratch;
    Ctx ctx;
    Bench(Isa isa, int threads, const ScratchNeed& sizes) : pool(threads) {
        ctx.ops = &cpu_ops_on(isa);
        ctx.pool = &pool;
        ScratchNeed need = sizes;
        need.threads = threads;
        scratch.resize(static_cast<size_t>(ctx.ops->scratch_bytes(need)));
        ctx.scratch = {scratch.data(), {static_cast<int64_t>(scratch.size())}, DType::kU8};
    }
};

// 2u of GELU-tanh; a sigmoid of z carries z times the relative error of z
double argument(double x) {
    return 2 * std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x);
}
double gelu(double x) {
    return x / (1 + std::exp(-argument(x)));
}
double gelu_slope(double x) {
    const double e = std::exp(-argument(x)), s = 1 / (1 + e);
    const double c = e < 1e300 ? e * s : 1;
    return s + x * s * c * 2 * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}

struct Sizes {
    int64_t S, N, K;
};
constexpr Sizes kSizes[] = {{1, 1, 1},     {3, 5, 7},      {17, 33, 65}, {64, 64, 64},
                            {50, 97, 300}, {130, 40, 513}, {1, 200, 31}, {515, 130, 96},
                            {40, 33, 2100}};  // the last in more than one pass over k

// |got - want| <= bound * (1 + what is said of y), y's own rounding included
void near(double got, double want, double bound, const std::string& what, int64_t i) {
    if (std::fabs(got - want) <= bound) return;
    FAIL_CHECK(what << "[" << i << "] = " << got << ", want " << want << " +- " << bound);
}

void check_linear(const Ctx& ctx, Sizes z, DType type, bool f32_out) {
    const auto [S, N, K] = z;
    const DType out = f32_out ? DType::kF32 : type;
    const double u_out = out == DType::kBF16 ? kU16 : 0;
    const Buffer none({1}, DType::kF32);
    Buffer x({S, K}, type), w({N, K}, type), b({N}, DType::kF32), dy({S, N}, type);
    x.random(1);
    w.random(2, 0.3F);
    b.random(3);
    dy.random(4);
    Buffer y({S, N}, out), pre({S, N}, type), act({S, N}, out);
    ctx.ops->linear_fwd(ctx, y.tensor(), {}, x.tensor(), w.tensor(), b.tensor(), Epilogue::kNone);
    ctx.ops->linear_fwd(ctx, act.tensor(), pre.tensor(), x.tensor(), w.tensor(), {},
                        Epilogue::kGelu);
    const double u_pre = type == DType::kBF16 ? kU16 : 0;
    for (int64_t s = 0; s < S; ++s) {
        for (int64_t n = 0; n < N; ++n) {
            double sum = 0, size = 0;
            for (int64_t k = 0; k < K; ++k) {
                const double term = x.at(s * K + k) * w.at(n * K + k);
                sum += term;
                size += std::fabs(term);
            }
            const int64_t i = s * N + n;
            const double rounding = 4 * std::sqrt(static_cast<double>(K)) * kU32 * size;
            const double want = sum + b.at(n);
            near(y.at(i), want, rounding + (u_out + kU32) * std::fabs(want), "y", i);
            near(pre.at(i), sum, rounding + (u_pre + kU32) * std::fabs(sum), "pre", i);
            const double g = gelu(pre.at(i));
            // a dozen roundings, and those of the sigmoid's argument
            const double few = 4 * (3 + std::fabs(argument(pre.at(i))));
            near(act.at(i), g, few * kU32 * (std::fabs(g) + 1e-30) + u_out * std::fabs(g), "gelu",
                 i);
        }
    }
    Buffer slope_at({S, K}, type), dx({S, K}, out), dx_slope({S, K}, out);
    slope_at.random(5, 2);
    ctx.ops->linear_bwd_input(ctx, dx.tensor(), dy.tensor(), w.tensor(), {}, Epilogue::kNone,
                              false);
    ctx.ops->linear_bwd_input(ctx, dx_slope.tensor(), dy.tensor(), w.tensor(), slope_at.tensor(),
                              Epilogue::kGelu, false);
    Buffer acc({S, K}, DType::kF32);
    acc.random(6);
    const Buffer before = acc;
    ctx.ops->linear_bwd_input(ctx, acc.tensor(), dy.tensor(), w.tensor(), {}, Epilogue::kNone,
                              true);
    for (int64_t s = 0; s < S; ++s) {
        for (int64_t k = 0; k < K; ++k) {
            double sum = 0, size = 0;
            for (int64_t n = 0; n < N; ++n) {
                const double term = dy.at(s * N + n) * w.at(n * K + k);
                sum += term;
                size += std::fabs(term);
            }
            const int64_t i = s * K + k;
            const double rounding = 4 * std::sqrt(static_cast<double>(N)) * kU32 * size;
            near(dx.at(i), sum, rounding + u_out * std::fabs(sum), "dx", i);
            const double f = gelu_slope(slope_at.at(i));
            near(dx_slope.at(i), sum * f,
                 2 * rounding + 32 * kU32 * std::fabs(sum) + u_out * std::fabs(sum * f), "dx gelu",
                 i);
            near(acc.at(i), before.at(i) + sum,
                 rounding + 2 * kU32 * (std::fabs(sum) + std::fabs(before.at(i))), "dx acc", i);
        }
    }
    Buffer dw({N, K}, DType::kF32), db({N}, DType::kF32);
    dw.random(7);
    db.random(8);
    const Buffer dw0 = dw, db0 = db;
    ctx.ops->linear_bwd_weight(ctx, dw.tensor(), db.tensor(), dy.tensor(), x.tensor());
    for (int64_t n = 0; n < N; ++n) {
        double bias = db0.at(n), bias_size = std::fabs(bias);
        for (int64_t s = 0; s < S; ++s) {
            bias += dy.at(s * N + n);
            bias_size += std::fabs(dy.at(s * N + n));
        }
        const double root = 4 * std::sqrt(static_cast<double>(S)) * kU32;
        near(db.at(n), bias, root * bias_size, "db", n);
        for (int64_t k = 0; k < K; ++k) {
            double sum = dw0.at(n * K + k), size = std::fabs(sum);
            for (int64_t s = 0; s < S; ++s) {
                const double term = dy.at(s * N + n) * x.at(s * K + k);
                sum += term;
                size += std::fabs(term);
            }
            near(dw.at(n * K + k), sum, root * size, "dw", n * K + k);
        }
    }
    for (const Buffer* t : {&y, &pre, &act, &dx, &dx_slope, &acc, &dw, &db}) CHECK(t->guarded());
}

}  // namespace

TEST_CASE("cpu/linear: equals float64 loops on every instruction set") {
    for (const Isa isa : sets()) {
        CAPTURE(std::string(name_of(isa)));
        for (const Sizes& z : kSizes) {
            CAPTURE(z.S);
            CAPTURE(z.N);
            CAPTURE(z.K);
            const int64_t width = std::max(z.N, z.K);
            Bench bench(isa, 2, {z.S, width, 1, 1, 2});
            for (const DType type : {DType::kF32, DType::kBF16}) {
                check_linear(bench.ctx, z, type, z.S % 2 == 0);
            }
        }
    }
}

TEST_CASE("cpu/linear: nothing to sum or no rows") {
    for (const Isa isa : sets()) {
        Bench bench(isa, 1, {4, 8, 1, 1, 1});
        Buffer x({0, 8}, DType::kF32), w({4, 8}, DType::kF32), y({0, 4}, DType::kF32);
        w.random(1);
        bench.ctx.ops->linear_fwd(bench.ctx, y.tensor(), {}, x.tensor(), w.tensor(), {},
                                  Epilogue::kNone);
        Buffer dw({4, 8}, DType::kF32);
        dw.random(2);
        const Buffer before = dw;
        bench.ctx.ops->linear_bwd_weight(bench.ctx, dw.tensor(), {}, y.tensor(), x.tensor());
        CHECK(dw.bytes == before.bytes);
    }
}

TEST_CASE("cpu/linear: pieces of a product have the bits of a narrower product") {
    // bf16 operands that are not packed at once, cut in columns and in rows, and sums of several
    // passes: each element is one chain over k, so its bits may not depend on its neighbours.
    const int64_t S = 64, N = 160, K = 200000;
    for (const Isa isa : sets()) {
        if (isa != Isa::kAmx) continue;
        Buffer x({S, K}, DType::kBF16), w({N, K}, DType::kBF16);
        Buffer some({4099}, DType::kBF16);  // repeated: so many random numbers take seconds
        some.random(1);
        for (Buffer* b : {&x, &w}) {
            for (size_t i = 0; i < b->bytes.size(); ++i) {
                b->bytes[i] = some.bytes[i % some.bytes.size()];
            }
        }
        Bench bench(isa, 2, {S, K, 1, 1, 2});
        const Ops& ops = *bench.ctx.ops;
        Buffer y({S, N}, DType::kF32);
        ops.linear_fwd(bench.ctx, y.tensor(), {}, x.tensor(), w.tensor(), {}, Epilogue::kNone);
        for (const auto& [m, n] : {std::pair<int64_t, int64_t>{0, 0}, {33, 95}, {63, 159}}) {
            Buffer one({1, 1}, DType::kF32);
            ops.linear_fwd(bench.ctx, one.tensor(), {}, x.tensor().rows(m, m + 1),
                           w.tensor().rows(n, n + 1), {}, Epilogue::kNone);
            CHECK(one.at(0) == y.at(m * N + n));
        }
    }
}

TEST_CASE("cpu/linear: the same bits on 1, 2 and 3 threads") {
    const int64_t S = 700, N = 200, K = 130;
    for (const Isa isa : sets()) {
        for (const DType type : {DType::kF32, DType::kBF16}) {
            Buffer x({S, K}, type), w({N, K}, type), dy({S, N}, type);
            x.random(1);
            w.random(2);
            dy.random(3);
            std::vector<std::vector<char>> runs;
            for (const int threads : {1, 2, 3}) {
                Bench bench(isa, threads, {S, std::max(N, K), 1, 1, threads});
                Buffer y({S, N}, type), pre({S, N}, type), dx({S, K}, type);
                Buffer dw({N, K}, DType::kF32), db({N}, DType::kF32);
                dw.random(4);
                db.random(5);
                const Ops& ops = *bench.ctx.ops;
                ops.linear_fwd(bench.ctx, y.tensor(), pre.tensor(), x.tensor(), w.tensor(), {},
                               Epilogue::kGelu);
                ops.linear_bwd_input(bench.ctx, dx.tensor(), dy.tensor(), w.tensor(), {},
                                     Epilogue::kNone, false);
                ops.linear_bwd_weight(bench.ctx, dw.tensor(), db.tensor(), dy.tensor(), x.tensor());
                std::vector<char> all;
                for (const Buffer* b : {&y, &pre, &dx, &dw, &db}) {
                    all.insert(all.end(), b->bytes.begin(), b->bytes.end());
                }
                runs.push_back(std::move(all));
            }
            CHECK(runs[0] == runs[1]);
            CHECK(runs[0] == runs[2]);
        }
    }
}

namespace {

struct Attention {
    std::vector<int64_t> q, k;  // rows of each segment
    int64_t NH, HD;
};

std::vector<int64_t> offsets(const std::vector<int64_t>& lengths) {
    std::vector<int64_t> begin = {0};
    for (const int64_t n : lengths) begin.push_back(begin.back() + n);
    return begin;
}

struct AttentionRun {
    std::vector<int64_t> qb, kb;
    Segments qseg, kseg;
    Buffer q, k, v, dout, o, lse, delta, dq, dk, dv;
    AttentionRun(const Attention& a, DType type)
        : qb(offsets(a.q)),
          kb(offsets(a.k)),
          q({qb.back(), a.NH * a.HD}, type),
          k({kb.back(), a.NH * a.HD}, type),
          v(k.shape, type),
          dout(q.shape, type),
          o(q.shape, type),
          lse({qb.back(), a.NH}, DType::kF32),
          delta(lse.shape, DType::kF32),
          dq(q.shape, type),
          dk(k.shape, type),
          dv(k.shape, type) {
        qseg = {static_cast<int64_t>(a.q.size()), qb.data(), nullptr};
        kseg = {static_cast<int64_t>(a.k.size()), kb.data(), nullptr};
        q.random(1, 1.5F);
        k.random(2, 1.5F);
        v.random(3);
        dout.random(4);
    }
    void run(const Ctx& ctx, int64_t NH, double scale) {
        const Ops& ops = *ctx.ops;
        ops.attention_fwd(ctx, o.tensor(), lse.tensor(), q.tensor(), k.tensor(), v.tensor(), qseg,
                          kseg, NH, scale);
        ops.attention_delta(ctx, delta.tensor(), dout.tensor(), o.tensor(), NH);
        ops.attention_bwd(ctx, dq.tensor(), dk.tensor(), dv.tensor(), dout.tensor(), q.tensor(),
                          k.tensor(), v.tensor(), lse.tensor(), delta.tensor(), qseg, kseg, NH,
                          scale);
    }
};

// Largest |difference| of a tensor from its float64 value, as a multiple of `unit`.
void check_within(const Buffer& got, const std::vector<double>& want, double bound,
                  const std::string& what) {
    double worst = 0;
    int64_t where = -1;
    for (int64_t i = 0; i < got.shape.numel(); ++i) {
        const double d = std::fabs(got.at(i) - want[static_cast<size_t>(i)]);
        if (!(d <= worst)) {
            worst = d;
            where = i;
        }
    }
    CAPTURE(what);
    CAPTURE(where);
    CHECK(worst <= bound);
}

void check_attention(const Ctx& ctx, const Attention& a, DType type) {
    AttentionRun r(a, type);
    const int64_t HD = a.HD, D = a.NH * HD;
    const double scale = 1 / std::sqrt(static_cast<double>(HD));
    r.run(ctx, a.NH, scale);
    const auto zeros = [](const Buffer& b) {
        return std::vector<double>(static_cast<size_t>(b.shape.numel()));
    };
    std::vector<double> o = zeros(r.o), lse = zeros(r.lse), delta = zeros(r.delta);
    std::vector<double> dq = zeros(r.dq), dk = zeros(r.dk), dv = zeros(r.dv);
    const auto u = [](int64_t i) { return static_cast<size_t>(i); };
    const auto dot = [&](const Buffer& x, int64_t i, const Buffer& y, int64_t j) {
        double sum = 0;
        for (int64_t d = 0; d < HD; ++d) sum += x.at(i + d) * y.at(j + d);
        return sum;
    };
    int64_t most = 1;
    double max_ds = 0, max_q = 0, max_k = 0;  // ds before the two parts of its difference cancel
    for (size_t s = 0; s < a.q.size(); ++s) {
        most = std::max({most, a.q[s], a.k[s]});
        for (int64_t n = 0; n < a.NH; ++n) {
            for (int64_t i = r.qb[s]; i < r.qb[s + 1]; ++i) {
                const int64_t qi = i * D + n * HD, at = i * a.NH + n;
                std::vector<double> p;
                double top = -1e300, sum = 0;
                for (int64_t j = r.kb[s]; j < r.kb[s + 1]; ++j) {
                    p.push_back(scale * dot(r.q, qi, r.k, j * D + n * HD));
                    top = std::max(top, p.back());
                }
                for (const double x : p) sum += std::exp(x - top);
                lse[u(at)] = top + std::log(sum);
                // the backward is judged for the statistics it was given
                delta[u(at)] = dot(r.dout, qi, r.o, qi);
                for (int64_t j = r.kb[s]; j < r.kb[s + 1]; ++j) {
                    const int64_t kj = j * D + n * HD;
                    const double e = std::exp(p[u(j - r.kb[s])] - lse[u(at)]);
                    max_ds = std::max(max_ds, e * std::fabs(delta[u(at)]) * scale);
                    const double ds = e * (dot(r.dout, qi, r.v, kj) - delta[u(at)]) * scale;
                    for (int64_t d = 0; d < HD; ++d) {
                        o[u(qi + d)] += e * r.v.at(kj + d);
                        dv[u(kj + d)] += e * r.dout.at(qi + d);
                        dq[u(qi + d)] += ds * r.k.at(kj + d);
                        dk[u(kj + d)] += ds * r.q.at(qi + d);
                    }
                }
            }
        }
    }
    const auto largest = [](const std::vector<double>& x) {
        double m = 1e-6;
        for (const double e : x) m = std::max(m, std::fabs(e));
        return m;
    };
    double max_v = 0;
    for (int64_t i = 0; i < r.v.shape.numel(); ++i) {
        max_v = std::max(max_v, std::fabs(r.v.at(i)));
        max_k = std::max(max_k, std::fabs(r.k.at(i)));
    }
    for (int64_t i = 0; i < r.q.shape.numel(); ++i) max_q = std::max(max_q, std::fabs(r.q.at(i)));
    // The score's error (HD terms of size about |q||k|) is the relative error of p; sums of p then
    // round like sqrt(rows). bf16 adds the rounding of the result, and of p and ds where they are
    // matrix operands.
    const double f32 =
        (16 + 2 * std::sqrt(static_cast<double>(most)) + 2 * std::sqrt(static_cast<double>(HD))) *
        kU32;
    const double rel = type == DType::kBF16 ? 3 * kU16 : f32;
    check_within(r.lse, lse, 2 * f32 * largest(lse), "lse");
    check_within(r.delta, delta, 4 * f32 * (1 + largest(delta)), "delta");
    check_within(r.o, o, rel * max_v, "o");
    check_within(r.dv, dv, 2 * rel * largest(dv), "dv");
    check_within(r.dq, dq, 4 * rel * largest(dq) + f32 * max_ds * max_k, "dq");
    check_within(r.dk, dk, 4 * rel * largest(dk) + f32 * max_ds * max_q, "dk");
    for (const Buffer* t : {&r.o, &r.lse, &r.delta, &r.dq, &r.dk, &r.dv}) CHECK(t->guarded());
}

}  // namespace

TEST_CASE("cpu/attention: equals float64 loops on every instruction set") {
    const Attention cases[] = {
        {{1}, {1}, 1, 1},         {{5}, {3}, 2, 4},      {{33, 0, 7}, {33, 0, 7}, 2, 12},
        {{0, 40}, {9, 1}, 1, 17}, {{200}, {100}, 1, 64}, {{30, 210}, {210, 30}, 1, 40},
        {{50}, {97}, 1, 128},     {{20}, {35}, 2, 256},  {{64, 100}, {64, 100}, 3, 16}};
    for (const Isa isa : sets()) {
        CAPTURE(std::string(name_of(isa)));
        for (const Attention& a : cases) {
            CAPTURE(a.HD);
            CAPTURE(a.q[0]);
            CAPTURE(a.k[0]);
            Bench bench(isa, 2, {400, a.NH * a.HD, a.HD, a.NH, 2});
            check_attention(bench.ctx, a, DType::kF32);
            check_attention(bench.ctx, a, DType::kBF16);
        }
    }
}

TEST_CASE("cpu/attention: the same bits on 1 to 4 threads") {
    const Attention a = {{300, 20}, {250, 70}, 3, 24};
    for (const Isa isa : sets()) {
        for (const DType type : {DType::kF32, DType::kBF16}) {
            std::vector<std::vector<char>> runs;
            // 2 segments of 3 heads do not divide among 4 threads: there blocks of rows are the
            // pieces, and a backward in one pass becomes one in two
            for (const int threads : {1, 2, 3, 4}) {
                Bench bench(isa, threads, {320, a.NH * a.HD, a.HD, a.NH, threads});
                AttentionRun r(a, type);
                r.run(bench.ctx, a.NH, 0.2);
                std::vector<char> all;
                for (const Buffer* b : {&r.o, &r.lse, &r.delta, &r.dq, &r.dk, &r.dv}) {
                    all.insert(all.end(), b->bytes.begin(), b->bytes.end());
                }
                runs.push_back(std::move(all));
            }
            CHECK(runs[0] == runs[1]);
            CHECK(runs[0] == runs[2]);
            CHECK(runs[0] == runs[3]);
        }
    }
}

TEST_CASE("cpu/attention: scores of any size") {
    // Rows whose scores reach several hundred: the maximum is taken off before the exponential.
    for (const Isa isa : sets()) {
        for (const DType type : {DType::kF32, DType::kBF16}) {
            Bench bench(isa, 1, {200, 16, 16, 1, 1});
            AttentionRun r({{130}, {130}, 1, 16}, type);
            r.run(bench.ctx, 1, 40.0);
            for (const Buffer* b : {&r.o, &r.lse, &r.dq, &r.dk, &r.dv}) {
                for (int64_t i = 0; i < b->shape.numel(); ++i) CHECK(std::isfinite(b->at(i)));
            }
        }
    }
}

}  // namespace vt
