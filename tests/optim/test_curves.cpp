// SPDX-License-Identifier: MIT
// Learning rates and averages' decays over steps: other libraries' (scripts/make_optim_golden.py),
// what they have no form for, and what goes together.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include <doctest/doctest.h>

#include "config/toml.h"
#include "ops/ops.h"
#include "optim/options.h"
#include "tests/paths.h"
#include "tests/ref/ref.h"

namespace vt {
namespace {

using Json = nlohmann::json;

Json golden() {
    return Json::parse(std::ifstream(test::source_dir() / "tests/golden/optim.json"));
}

OptimOptions options(const std::vector<std::string>& sets) {
    OptimOptions o;
    std::vector<Setting> settings;
    for (const std::string& s : sets) settings.push_back(parse_set("optim." + s));
    (void)apply_settings(fields(o), settings);
    return o;
}

double at(const OptimOptions& o, int64_t step, int64_t iters = 100) {
    return learning_rate(o, {step, 0}, iters);
}

const std::vector<std::string> kStyles = {"constant", "linear",          "cosine",
                                          "wsd",      "cosine_restarts", "inverse_sqrt"};

// lr 1 after 20 steps of warm-up, down to 0.1
OptimOptions curve(const std::string& style) {
    OptimOptions o;
    o.lr = 1;
    o.min_lr = 0.1;
    o.lr_warmup_iters = 20;
    o.lr_decay_style = style;
    if (style == "wsd") o.lr_wsd_decay_iters = 40;
    return o;
}

TEST_SUITE("optim") {
    TEST_CASE("lr: the schedulers of torch, diffusers and transformers") {
        const Json file = golden();
        CHECK(file["lr"].size() == 13);
        for (const Json& one : file["lr"]) {
            CAPTURE(one["of"].get<std::string>());
            auto sets = one["settings"].get<std::vector<std::string>>();
            sets.emplace_back("lr=2e-3");
            const OptimOptions o = options(sets);
            const auto want = one["values"].get<std::vector<double>>();
            CHECK(conflicts(o, 40).empty());
            // theirs are products of a peak and a factor, or (torch) sums over the steps before
            const double tol = 2e-3 * 64 * 0x1p-53;
            for (size_t i = 0; i < want.size(); ++i) {
                CAPTURE(i);
                CHECK(std::abs(at(o, int64_t(i) + 1, 40) - want[i]) <= tol);
            }
        }
    }

    TEST_CASE("lr: the curves at their corners") {
        constexpr double u = 4 * 0x1p-53;
        for (const std::string& style : kStyles) {
            CAPTURE(style);
            OptimOptions o = curve(style);
            CHECK(std::abs(at(o, 1) - 0.05) < u);
            CHECK(at(o, 20) == 1);
            o.lr_warmup_init = 0.2;
            CHECK(std::abs(at(o, 10) - 0.6) < u);
            CHECK(at(o, 20) == 1);
            const bool ends = style != "constant" && style != "inverse_sqrt";
            if (ends) CHECK(std::abs(at(o, 100) - 0.1) < u);
            if (ends) CHECK(std::abs(at(o, 500) - 0.1) < u);
        }
        CHECK(at(curve("constant"), 100) == 1);
        CHECK(std::abs(at(curve("linear"), 60) - 0.55) < u);
        CHECK(at(curve("inverse_sqrt"), 80) == 0.5);
        CHECK(at(curve("inverse_sqrt"), 20 * 400) == 0.1);  // the least
        OptimOptions late = curve("linear");
        late.lr_decay_iters = 60;
        CHECK(std::abs(at(late, 40) - 0.55) < u);
        CHECK(std::abs(at(late, 61) - 0.1) < u);
    }

    TEST_CASE("lr: wsd stays, then falls in four ways") {
        OptimOptions o = curve("wsd");
        const std::pair<const char*, double> quarter[] = {
            {"linear", 0.75},
            {"cosine", 0.5 * (1 + std::sqrt(0.5))},
            {"exponential", 2 * std::pow(0.5, 0.25) - 1},
            {"minus_sqrt", 0.5},
        };
        for (const auto& [style, factor] : quarter) {
            CAPTURE(style);
            o.lr_wsd_decay_style = style;
            for (const int64_t step : {20, 21, 40, 60}) CHECK(at(o, step) == 1);
            CHECK(at(o, 61) < 1);
            CHECK(std::abs(at(o, 70) - (0.1 + 0.9 * factor)) < 1e-15);
            CHECK(std::abs(at(o, 100) - 0.1) < 1e-15);
            CHECK(std::abs(at(o, 200) - 0.1) < 1e-15);
        }
    }

    TEST_CASE("lr: restarts that lengthen and sink") {
        OptimOptions o = curve("cosine_restarts");
        o.min_lr = 0;
        o.lr_cycles = 3;
        o.lr_cycle_length = 2;  // of 70 steps: 10, 20, 40
        o.lr_cycle_peak = 0.5;
        const std::pair<int64_t, double> marks[] = {{25, 0.5},   {30, 0.5}, {40, 0.25}, {50, 0.25},
                                                    {70, 0.125}, {90, 0.0}, {900, 0.0}};
        for (const auto& [step, value] : marks) CHECK(std::abs(at(o, step, 90) - value) < 1e-15);
        CHECK(at(o, 29, 90) < 0.03);
    }

    TEST_CASE("lr: in samples it is the curve of steps where batches are equal") {
        for (const std::string& style : kStyles) {
            CAPTURE(style);
            OptimOptions steps = curve(style);
            if (style != "inverse_sqrt") steps.lr_decay_iters = 100;
            OptimOptions samples = steps;
            constexpr int64_t kBatch = 48;
            samples.lr_warmup_samples = kBatch * std::exchange(samples.lr_warmup_iters, 0);
            samples.lr_decay_samples = kBatch * std::exchange(samples.lr_decay_iters, 0);
            samples.lr_wsd_decay_samples = kBatch * std::exchange(samples.lr_wsd_decay_iters, 0);
            CHECK(conflicts(steps, 100).empty());
            CHECK(conflicts(samples, 5).empty());
            for (int64_t s = 1; s <= 120; ++s) {
                const double a = learning_rate(steps, {s, 7}, 100);
                const double b = learning_rate(samples, {1, uint64_t(s * kBatch)}, 5);
                CHECK(std::abs(a - b) <= 2 * 0x1p-53);
            }
        }
    }

    TEST_CASE("optim: contradictions are refused by the key") {
        const auto keys = [](const std::vector<std::string>& sets) {
            std::set<std::string> out;
            for (const Conflict& c : conflicts(options(sets), 100)) {
                CHECK(c.rule.find(c.keys.front().substr(6)) != std::string::npos);
                CHECK(!c.hint.empty());
                out.insert(c.keys.front().substr(6));
            }
            return out;
        };
        using Keys = std::set<std::string>;
        CHECK(keys({}).empty());
        CHECK(keys({"lr_warmup_iters=100"}).empty());
        CHECK(keys({"lr_warmup_iters=101"}) == Keys{"lr_warmup_iters"});
        CHECK(keys({"lr_warmup_init=1e-5"}) == Keys{"lr_warmup_init"});
        CHECK(keys({"lr_decay_style=inverse_sqrt"}) == Keys{"lr_decay_style"});
        CHECK(keys({"lr_decay_style=inverse_sqrt", "lr_warmup_iters=5", "lr_decay_iters=50"}) ==
              Keys{"lr_decay_iters"});
        CHECK(keys({"lr_decay_style=wsd"}) == Keys{"lr_wsd_decay_iters"});
        CHECK(keys({"lr_decay_style=wsd", "lr_wsd_decay_iters=90", "lr_warmup_iters=11"}) ==
              Keys{"lr_wsd_decay_iters"});
        CHECK(keys({"lr_decay_style=wsd", "lr_wsd_decay_iters=90", "lr_warmup_iters=10"}).empty());
        CHECK(keys({"lr_wsd_decay_iters=5"}) == Keys{"lr_wsd_decay_iters"});
        CHECK(keys({"lr_wsd_decay_style=cosine"}) == Keys{"lr_wsd_decay_style"});
        CHECK(keys({"lr_cycles=2"}) == Keys{"lr_cycles"});
        CHECK(keys({"lr_cycle_length=2.0"}) == Keys{"lr_cycle_length"});
        CHECK(keys({"lr_cycle_peak=0.5", "lr_decay_style=cosine"}) == Keys{"lr_cycle_peak"});
        // samples and steps
        CHECK(keys({"lr_warmup_samples=500"}).empty());
        CHECK(keys({"lr_warmup_samples=5", "lr_decay_style=cosine"}) == Keys{"lr_decay_style"});
        CHECK(keys({"lr_warmup_iters=5", "lr_decay_samples=9"}) == Keys{"lr_warmup_iters"});
        CHECK(keys({"lr_warmup_samples=9", "lr_decay_samples=9"}) == Keys{"lr_decay_samples"});
        // averages
        CHECK(keys({"ema_decay=[0.9]", "ema=[{decay=0.9}]"}) == Keys{"ema"});
        CHECK(keys({"ema_decay=[0.9]", "ema=[{decay=0.9, warmup='power'}]"}).empty());
        for (const char* wrong :
             {"min_decay=0.95, decay=0.9, warmup='power'", "min_decay=0.1", "power=0.5",
              "inv_gamma=2.0, warmup='diffusers'", "switch_step=5", "switch_decay=0.5",
              "decay=0.99999999", "every=10, adopt_step=5",
              "min_decay=0.5, warmup='power', switch_step=5, switch_decay=0.4"}) {
            CAPTURE(wrong);
            CHECK(keys({fmt::format("ema=[{{{}}}]", wrong)}) == Keys{"ema"});
        }
        CHECK(keys({"ema=[{decay=0.9, adopt_step=5}, {decay=0.8, adopt_step=5}]"}) == Keys{"ema"});
        // groups
        CHECK(keys({"groups=[{params=['*'], lr=1e-3, lr_scale=2.0}]"}) == Keys{"groups"});
        CHECK(keys({"groups=[{params=['*'], lr=1e-3}]", "lr=0.0"}) == Keys{"groups"});
        CHECK(keys({"freeze=['!head.*']"}) == Keys{"freeze"});
    }

    TEST_CASE("ema: decays and whole averages of diffusers' EMAModel") {
        const Json file = golden();
        const auto steps = file["ema_steps"].get<std::vector<int64_t>>();
        CHECK(file["ema"].size() == 4);
        const auto value = [](int64_t k, int64_t i) {
            return double((k * 37 + i * 101) % 211) / 211 - 0.5;
        };
        for (const Json& one : file["ema"]) {
            CAPTURE(one["of"].get<std::string>());
            const OptimOptions o =
                options({fmt::format("ema=[{{{}}}]", one["table"].get<std::string>())});
            CHECK(conflicts(o, 100).empty());
            const EmaOptions e = all_emas(o).at(0);
            for (size_t i = 0; i < steps.size(); ++i) {
                CAPTURE(steps[i]);
                CHECK(std::abs(ema_decay_at(e, steps[i]) - one["decay"][i].get<double>()) < 1e-15);
            }
            double average = value(7, 0);
            std::vector<double> now(kNumStepScalars, 0);
            Ctx ctx;
            ctx.ops = &test::ref_ops();
            for (size_t n = 1; n <= one["along"].size(); ++n) {
                double p = value(7, int64_t(n)), d = ema_decay_at(e, int64_t(n));
                const auto one_f64 = [](double* x) { return Tensor(x, {1}, DType::kF64); };
                ema_update(ctx, one_f64(&average), one_f64(&p), one_f64(&d),
                           Tensor(now.data(), {kNumStepScalars}, DType::kF64));
                CHECK(std::abs(average - one["along"][n - 1].get<double>()) < 1e-15);
            }
        }
    }

    TEST_CASE("ema: constant decays, late starts, pauses, another decay from a step on") {
        // (1 + s) / (10 + s) after n - 1 updates, in published figures
        EmaOptions d;
        d.warmup = "diffusers";
        const std::pair<int64_t, double> known[] = {
            {1, 0}, {2, .181818}, {10, .526316}, {100, .917431}, {1000, .991080}};
        for (const auto& [n, want] : known) CHECK(std::abs(ema_decay_at(d, n) - want) < 5e-7);
        EmaOptions c;
        c.decay = 0.99;
        CHECK(ema_decay_at(c, 1) == 0.99);  // from the first step on
        c.update_after_step = 4;
        CHECK(ema_decay_at(c, 4) == 0);
        CHECK(ema_decay_at(c, 5) == 0.99);
        c.switch_step = 10;
        c.switch_decay = 0.5;
        CHECK(ema_decay_at(c, 9) == 0.99);
        CHECK(ema_decay_at(c, 10) == 0.5);
        c.every = 3;
        CHECK(ema_decay_at(c, 10) == 1);
        CHECK(ema_decay_at(c, 12) == 0.5);
        d.every = 3;  // the tenth update
        CHECK(ema_decay_at(d, 30) == 10.0 / 19);
        d.update_after_step = 7;  // updates at 3 and 6 were copies, so is that at 9
        CHECK(ema_decay_at(d, 9) == 0);
        CHECK(ema_decay_at(d, 12) == 2.0 / 11);
        d.switch_step = 3000;
        d.switch_decay = 0.25;
        CHECK(ema_decay_at(d, 3000) == 0.25);
    }

    TEST_CASE("ema: names tell averages apart") {
        const auto name = [](const char* table) {
            return ema_name(options({fmt::format("ema=[{{{}}}]", table)}).ema.at(0));
        };
        CHECK(name("decay=0.999") == "0.999");
        CHECK(name("decay=0.999, switch_step=5, switch_decay=0.5, adopt_step=9") == "0.999");
        CHECK(name("warmup='diffusers', every=2") == "0.9999 diffusers every 2");
        CHECK(name("warmup='power', inv_gamma=10.0, power=0.75, min_decay=0.2, "
                   "update_after_step=5") == "0.9999 power 10 0.75 min 0.2 after 5");
    }
}

}  // namespace
}  // namespace vt
