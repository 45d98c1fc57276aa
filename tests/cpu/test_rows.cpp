// SPDX-License-Identifier: MIT
// The row ops of the CPU backend: the same bits on every instruction set and thread count, nothing
// written past a tensor, noise equal to core/rng.h's. (What they compute is judged against the
// float64 definition by the op case table.)
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "cpu/cpu.h"
#include "cpu/isa.h"

using namespace vt;

namespace {

// A tensor with its memory, offset from a cache line so that kernels cannot rely on alignment, and
// a guard band at both sides.
class Box {
  public:
    static constexpr size_t kGuard = 192;
    Box(Shape shape, DType dtype, uint64_t id, double centre = 0, double spread = 1)
        : bytes_(static_cast<size_t>(shape.numel() * size_of(dtype))),
          memory_(bytes_ + 2 * kGuard + 8, 0x5a) {
        tensor_ = Tensor(memory_.data() + kGuard + 8, shape, dtype);
        for (int64_t i = 0; i < shape.numel(); ++i) {
            const uint32_t word = random_bits(11, Purpose::kTest, id, static_cast<uint64_t>(i));
            // uniform with this mean and deviation
            const double x = centre + spread * 3.46 * (static_cast<double>(word) * 0x1p-32 - 0.5);
            if (dtype == DType::kF32) tensor_.as<float>()[i] = static_cast<float>(x);
            if (dtype == DType::kF64) tensor_.as<double>()[i] = x;
            if (dtype == DType::kBF16) tensor_.as<bf16>()[i] = to_bf16(static_cast<float>(x));
            if (dtype == DType::kI64) tensor_.as<int64_t>()[i] = 7 + i * 1000003;
            if (dtype == DType::kI32) tensor_.as<int32_t>()[i] = static_cast<int32_t>(word % 4);
        }
    }
    operator Tensor() const { return tensor_; }   // NOLINT(google-explicit-constructor)
    operator CTensor() const { return tensor_; }  // NOLINT(google-explicit-constructor)
    [[nodiscard]] const Tensor& tensor() const { return tensor_; }
    [[nodiscard]] bool guards_whole() const {
        const char* end = static_cast<const char*>(tensor_.data) + bytes_;
        for (const char* p = memory_.data(); p < tensor_.data; ++p) {
            if (*p != 0x5a) return false;
        }
        for (const char* p = end; p < memory_.data() + memory_.size(); ++p) {
            if (*p != 0x5a) return false;
        }
        return true;
    }
    [[nodiscard]] std::string content() const {
        return {static_cast<const char*>(tensor_.data), bytes_};
    }

  private:
    size_t bytes_;
    std::vector<char> memory_;
    Tensor tensor_;
};

struct Sizes {
    int64_t S, D, HD;
    DType operand, residual;
};

// Runs every row op once and returns all they wrote.
struct Runner {
    const Ops& ops;
    Pool pool;
    std::vector<char> scratch;
    Ctx ctx;
    std::string bytes;

