// SPDX-License-Identifier: MIT
// Groups of parameters against PyTorch's, frozen parameters, moments that begin late.
#include <cmath>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include "core/pool.h"
#include "cpu/cpu.h"
#include "model/store.h"
#include "optim/groups.h"
#include "optim/state.h"
#include "tests/paths.h"
#include "tests/ref/ref.h"

namespace vt {
namespace {

using Json = nlohmann::json;

ParamTable four_rows() {
    ParamTable t;
    for (const char* name :
         {"blocks.0.attn.weight", "blocks.1.attn.weight", "blocks.1.attn.bias", "head.weight"}) {
        ParamRow row;
        row.name = name;
        row.shape = {6};
        row.matmul = row.decay = row.name.ends_with("weight");
        t.push_back(row);
    }
    return t;
}

double value(int64_t k, int64_t i) {
    return double((k * 37 + i * 101) % 211) / 211 - 0.5;
}

// The groups of the golden run; what overlaps is what precedence decides.
OptimOptions golden_options() {
    OptimOptions o;
    o.lr = 1e-2;
    o.adam_eps = 1e-6;
    o.weight_decay = 0.05;
    o.groups = {{.params = {"blocks.1.*"}, .lr_scale = 7, .weight_decay = 0.9},
                {.params = {"blocks.1.attn.w*"}, .lr = 2.5e-3, .weight_decay = 0.2},
                {.params = {"head.*"}, .lr_scale = 3},
                {.params = {"*.bias"}, .weight_decay = 0.3}};  // a bias does not decay
    return o;
}

std::string refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kUser);
        return e.message() + " / " + e.hint();
    }
    return "";
}

// A store and its optimizer in `stat`, filled with value(row + 1, i).
struct Rig {
    ParamStore store;
    OptimState state;
    Arena moments{"moments", MemCategory::kMoments}, ema{"ema", MemCategory::kEma};
    Pool pool{1};
    Ctx ctx;
    DType stat;

    Rig(const ParamTable& table, const OptimOptions& o, const Ops& ops, DType dtype)
        : store(table, {dtype, dtype, dtype}, true), state(store.table(), o, dtype), stat(dtype) {
        state.declare(moments, ema);
        moments.reserve();
        ema.reserve();
        store.reserve();
        state.declare(moments, ema);
        ctx.ops = &ops;
        ctx.pool = &pool;
        fill_rows(store.master(), [](int64_t k, int64_t i) { return value(k + 1, i); });
        state.init(ctx, store);
    }
    void fill_rows(const std::vector<Tensor>& rows,
                   const std::function<double(int64_t, int64_t)>& f) const {
        for (size_t k = 0; k < rows.size(); ++k) {
            if (rows[k].present()) fill_row(rows[k], int64_t(k), f);
        }
    }
    void fill_row(const Tensor& t, int64_t k,
                  const std::function<double(int64_t, int64_t)>& f) const {
        for (int64_t i = 0; i < t.numel(); ++i) {
            if (stat == DType::kF64) t.as<double>()[i] = f(k, i);
            if (stat == DType::kF32) t.as<float>()[i] = float(f(k, i));
        }
    }
    // Update t, from 1, with the golden run's gradients.
    void step(int t, const OptimOptions& o) {
        fill_rows(store.grads(), [&](int64_t k, int64_t i) {
            return value(10 * t + k + 1, i) * (k == 1 ? 0.1 : 1.0);
        });
        std::vector<double> wide;
        for (const int64_t began : state.starts()) {
            wide.insert(wide.end(), {o.lr, 1, 0, 1 - std::pow(o.adam_beta1, double(t - began)),
                                     1 - std::pow(o.adam_beta2, double(t - began)), 0, 0, 0});
        }
        std::vector<float> narrow(wide.begin(), wide.end());
        const Shape shape{std::ssize(state.starts()), kNumStepScalars};
        void* data = stat == DType::kF64 ? static_cast<void*>(wide.data()) : narrow.data();
        state.update(ctx, store, Tensor(data, shape, stat), {});
    }
    double weight(size_t k, int64_t i) const {
        const Tensor& t = store.master()[k];
        return stat == DType::kF64 ? t.as<double>()[i] : double(t.as<float>()[i]);
    }
};

