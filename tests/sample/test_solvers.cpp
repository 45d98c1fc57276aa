// SPDX-License-Identifier: MIT
// The solvers against whole paths made by diffusers (scripts/make_solver_golden.py).
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include "core/check.h"
#include "sample/solver.h"
#include "tests/paths.h"

namespace vt {
namespace {

using Json = nlohmann::json;

std::vector<double> alpha_bar(bool zero_snr) {
    std::vector<double> a;
    double product = 1;
    for (int i = 0; i < 1000; ++i) {
        product *= 1 - (1e-4 + (0.02 - 1e-4) * i / 999);
        a.push_back(product);
    }
    if (!zero_snr) return a;
    const double first = std::sqrt(a.front()), last = std::sqrt(a.back());
    for (double& v : a) {
        const double s = (std::sqrt(v) - last) * first / (first - last);
        v = s * s;
    }
    return a;
}

std::unique_ptr<Solver> solver_of(const Json& c) {
    const SolverKind kind = solver_named(c["solver"].get<std::string>());
    CHECK(name_of(kind) == c["solver"]);
    const int64_t steps = c["steps"];
    if (for_flow(kind)) return make_flow_solver(kind, steps, c["shift"]);
    NoiseSchedule s;
    s.alpha_bar = alpha_bar(c["zero_snr"]);
    const std::string predicts = c["predicts"];
    s.predicts = predicts == "epsilon"        ? Predicts::kNoise
                 : predicts == "v_prediction" ? Predicts::kVelocity
                                              : Predicts::kData;
    s.spacing = c["spacing"] == "leading" ? Spacing::kLeading : Spacing::kTrailing;
    s.eta = c["eta"];
    return make_ddpm_solver(kind, steps, s);
}

TEST_SUITE("sample") {
    TEST_CASE("solvers: whole paths are diffusers'") {
        const Json golden =
            Json::parse(std::ifstream(test::source_dir() / "tests/golden/solvers.json"));
        const std::vector<double> x0 = golden["x"], c = golden["model"]["c"];
        const double p = golden["model"]["p"], q = golden["model"]["q"], r = golden["model"]["r"];
        const auto n = static_cast<int64_t>(x0.size());
        for (const Json& one : golden["cases"]) {
            CAPTURE(one["solver"].get<std::string>());
            CAPTURE(one["steps"].get<int64_t>());
            const auto solver = solver_of(one);
            const std::vector<double> taus = one["taus"];
            REQUIRE(solver->steps() == static_cast<int64_t>(taus.size()));
            std::vector<float> x(x0.begin(), x0.end()), out(x.size()), noise(x.size());
            std::vector<float> history(static_cast<size_t>(solver->history() * n), NAN);
            double largest = 0;
            for (const double v : x0) largest = std::max(largest, std::fabs(v));
            for (int64_t k = 0; k < solver->steps(); ++k) {
                CAPTURE(k);
                // sigma and the product with 1000, each rounded to f32: 2 u
                const double tau = taus[static_cast<size_t>(k)];
                REQUIRE(std::fabs(solver->tau(k) - tau) <= 2 * 0x1p-24 * tau);
                if (one.contains("sigmas")) {
                    const double sigma = one["sigmas"][static_cast<size_t>(k)];
                    // one rounding to f32 of numbers up to 1, computed in another order
                    REQUIRE(std::fabs(solver->sigma(k) - sigma) <= 2 * 0x1p-24);
                }
                const double t = tau / 1000;
                for (size_t j = 0; j < x.size(); ++j) {
                    out[j] = static_cast<float>((p - q * t) * x[j] + r * t * c[j]);
                    noise[j] =
                        static_cast<float>((7 * k + 3 * static_cast<int64_t>(j)) % 11 - 5) / 4;
                }
                solver->step(k, x.data(), out.data(), n, history.data(),
                             solver->noisy(k) ? noise.data() : nullptr);
                const std::vector<double> want = one["path"][static_cast<size_t>(k) + 1];
                for (size_t j = 0; j < x.size(); ++j) {
                    largest = std::max(largest, std::fabs(want[j]));
                    // The state and the output are rounded to f32 once a step (u of the largest
                    // number met so far each), what UniPC keeps likewise; steps past the first
                    // carry these on, by factors of at most about 4 in all for these schedules.
                    const double bound = 4.0 * static_cast<double>(k + 1) * 0x1p-24 * largest;
                    REQUIRE(std::fabs(x[j] - want[j]) <= bound);
                }
            }
            CHECK(solver->sigma(solver->steps()) == 0);
        }
    }

    TEST_CASE("solvers: what cannot be is the user's error") {
        CHECK_THROWS_AS((void)solver_named("heun"), Error);
        CHECK_THROWS_AS((void)make_flow_solver(SolverKind::kDdim, 5, 1), Error);
        CHECK_THROWS_AS((void)make_flow_solver(SolverKind::kUniPc, 0, 1), Error);
        CHECK_THROWS_AS((void)make_flow_solver(SolverKind::kUniPc, 5, -1), Error);
        NoiseSchedule s;
        s.alpha_bar = alpha_bar(true);
        CHECK_THROWS_AS((void)make_ddpm_solver(SolverKind::kEuler, 5, s), Error);
        CHECK_THROWS_AS((void)make_ddpm_solver(SolverKind::kDdim, 1001, s), Error);
        CHECK_THROWS_AS((void)make_ddpm_solver(SolverKind::kDdim, 0, s), Error);
        (void)make_ddpm_solver(SolverKind::kDdim, 5, s);
        s.spacing = Spacing::kTrailing;
        CHECK_THROWS_AS((void)make_ddpm_solver(SolverKind::kDdim, 5, s), Error);
        s.predicts = Predicts::kVelocity;
        s.eta = 1.5;
        CHECK_THROWS_AS((void)make_ddpm_solver(SolverKind::kDdim, 5, s), Error);
    }
}

}  // namespace
}  // namespace vt