    Runner(Isa isa, int threads, const Sizes& z) : ops(cpu_ops_on(isa)), pool(threads) {
        ScratchNeed need;
        need.rows = z.S;
        need.width = z.D;
        need.head_dim = z.HD;
        need.heads = z.D / z.HD;
        need.threads = threads;
        scratch.assign(static_cast<size_t>(ops.scratch_bytes(need)), 0);
        ctx.ops = &ops;
        ctx.pool = &pool;
        ctx.scratch = Tensor(scratch.data(), {static_cast<int64_t>(scratch.size())}, DType::kU8);
    }
    void take(const char* op, std::initializer_list<const Box*> boxes) {
        for (const Box* b : boxes) {
            CAPTURE(op);
            CHECK(b->guards_whole());
            bytes += b->content();
        }
    }
};

// Segments of unequal length, one of them empty, two of them sharing a modulation row.
struct Cut {
    std::vector<int64_t> begin, row;
    explicit Cut(int64_t S) : begin{0, S / 5, S / 5, S / 2, S}, row{1, 0, 2, 1} {}
    [[nodiscard]] Segments get() const { return {4, begin.data(), row.data()}; }
};

void run_norms(Runner& r, const Sizes& z) {
    const Shape rows{z.S, z.D}, per_row{z.S}, wide{z.D};
    const Cut cut(z.S);
    const Box h(rows, z.residual, 1, 3, 2), mod({3, 6, z.D}, DType::kF32, 2);
    const Box dy(rows, z.operand, 3), w(wide, DType::kF32, 4), b(wide, DType::kF32, 5);
    {
        const Box y(rows, z.operand, 6), mean(per_row, DType::kF32, 7),
            rstd(per_row, DType::kF32, 8);
        r.ops.modnorm_fwd(r.ctx, y, mean, rstd, h, mod, {3, 4}, cut.get(), 1e-6);
        r.take("modnorm_fwd", {&y, &mean, &rstd});
        const Box dh(rows, DType::kF32, 9), dmod({3, 6, z.D}, DType::kF32, 10);
        r.ops.modnorm_bwd(r.ctx, dh, dmod, dy, h, mean, rstd, mod, {3, 4}, cut.get());
        r.take("modnorm_bwd", {&dh, &dmod});
        const Box y2(rows, z.operand, 11);
        r.ops.layernorm_fwd(r.ctx, y2, mean, rstd, h, w, b, 1e-6);
        r.take("layernorm_fwd", {&y2, &mean, &rstd});
        const Box dw(wide, DType::kF32, 12), db(wide, DType::kF32, 13);
        r.ops.layernorm_bwd(r.ctx, dh, dw, db, dy, h, mean, rstd, w);
        r.take("layernorm_bwd", {&dh, &dw, &db});
    }
    const int64_t nt = z.HD >= 6 ? 2 * ((z.HD / 2) - 2 * (z.HD / 6)) : z.HD, nh = (z.HD - nt) / 2;
    const Box cs_t({4, nt / 2, 2}, DType::kF32, 14), cs_h({4, nh / 2, 2}, DType::kF32, 15);
    const Box cs_w({4, nh / 2, 2}, DType::kF32, 16), pos({z.S, 3}, DType::kI32, 17);
    for (const Rope& rope : {Rope{}, Rope{cs_t, cs_h, cs_w, pos}}) {
        const Box x(rows, z.operand, 18), ssq(per_row, DType::kF32, 19), y(rows, z.operand, 20);
        r.ops.row_sumsq(r.ctx, ssq, x);
        r.ops.qknorm_rope_fwd(r.ctx, y, x, ssq, w, rope, z.HD, 2 * z.D, 1e-6);
        r.take("qknorm_rope_fwd", {&ssq, &y});
        const Box dot(per_row, DType::kF32, 21), dx(rows, z.operand, 22), dw(wide, DType::kF32, 23);
        r.ops.qknorm_rope_bwd_dot(r.ctx, dot, dy, x, w, rope, z.HD);
        r.ops.qknorm_rope_bwd(r.ctx, dx, dw, dy, x, ssq, dot, w, rope, z.HD, 2 * z.D, 1e-6);
        r.take("qknorm_rope_bwd", {&dot, &dx, &dw});
        // in place, as the headers allow
        r.ops.qknorm_rope_fwd(r.ctx, x, x, ssq, w, rope, z.HD, 2 * z.D, 1e-6);
        CHECK(x.content() == y.content());
    }
}

void run_pointwise(Runner& r, const Sizes& z) {
    const Shape rows{z.S, z.D};
    const Cut cut(z.S);
    const Box mod({3, 2, z.D}, DType::kF32, 30), o(rows, z.operand, 31), dh(rows, DType::kF32, 32);
    {
        const Box h(rows, z.residual, 33), dout(rows, z.operand, 34),
            dmod({3, 2, z.D}, DType::kF32, 35);
        r.ops.gate_residual_fwd(r.ctx, h, o, mod, 1, cut.get());
        r.ops.gate_residual_bwd(r.ctx, dout, dmod, dh, o, mod, 1, cut.get());
        r.take("gate_residual", {&h, &dout, &dmod});
        r.ops.gate_residual_fwd(r.ctx, h, o, CTensor{}, 1, cut.get());
        r.ops.gate_residual_bwd(r.ctx, dout, Tensor{}, dh, CTensor{}, CTensor{}, 1, cut.get());
        r.take("residual", {&h, &dout});
    }
    const Box x(rows, z.residual, 36, 0, 20), y(rows, z.operand, 37), acc(rows, DType::kF32, 38);
    r.ops.silu_fwd(r.ctx, y, x);
    r.ops.silu_bwd(r.ctx, acc, o, x);
    r.take("silu", {&y, &acc});
    r.ops.cast(r.ctx, y, x);
    r.ops.add(r.ctx, acc, o);
    r.take("cast, add", {&y, &acc});
    r.ops.fill(r.ctx, y, 0.3);
    r.take("fill", {&y});
    for (const Shape& shape : {Shape{2, 3, z.D}, Shape{2, z.D}}) {
        const Box p(shape, DType::kF32, 40), dp(shape, DType::kF32, 41);
        const Box table({3, z.D}, DType::kF32, 42), dtable({3, z.D}, DType::kF32, 43);
        const Box out({2, 3, z.D}, DType::kF32, 44), dout({2, 3, z.D}, DType::kF32, 45);
        r.ops.modulation_fwd(r.ctx, out, table, p);
        r.ops.modulation_bwd(r.ctx, dtable, dp, dout);
        r.take("modulation", {&out, &dtable, &dp});
    }
}

void run_rest(Runner& r, const Sizes& z) {
    const Shape latent{3, 2, 2, z.S, z.D};
    const Box x0(latent, z.operand, 50), mix({3, 4}, DType::kF32, 51),
        coef({3}, DType::kF32, 57, 0.5, 0.1), ids({3}, DType::kI64, 52);
    const Box xt(latent, DType::kF32, 53), target(latent, DType::kF32, 54),
        dv(latent, DType::kF32, 55);
    const Box sse({3}, DType::kF64, 56);
    r.ops.flow_noise(r.ctx, xt, target, x0, mix, ids, 77, Purpose::kTest);
    r.ops.flow_loss(r.ctx, dv, sse, xt, target, coef);
    r.take("flow", {&xt, &target, &dv, &sse});
    const Shape flat{z.S * z.D};
    const Box p(flat, DType::kF32, 60), m(flat, DType::kF32, 61), g(flat, DType::kF32, 62);
    const Box v(flat, DType::kF32, 63, 10, 1), low(flat, DType::kBF16, 64),
        e(flat, DType::kF32, 65);
    const Box now({kNumStepScalars}, DType::kF32, 66), sum({1}, DType::kF64, 67),
        decay({1}, DType::kF32, 68);
    float* scalars = now.tensor().as<float>();
    scalars[kStepLr] = 0.01F;
    scalars[kStepClip] = 0.7F;
    scalars[kStepSkip] = 0;
    scalars[kStepBias1] = 0.1F;
    scalars[kStepBias2] = 0.05F;
    r.ops.adamw(r.ctx, p, m, v, low, g, now, AdamW{});
    r.ops.ema_update(r.ctx, e, p, decay, now);
    r.ops.sumsq(r.ctx, sum, g);
    r.take("optimize", {&p, &m, &v, &low, &e, &sum});
    const std::string before =
        p.content() + m.content() + v.content() + low.content() + e.content();
    scalars[kStepSkip] = 1;
    r.ops.adamw(r.ctx, p, m, v, low, g, now, AdamW{});
    r.ops.ema_update(r.ctx, e, p, decay, now);
    CHECK(before == p.content() + m.content() + v.content() + low.content() + e.content());
}

std::vector<Isa> runnable() {
    std::vector<Isa> all;
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
        if (isa <= best_isa()) all.push_back(isa);
    }
    return all;
}