TEST_SUITE("optim") {
    TEST_CASE("groups: PyTorch's AdamW with parameter groups, one of which joins later") {
        const Json want =
            Json::parse(std::ifstream(test::source_dir() / "tests/golden/optim.json"))["adamw"];
        REQUIRE(want.size() == 5);
        const OptimOptions o = golden_options();
        const struct {
            const Ops& ops;
            DType stat;
            double tol;
        } kinds[] = {
            // float64: the definition itself, five steps of at most lr each to some 20 u
            {test::ref_ops(), DType::kF64, 8 * 0x1p-53},
            {cpu_ops(), DType::kF32, 8 * 0x1p-24},
        };
        for (const auto& kind : kinds) {
            Rig r(four_rows(), o, kind.ops, kind.stat);
            for (int t = 1; t <= 5; ++t) {
                CAPTURE(t);
                if (t == 3) {  // what the head did so far is undone: it was not there
                    r.fill_row(r.store.master()[3], 3,
                               [](int64_t k, int64_t i) { return value(k + 1, i); });
                    r.state.start_moments(r.ctx, 3, 2);
                    CHECK(r.state.starts() == std::vector<int64_t>{0, 2});
                }
                r.step(t, o);
                for (size_t k = 0; k < 4; ++k) {
                    if (k == 3 && t < 3) continue;
                    for (int64_t i = 0; i < 6; ++i) {
                        CAPTURE(k);
                        const double expected = want[size_t(t) - 1][k][size_t(i)];
                        CHECK(std::abs(r.weight(k, i) - expected) < kind.tol);
                    }
                }
            }
        }
    }

    TEST_CASE("groups: the last that matches holds, whole") {
        const ParamTable table = four_rows();
        OptimOptions o = golden_options();
        CHECK(groups_of(table, o) == std::vector<int64_t>{-1, 1, 3, 2});
        const std::vector<AdamW> a = adamw_of(table, o);
        const std::vector<double> scale = {1, 0.25, 1, 3}, decay = {0.05, 0.2, 0, 0.05};
        for (size_t i = 0; i < 4; ++i) {
            CHECK(a[i].lr_scale == scale[i]);
            CHECK(a[i].weight_decay == decay[i]);
        }
        o.groups[3].decay_all = true;
        CHECK(adamw_of(table, o)[2].weight_decay == 0.3);
        std::swap(o.groups[0], o.groups[1]);
        CHECK(adamw_of(table, o)[1].lr_scale == 7);
    }

    TEST_CASE("groups: patterns that match nothing name the nearest parameter") {
        const ParamTable table = four_rows();
        OptimOptions o;
        o.groups = {{.params = {"*.1.atn.*"}}};
        CHECK(refusal([&] { (void)adamw_of(table, o); }) ==
              "no parameter is named like \"*.1.atn.*\" / the nearest is \"blocks.1.attn.weight\"");
        CHECK(refusal([&] { (void)with_frozen(table, {"haed*"}); }) ==
              "no parameter is named like \"haed*\" / the nearest is \"head.weight\"");
        CHECK(refusal([&] {
                  (void)with_frozen(table, {"*", "!x"});
              }).find("\"x\"") != std::string::npos);
        CHECK(refusal([&] { (void)with_frozen(table, {"*"}); }).find("no parameter is left") == 0);
    }

    TEST_CASE("freeze: no moments, no gradients but where a neighbour needs them") {
        const auto trained = [](const std::vector<std::string>& freeze) {
            std::string out;
            for (const ParamRow& row : with_frozen(four_rows(), freeze)) {
                out += row.trainable ? '1' : '0';
            }
            return out;
        };
        CHECK(trained({}) == "1111");
        CHECK(trained({"blocks.*"}) == "0001");
        CHECK(trained({"*", "!*.1.*"}) == "0110");
        CHECK(trained({"*", "!*.1.*", "*.bias"}) == "0100");

        const ParamTable some = with_frozen(four_rows(), {"*", "!*.bias"});
        const ParamStore store(some, {}, true);
        CHECK(!store.grads()[0].present());
        CHECK(store.grads()[1].present());  // the product that the bias needs writes it
        CHECK(store.grads()[2].present());
        CHECK(!store.grads()[3].present());
        const ParamStore none(with_frozen(four_rows(), {"blocks.1.*"}), {}, true);
        CHECK(!none.grads()[1].present());
        CHECK(none.grads()[2].present());  // what a row pass would write to
        CHECK(none.grads()[2].numel() == 6);

        OptimState state(some, {}, DType::kF32);
        Arena moments{"moments", MemCategory::kMoments}, ema{"ema", MemCategory::kEma};
        state.declare(moments, ema);
        CHECK(state.m()[2].present());
        CHECK(!state.m()[1].present());
        CHECK(!state.v()[1].present());
    }

    TEST_CASE("moments: where they began, as text and back") {
        const OptimOptions o = golden_options();
        Rig r(four_rows(), o, cpu_ops(), DType::kF32);
        CHECK(r.state.encode_starts().empty());
        r.state.start_moments(r.ctx, 1, 40);
        r.state.start_moments(r.ctx, 2, 40);
        r.state.start_moments(r.ctx, 3, 12);
        CHECK(r.state.encode_starts() == "0x1,40x2,12x1");
        CHECK(r.state.starts() == std::vector<int64_t>{0, 12, 40});
        Rig other(four_rows(), o, cpu_ops(), DType::kF32);
        other.state.decode_starts("0x1,40x2,12x1", "here");
        CHECK(other.state.encode_starts() == "0x1,40x2,12x1");
        other.state.decode_starts("", "here");
        CHECK(other.state.starts() == std::vector<int64_t>{0});
        for (const char* wrong : {"0x3", "0x5", "0x4,", "0x-4", "x4", "0", "0x4 ", "-1x4",
                                  "0x1,,0x3", "0x99999999999999999999"}) {
            CAPTURE(wrong);
            CHECK_THROWS_AS(other.state.decode_starts(wrong, "here"), Error);
        }
    }

    TEST_CASE("ema: weights adopt an average, frozen ones do not") {
        OptimOptions o;
        o.ema_decay = {0.5};
        Rig r(with_frozen(four_rows(), {"head.*"}), o, cpu_ops(), DType::kF32);
        for (const Tensor& t : r.state.ema(0)) {
            for (int i = 0; i < 6; ++i) t.as<float>()[i] += 1;
        }
        r.state.adopt_ema(r.ctx, r.store, 0);
        CHECK(r.weight(0, 0) == double(float(value(1, 0)) + 1.0F));
        CHECK(r.weight(3, 0) == double(float(value(4, 0))));
    }
}

}  // namespace
}  // namespace vt
