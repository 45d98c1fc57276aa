// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
#include "data/safetensors.h"
#include "sample/guidance.h"
#include "sample/sampler.h"
#include "sample/solver.h"
#include "sample/trajectory.h"
#include "tests/paths.h"

namespace vt {
namespace {

// Diffusers 0.42.1, FlowMatchEulerDiscreteScheduler(shift=S).set_timesteps(N).sigmas.
struct Golden {
    int64_t steps;
    double shift;
    std::vector<double> sigmas;
};

void check_sigmas(const std::vector<float>& got, const std::vector<double>& want) {
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) {
        CAPTURE(i);
        // one rounding to f32 of numbers up to 1, computed in another order: 2 u
        CHECK(std::fabs(double{got[i]} - want[i]) <= 2 * 0x1p-24);
    }
}

// A model whose flow is known: all mass at one point c (the text's first number), so that
// v = (x - c) / sigma, and Euler steps of any number end at c; guided, at u + w (c - u).
class PointModel : public Model {
  public:
    [[nodiscard]] const ParamTable& params() const override { return table_; }
    [[nodiscard]] int64_t num_blocks() const override { return 1; }
    [[nodiscard]] const Precision& precision() const override { return precision_; }
    void check(const BatchShape& shape) const override {
        if (shape.latent.W % 2 != 0) raise(Fault::kUser, "width must be even");
    }
    [[nodiscard]] int64_t tokens(const LatentShape& shape) const override { return shape.numel(); }
    [[nodiscard]] double forward_flop(const BatchShape& /*one*/) const override { return 0; }
    [[nodiscard]] ScratchNeed scratch_need(const BatchShape& /*shape*/) const override {
        return {};
    }
    [[nodiscard]] std::unique_ptr<Activations> declare(Arena& acts, Arena& /*work*/,
                                                       const BatchShape& shape,
                                                       const Chunk& /*chunk*/,
                                                       Recompute /*recompute*/,
                                                       bool train) override {
        CHECK_FALSE(train);
        (void)acts.alloc("fake", {shape.n, 16}, DType::kF32);
        return std::make_unique<Activations>();
    }
    void forward(const Ctx& /*ctx*/, const Weights& /*w*/, Activations& /*a*/, const BatchInput& in,
                 Tensor v) override {
        ++forwards;
        const int64_t B = in.x.shape[0], n = in.x.numel() / B, text = in.text.numel() / B;
        for (int64_t b = 0; b < B; ++b) {
            const float c = static_cast<const float*>(in.text.data)[b * text];
            const float sigma = static_cast<const float*>(in.tau.data)[b] / 1000.0F;
            if (first_x.empty()) {
                first_x.assign(static_cast<const float*>(in.x.data),
                               static_cast<const float*>(in.x.data) + n);
            }
            for (int64_t i = b * n; i < (b + 1) * n; ++i) {
                static_cast<float*>(v.data)[i] =
                    (static_cast<const float*>(in.x.data)[i] - c) / sigma;
            }
        }
    }
    void backward(const Ctx& /*ctx*/, const Weights& /*w*/, const Grads& /*grads*/,
                  Activations& /*a*/, const BatchInput& /*in*/, CTensor /*dv*/,
                  const InputGrads& /*input_grads*/) override {
        FAIL("a sampler runs no backward");
    }
    int64_t forwards = 0;
    std::vector<float> first_x;