std::string run_all(Isa isa, int threads, const Sizes& z) {
    Runner r(isa, threads, z);
    run_norms(r, z);
    run_pointwise(r, z);
    run_rest(r, z);
    return r.bytes;
}

}  // namespace

TEST_CASE("cpu rows: same bits on every instruction set and thread count") {
    constexpr DType f = DType::kF32, b = DType::kBF16;
    // one row; one number; odd tails; heads of less than, exactly and more than a register
    for (const Sizes& z :
         {Sizes{1, 16, 16, f, f}, Sizes{5, 2, 2, b, f}, Sizes{70, 42, 6, f, b},
          Sizes{33, 130, 26, b, b}, Sizes{600, 64, 32, b, f}, Sizes{9, 1536, 128, f, f}}) {
        CAPTURE(z.S);
        CAPTURE(z.D);
        const std::string expected = run_all(Isa::kBaseline, 1, z);
        for (const Isa isa : runnable()) {
            CAPTURE(name_of(isa));
            CHECK(run_all(isa, 3, z) == expected);
        }
    }
}

TEST_CASE("cpu rows: noise is core/rng.h's, bit for bit") {
    // a length that is no multiple of 4, of 16 nor of 64, and long enough for several tasks
    const int64_t n = 3 * 7 * 11 * 83;
    const Shape shape{2, 3, 7, 11, 83};
    const Box x0(shape, DType::kF32, 1), mix({2, 4}, DType::kF32, 2);
    const Box ids({2}, DType::kI64, 3);
    ids.tensor().as<int64_t>()[1] = -5;  // the id's high word
    const uint64_t seed = 0x123456789abcdef0U;
    for (const Isa isa : runnable()) {
        CAPTURE(name_of(isa));
        Pool pool(2);
        Ctx ctx;
        ctx.pool = &pool;
        const Box xt(shape, DType::kF32, 4), target(shape, DType::kF32, 5);
        cpu_ops_on(isa).flow_noise(ctx, xt, target, x0, mix, ids, seed, Purpose::kNoise);
        int64_t wrong = 0;
        for (int64_t i = 0; i < 2 * n; ++i) {
            const float *k = mix.tensor().as<float>() + 4 * (i / n), x = x0.tensor().as<float>()[i];
            const auto id = static_cast<uint64_t>(ids.tensor().as<int64_t>()[i / n]);
            const float e = random_normal(seed, Purpose::kNoise, id, static_cast<uint64_t>(i % n));
            const float mixed = std::fmaf(k[1], e, k[0] * x);
            wrong += std::bit_cast<uint32_t>(mixed) !=
                     std::bit_cast<uint32_t>(xt.tensor().as<float>()[i]);
            wrong += std::bit_cast<uint32_t>(std::fmaf(k[3], e, k[2] * x)) !=
                     std::bit_cast<uint32_t>(target.tensor().as<float>()[i]);
        }
        CHECK(wrong == 0);
    }
}

TEST_CASE("cpu rows: silu is accurate over the whole range of float") {
    Pool pool(1);
    Ctx ctx;
    ctx.pool = &pool;
    const int64_t n = 40000;
    const Box x({n}, DType::kF32, 1), y({n}, DType::kF32, 2), dx({n}, DType::kF32, 3),
        dy({n}, DType::kF32, 4);
    for (int64_t i = 0; i < n; ++i) {
        x.tensor().as<float>()[i] =
            static_cast<float>(i - n / 2) * (120.0F / static_cast<float>(n / 2));
    }
    const float inf = INFINITY;
    x.tensor().as<float>()[0] = inf;
    x.tensor().as<float>()[1] = NAN;
    for (const Isa isa : runnable()) {
        const Ops& ops = cpu_ops_on(isa);
        ops.fill(ctx, dy, 1);
        ops.fill(ctx, dx, 0);
        ops.silu_fwd(ctx, y, x);
        ops.silu_bwd(ctx, dx, dy, x);
        CHECK(y.tensor().as<float>()[0] == inf);
        CHECK(std::isnan(y.tensor().as<float>()[1]));
        double worst = 0, worst_slope = 0;
        const double u = unit_roundoff(DType::kF32);
        for (int64_t i = 2; i < n; ++i) {
            const double v = double(x.tensor().as<float>()[i]);
            const double s = v < 0 ? std::exp(v) / (1 + std::exp(v)) : 1 / (1 + std::exp(-v));
            const double c = v < 0 ? 1 / (1 + std::exp(v)) : std::exp(-v) / (1 + std::exp(-v));
            // a sigmoid below the smallest normal number is a multiple of the smallest one, and
            // that error is multiplied by x
            const double least = std::ldexp(std::abs(v), -126);
            const double err = std::abs(double(y.tensor().as<float>()[i]) - v * s);
            worst = std::max(worst, err / std::max(std::abs(v * s), least));
            const double slope = s * (1 + v * c);
            const double slope_err = std::abs(double(dx.tensor().as<float>()[i]) - slope);
            // near its zero at -1.28 the slope is a difference of terms of this size
            worst_slope =
                std::max(worst_slope, slope_err / std::max(s * (1 + std::abs(v) * c), least));
        }
        // exp 2 ulp = 4u, sum, quotient, product u each
        CHECK(worst < 8 * u);
        CHECK(worst_slope < 12 * u);
    }
}

TEST_CASE("cpu: the instruction set can be lowered and a wrong one is refused") {
    CHECK(cpu_ops().instruction_path.rfind(name_of(chosen_isa()), 0) == 0);
    CHECK(std::string(cpu_ops_on(Isa::kBaseline).backend) == "cpu");
    ::setenv("VTRAIN_CPU_ISA", "baseline", 1);
    CHECK(chosen_isa() == Isa::kBaseline);
    CHECK(&cpu_ops() == &cpu_ops_on(Isa::kBaseline));
    ::setenv("VTRAIN_CPU_ISA", "sse9", 1);
    try {
        (void)chosen_isa();
        FAIL("accepted");
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kUser);
    }
    ::unsetenv("VTRAIN_CPU_ISA");
    const Box x({4}, DType::kF64, 1), y({4}, DType::kF64, 2);
    Pool pool(1);
    Ctx ctx;
    ctx.pool = &pool;
    try {
        cpu_ops().silu_fwd(ctx, y, x);
        FAIL("accepted");
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kBug);
        CHECK(e.message().find("f64") != std::string::npos);
    }
}