  private:
    ParamTable table_;
    Precision precision_;
};

TEST_SUITE("sample") {
    TEST_CASE("euler: the default schedule is diffusers' to the last bits") {
        const Golden table[] = {
            {5,
             3.0,
             {1, 0.9003590941429138, 0.7511211037635803, 0.5029850602149963, 0.008928571827709675,
              0}},
            {5,
             5.0,
             {1, 0.9378885626792908, 0.8347120881080627, 0.6296342015266418, 0.0244140662252903,
              0}},
            {4, 1.0, {1, 0.6669999957084656, 0.33399999141693115, 0.0010000000474974513, 0}},
            {7,
             0.5,
             {1, 0.7144082188606262, 0.5001876354217529, 0.3335556983947754, 0.20024016499519348,
              0.0911572054028511, 0.0002501876442693174, 0}},
            {1, 3.0, {1, 0}},
        };
        for (const Golden& g : table) {
            CAPTURE(g.steps);
            CAPTURE(g.shift);
            check_sigmas(flow_euler_sigmas(g.steps, g.shift), g.sigmas);
        }
    }

    TEST_CASE("euler: given sigmas are shifted once") {
        check_sigmas(
            flow_euler_sigmas_explicit(even_sigmas(5), 3),
            {1, 0.9230769872665405, 0.8181818127632141, 0.6666666865348816, 0.4285714626312256, 0});
        check_sigmas(
            flow_euler_sigmas_explicit(even_sigmas(5), 7),
            {1, 0.9655172228813171, 0.9130434393882751, 0.8235293626785278, 0.6363636255264282, 0});
        // a dynamic shift by mu is the static shift by e^mu; mu of 4096 image tokens
        const double mu = 0.5 + 0.65 * (4096 - 256) / 3840;
        check_sigmas(
            flow_euler_sigmas_explicit(even_sigmas(5), std::exp(mu)),
            {1, 0.9266473650932312, 0.8257016539573669, 0.677986741065979, 0.44119974970817566, 0});
    }

    TEST_CASE("euler: what cannot be a schedule is the user's error") {
        CHECK_THROWS_AS((void)flow_euler_sigmas(0, 1), Error);
        CHECK_THROWS_AS((void)flow_euler_sigmas(5, 0), Error);
        CHECK_THROWS_AS((void)flow_euler_sigmas(5, std::nan("")), Error);
        CHECK_THROWS_AS((void)flow_euler_sigmas_explicit({1.5}, 1), Error);
        CHECK_THROWS_AS((void)flow_euler_sigmas_explicit({}, 1), Error);
    }

    TEST_CASE("sampler: ends at the point the guided flow leads to, from the request's own noise") {
        const LatentShape shape{.C = 3, .T = 2, .H = 4, .W = 2};
        constexpr int64_t kSt = 2, kDim = 3;
        for (const double w : {0.0, 1.0, 4.0}) {
            CAPTURE(w);
            PointModel model;
            const SampleOptions options{.seed = 9, .guidance = fmt::format("{}", w), .batch = 1};
            const std::shared_ptr<const Solver> solver = make_flow_solver(SolverKind::kEuler, 6, 3);
            Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
            { const Sampler measure(model, acts, work, shape, kSt, kDim, solver, options); }
            acts.reserve();
            work.reserve();
            Sampler sampler(model, acts, work, shape, kSt, kDim, solver, options);
            const std::vector<float> empty(kSt * kDim, -0.5F);
            std::vector<float> text(kSt * kDim, 0.25F);
            const Ctx ctx;
            const Weights weights;
            int64_t steps = 0;
            const std::vector<SampleRequest> one = {{.index = 5, .text = text.data()}};
            const std::vector<SampleRequest> other = {{.index = 6, .text = text.data()}};
            const auto z = sampler.run(ctx, weights, one, empty.data(), [&](const PathPoint& p) {
                CHECK(p.step == ++steps);
                CHECK(p.guidance == static_cast<float>(w));
                CHECK(p.count == 1);
                CHECK(p.sigma > p.next_sigma);
                return true;
            });
            CHECK(steps == 6);
            CHECK(model.forwards == 6);
            const double end = w > 1 ? -0.5 + w * 0.75 : 0.25;
            REQUIRE(z.size() == 1);
            REQUIRE(static_cast<int64_t>(z[0].size()) == shape.numel());
            for (const float v : z[0]) {
                // the last step removes all that is left; |x| < 8, four roundings, scaled by w
                CHECK(std::fabs(double{v} - end) < 8 * 8 * 4 * 0x1p-24);
            }
            for (int64_t i = 0; i < shape.numel(); ++i) {
                REQUIRE(model.first_x[static_cast<size_t>(i)] ==
                        random_normal(9, Purpose::kSample, 5, static_cast<uint64_t>(i)));
            }
            // the same request again, after another one: the same bits
            (void)sampler.run(ctx, weights, other, empty.data());
            CHECK(sampler.run(ctx, weights, one, empty.data()) == z);
            // told to stop
            CHECK(sampler
                      .run(ctx, weights, one, empty.data(),
                           [](const PathPoint& p) { return p.step < 3; })
                      .empty());
            text[0] = std::nanf("");
            CHECK_THROWS_AS((void)sampler.run(ctx, weights, one, empty.data()), Error);
        }
        PointModel model;
        Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
        CHECK_THROWS_AS(Sampler(model, acts, work, {.C = 1, .T = 1, .H = 1, .W = 3}, 1, 1,
                                make_flow_solver(SolverKind::kEuler, 3, 1), {}),
                        Error);
    }

    TEST_CASE("guidance: constant, from first to last, each step, an interval") {
        const auto solver = make_flow_solver(SolverKind::kEuler, 4, 1);  // taus 1000, 667, 334, 1
        using V = std::vector<float>;
        CHECK(guidance_weights("5", *solver) == V{5, 5, 5, 5});
        CHECK(guidance_weights("7:4", *solver) == V{7, 6, 5, 4});
        CHECK(guidance_weights("7,1,0,2.5", *solver) == V{7, 1, 0, 2.5});
        CHECK(guidance_weights("0.3-0.7:5", *solver) == V{1, 5, 5, 1});
        CHECK(guidance_weights("3:1", *make_flow_solver(SolverKind::kEuler, 1, 1)) == V{3});
        for (const char* bad : {"", "x", "5,", "1,2,3", "5:", ":5", "0.7-0.3:5", "0.1-1.5:5", "-1",
                                "nan", "2000", "0.1-0.2", "5 ", "1:2:3"}) {
            CAPTURE(bad);
            CHECK_THROWS_AS((void)guidance_weights(bad, *solver), Error);
        }
    }

    TEST_CASE("sampler: the path it tells of is the path it takes, in memory and in a file") {
        const LatentShape shape{.C = 2, .T = 1, .H = 3, .W = 2};
        const test::TempDir dir;
        PointModel model;
        const std::shared_ptr<const Solver> solver = make_flow_solver(SolverKind::kEuler, 5, 2);
        const SampleOptions options{.seed = 3, .guidance = "0.5-1:4", .batch = 2};
        Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
        { const Sampler measure(model, acts, work, shape, 1, 1, solver, options); }
        acts.reserve();
        work.reserve();
        Sampler sampler(model, acts, work, shape, 1, 1, solver, options);
        const float empty = -1, text[] = {0.5F, 1, 2};
        const std::vector<SampleRequest> requests = {{4, &text[0]}, {9, &text[1]}, {2, &text[2]}};
        const fs::path path = dir / "paths.safetensors";
        TrajectoryFile file(path, *solver, shape, requests);
        std::vector<int64_t> firsts;
        const auto latents = sampler.run({}, {}, requests, &empty, [&](const PathPoint& p) {
            if (p.step == 1) firsts.push_back(p.first);
            CHECK(p.count == (p.first == 0 ? 2 : 1));
            file.add(p);
            return true;
        });
        file.close(latents);
        CHECK(firsts == std::vector<int64_t>{0, 2});
        REQUIRE(latents.size() == 3);

        const SafetensorsReader in(path);
        const auto read = [&](const std::string& name) {
            const StoredTensor& t = in.at(name);
            std::vector<float> out(static_cast<size_t>(t.shape.numel()));
            in.read(t, Tensor(out.data(), t.shape, DType::kF32));
            return out;
        };
        const auto sigma = read("sigma"), tau = read("tau"), guidance = read("guidance");
        CHECK(guidance == guidance_weights("0.5-1:4", *solver));
        CHECK(std::count(guidance.begin(), guidance.end(), 4.0F) == 3);  // both kinds of forward
        const auto n = static_cast<size_t>(shape.numel());
        for (size_t s = 0; s < 3; ++s) {
            const std::string name = fmt::format("sample-{:06}", requests[s].index);
            const auto x = read(name + "/x"), v = read(name + "/v");
            REQUIRE(x.size() == 6 * n);
            REQUIRE(v.size() == 5 * n);
            for (size_t k = 0; k < 5; ++k) {
                CHECK(tau[k] == solver->tau(static_cast<int64_t>(k)));
                const float c = text[s], w = guidance[k], s0 = tau[k] / 1000.0F;
                for (size_t i = k * n; i < (k + 1) * n; ++i) {
                    // the guided flow of the point model, and Euler's step along it, bit for bit
                    const float vu = (x[i] - empty) / s0, vc = (x[i] - c) / s0;
                    CHECK(v[i] == (w > 1 ? vu + w * (vc - vu) : vc));
                    CHECK(x[i + n] == x[i] + (sigma[k + 1] - sigma[k]) * v[i]);
                }
            }
            CHECK(std::vector<float>(x.end() - static_cast<int64_t>(n), x.end()) == latents[s]);
        }
        { const TrajectoryFile dropped(dir / "dropped", *solver, shape, requests); }
        CHECK_FALSE(fs::exists(dir / "dropped"));
    }

    TEST_CASE("sampler: fresh noise of a solver is the request's own") {
        const LatentShape shape{.C = 1, .T = 1, .H = 3, .W = 2};
        NoiseSchedule schedule;
        for (int i = 0; i < 1000; ++i) schedule.alpha_bar.push_back(1 - (i + 1) / 1001.0);
        schedule.predicts = Predicts::kData;
        schedule.spacing = Spacing::kTrailing;  // the point model divides by its timestep
        const std::shared_ptr<const Solver> solver =
            make_ddpm_solver(SolverKind::kDdpm, 4, schedule);
        CHECK(solver->noisy(2));
        CHECK_FALSE(solver->noisy(3));
        PointModel model;
        std::vector<std::vector<float>> seen;
        const auto draw = [&](int64_t batch) {
            const SampleOptions options{.seed = 7, .guidance = "1", .batch = batch};
            Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
            { const Sampler measure(model, acts, work, shape, 1, 1, solver, options); }
            acts.reserve();
            work.reserve();
            Sampler sampler(model, acts, work, shape, 1, 1, solver, options);
            const float text = 0.25F;
            std::vector<std::vector<float>> points;
            (void)sampler.run({}, {}, {{3, &text}, {8, &text}, {1, &text}}, &text,
                              [&](const PathPoint& p) {
                                  for (int64_t b = 0; b < p.count; ++b) {
                                      const float* x = p.x + b * shape.numel();
                                      points.emplace_back(x, x + shape.numel());
                                  }
                                  return true;
                              });
            std::sort(points.begin(), points.end());
            return points;
        };
        const auto one = draw(1);
        CHECK(one.size() == 12);
        CHECK(draw(2) == one);
        CHECK(draw(3) == one);
        CHECK(std::adjacent_find(one.begin(), one.end()) == one.end());
    }
}

}  // namespace
}  // namespace vt
