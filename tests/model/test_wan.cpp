// SPDX-License-Identifier: MIT
// What Wan promises beyond agreeing with the fixtures: its table, its gradient as a whole, and that
// no choice of memory or batching changes a result.
#include <cmath>
#include <map>
#include <set>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "meta/meta.h"
#include "model/wan_params.h"
#include "tests/model/fill.h"
#include "tests/model/wan_run.h"
#include "tests/ref/ref.h"

using namespace vt;
using namespace vt::test;

namespace {

const BatchShape kOdd{2, {2, 4, 3, 6}, 5};

WanConfig preset(const char* name) {
    WanConfig c = wan_preset(name).value();
    if (c.in_channels == 0) {
        c.in_channels = c.out_channels = 12;
        c.text_dim = 32;
    }
    return c;
}

}  // namespace

TEST_CASE("fill rule: the recorded first values") {
    CHECK(fill_unit(0, 0) == doctest::Approx(0.88331081).epsilon(1e-8));
    CHECK(fill_unit(0, 1) == doctest::Approx(0.56656158).epsilon(1e-8));
    CHECK(fill_unit(0, 2) == doctest::Approx(0.59118973).epsilon(1e-8));
}

TEST_CASE("wan: parameter counts of the released models") {
    const auto count = [](const char* name) {
        return count_elements(wan::param_table(preset(name)));
    };
    CHECK(count("wan2.1-t2v-1.3b") == 1'418'996'800);
    CHECK(count("wan2.1-t2v-14b") == 14'288'491'584);
    CHECK(count("wan2.2-ti2v-5b") == 4'999'787'712);
    for (const std::string& name : wan_preset_names()) {
        const WanConfig c = preset(name.c_str());
        const ParamTable table = wan::param_table(c);
        CHECK(static_cast<int64_t>(table.size()) == 15 + 27 * c.num_layers);
        std::set<std::string> names;
        for (const ParamRow& row : table) names.insert(row.name);
        CHECK(names.size() == table.size());
    }
    CHECK(!wan_preset("wan").has_value());
}

TEST_CASE("wan: rows hold what their index says") {
    const WanConfig c = odd_config();
    const ParamTable t = wan::param_table(c);
    const auto at = [&](int64_t i) { return t[static_cast<size_t>(i)]; };
    using namespace wan;
    CHECK(at(kHeadTable).name == "scale_shift_table");
    CHECK(at(kPatchW).name == "patch_embedding.weight");
    CHECK(at(kTime1W).name == "condition_embedder.time_embedder.linear_1.weight");
    CHECK(at(kTime2W).name == "condition_embedder.time_embedder.linear_2.weight");
    CHECK(at(kTimeProjW).name == "condition_embedder.time_proj.weight");
    CHECK(at(kText1W).name == "condition_embedder.text_embedder.linear_1.weight");
    CHECK(at(kText2W).name == "condition_embedder.text_embedder.linear_2.weight");
    const int64_t b = block_row(1);
    CHECK(at(b + kTable).name == "blocks.1.scale_shift_table");
    CHECK(at(b + kQ1W).name == "blocks.1.attn1.to_q.weight");
    CHECK(at(b + kK1W).name == "blocks.1.attn1.to_k.weight");
    CHECK(at(b + kV1W).name == "blocks.1.attn1.to_v.weight");
    CHECK(at(b + kO1W).name == "blocks.1.attn1.to_out.0.weight");
    CHECK(at(b + kNormQ1).name == "blocks.1.attn1.norm_q.weight");
    CHECK(at(b + kNormK1).name == "blocks.1.attn1.norm_k.weight");
    CHECK(at(b + kQ2W).name == "blocks.1.attn2.to_q.weight");
    CHECK(at(b + kK2W).name == "blocks.1.attn2.to_k.weight");
    CHECK(at(b + kV2W).name == "blocks.1.attn2.to_v.weight");
    CHECK(at(b + kO2W).name == "blocks.1.attn2.to_out.0.weight");
    CHECK(at(b + kNormQ2).name == "blocks.1.attn2.norm_q.weight");
    CHECK(at(b + kNormK2).name == "blocks.1.attn2.norm_k.weight");
    CHECK(at(b + kNorm2W).name == "blocks.1.norm2.weight");
    CHECK(at(b + kUpW).name == "blocks.1.ffn.net.0.proj.weight");
    CHECK(at(b + kDownW).name == "blocks.1.ffn.net.2.weight");
    CHECK(at(proj_out_row(c)).name == "proj_out.weight");
    CHECK(at(proj_out_row(c) + 1).name == "proj_out.bias");

    // the exported keep-in-f32 list, and what AdamW shrinks
    for (const ParamRow& row : t) {
        CAPTURE(row.name);
        const bool keep = row.name.find("time_embedder") != std::string::npos ||
                          row.name.find("scale_shift_table") != std::string::npos ||
                          row.name.find("norm2") != std::string::npos;
        CHECK(row.keep_f32 == keep);
        CHECK(row.decay == (row.shape.rank >= 2 && row.name.ends_with(".weight")));
        CHECK((!row.matmul || row.decay));
        const bool time = row.name.find(".time_") != std::string::npos;
        CHECK(row.matmul == (row.decay && !time));
    }
}

TEST_CASE("wan: initial distributions") {
    const WanConfig c = preset("tiny");
    const ParamTable t = wan::param_table(c);
    const double D = double(c.D());
    const auto row = [&](const char* name) { return t[static_cast<size_t>(find_row(t, name))]; };
    const auto is = [&](const char* name, Init init, double scale) {
        CAPTURE(name);
        CHECK(row(name).init == init);
        CHECK(row(name).init_scale == doctest::Approx(scale).epsilon(1e-12));
    };
    is("blocks.0.attn1.to_q.weight", Init::kUniform, std::sqrt(6 / (2 * D)));
    is("blocks.0.attn1.to_q.bias", Init::kZeros, 0);
    is("blocks.3.ffn.net.0.proj.weight", Init::kUniform, std::sqrt(6 / (D + 4 * D)));
    is("condition_embedder.time_proj.weight", Init::kUniform, std::sqrt(6 / (7 * D)));
    is("patch_embedding.weight", Init::kUniform, std::sqrt(6 / (D + 48)));
    is("patch_embedding.bias", Init::kUniform, 1 / std::sqrt(48.0));
    is("condition_embedder.text_embedder.linear_1.weight", Init::kNormal, 0.02);
    is("condition_embedder.text_embedder.linear_2.weight", Init::kNormal, 0.02);
    is("condition_embedder.time_embedder.linear_1.weight", Init::kNormal, 0.02);
    is("condition_embedder.time_embedder.linear_2.weight", Init::kNormal, 0.02);
    is("condition_embedder.time_embedder.linear_2.bias", Init::kZeros, 0);
    is("scale_shift_table", Init::kNormal, 1 / std::sqrt(D));
    is("blocks.2.scale_shift_table", Init::kNormal, 1 / std::sqrt(D));
    is("blocks.2.attn2.norm_k.weight", Init::kOnes, 0);
    is("blocks.2.norm2.weight", Init::kOnes, 0);
    is("blocks.2.norm2.bias", Init::kZeros, 0);
    is("proj_out.weight", Init::kZeros, 0);
    is("proj_out.bias", Init::kZeros, 0);
}

TEST_CASE("wan: the rotation's channels per axis") {
    const auto split = [](int64_t d) {
        const wan::RopeSplit s = wan::rope_split(d);
        return std::array<int64_t, 3>{s.t, s.h, s.w};
    };
    CHECK(split(128) == std::array<int64_t, 3>{44, 42, 42});
    CHECK(split(64) == std::array<int64_t, 3>{24, 20, 20});
    CHECK(split(16) == std::array<int64_t, 3>{8, 4, 4});
    CHECK(split(12) == std::array<int64_t, 3>{4, 4, 4});
}

TEST_CASE("wan: forward flop of the released models") {
    const auto tera = [](const char* name, const BatchShape& s) {
        return make_wan(preset(name), kF32)->forward_flop(s) * 1e-12;
    };
    const BatchShape p480{1, {16, 21, 60, 104}, 512}, p720{1, {16, 21, 90, 160}, 512};
    CHECK(tera("wan2.1-t2v-1.3b", p480) == doctest::Approx(283.0).epsilon(2e-3));
    CHECK(tera("wan2.1-t2v-1.3b", p720) == doctest::Approx(1249.8).epsilon(2e-3));
    CHECK(tera("wan2.1-t2v-14b", p480) == doctest::Approx(1678).epsilon(2e-3));
    CHECK(tera("wan2.1-t2v-14b", p720) == doctest::Approx(6523).epsilon(2e-3));
    CHECK(make_wan(preset("wan2.1-t2v-1.3b"), kF32)->tokens(p480.latent) == 32760);
}

TEST_CASE("wan: counted flop is the formula's, backward twice forward") {
    const WanConfig c = odd_config();
    const std::unique_ptr<Model> model = make_wan(c, kF32);
    const Ops meta = meta_ops(Ops{});
    OpCount count;
    Ctx ctx;
    ctx.ops = &meta;
    ctx.count = &count;
    Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
    const auto a = model->declare(acts, work, kOdd, {0, 2, true, true}, Recompute::kNone, true);
    const ParamStore store(model->params(), kF32, true);
    const Shape x{2, 2, 4, 3, 6}, v{2, 3, 4, 3, 6}, text{2, 5, 10};
    const BatchInput in{CTensor(nullptr, x, DType::kF32), CTensor(nullptr, {2}, DType::kF32),
                        CTensor(nullptr, text, DType::kF32)};
    const double one = model->forward_flop(kOdd);
    model->forward(ctx, store.weights(), *a, in, Tensor(nullptr, v, DType::kF32));
    CHECK(count.matmul_flop == doctest::Approx(2 * one).epsilon(1e-12));
    const double forward = count.matmul_flop;
    model->backward(ctx, store.weights(), store.grads(), *a, in, CTensor(nullptr, v, DType::kF32),
                    {Tensor(nullptr, x, DType::kF32), Tensor(nullptr, text, DType::kF32)});
    // the sinusoids have no gradient: one product less
    const double wave = 2.0 * 2 * double(c.freq_dim) * double(c.D());
    CHECK(count.matmul_flop - forward == doctest::Approx(2 * forward - wave).epsilon(1e-12));
    CHECK(work.mark() == 0);
}

TEST_CASE("wan: the whole gradient is the derivative of the loss") {
    // Central differences of order h^4 along random directions through all parameters and inputs
    // at once, in float64: any wrong term shows.
    WanCase c = filled_case(odd_config(), kOdd, {40, 900}, 4);
    const WanResult at = run_wan(ref_ops(), kF64, c);
    for (uint64_t direction = 0; direction < 4; ++direction) {
        CAPTURE(direction);
        uint64_t id = 1000 * direction;
        double slope = 0;
        std::vector<std::pair<std::vector<double>*, std::vector<double>>> moves;
        const auto add = [&](std::vector<double>& v, const std::vector<double>& g) {
            std::vector<double> d(v.size());
            for (size_t i = 0; i < d.size(); ++i) {
                d[i] = double(random_normal(3, Purpose::kTest, id, i));
                slope += d[i] * g[i];
            }
            ++id;
            moves.emplace_back(&v, d);
        };
        for (size_t i = 0; i < c.weights.size(); ++i) add(c.weights[i], at.grads[i]);
        add(c.x, at.dx);
        add(c.text, at.dtext);
        const auto loss = [&](double h) {
            for (auto& [v, d] : moves) {
                for (size_t i = 0; i < d.size(); ++i) (*v)[i] += h * d[i];
            }
            const double value = run_wan(ref_ops(), kF64, c, {.backward = false}).loss;
            for (auto& [v, d] : moves) {
                for (size_t i = 0; i < d.size(); ++i) (*v)[i] -= h * d[i];
            }
            return value;
        };
        const double h = 2e-4;
        const double numeric = (8 * (loss(h) - loss(-h)) - (loss(2 * h) - loss(-2 * h))) / (12 * h);
        // roundoff 1e-15 |loss| / h, truncation h^4 times a fifth derivative of some 1e5
        CHECK(std::abs(numeric - slope) < 1e-8 * std::max(1.0, std::abs(slope)));
    }
}

TEST_CASE("wan: recomputation changes no bit") {
    const WanCase c = filled_case(odd_config(), kOdd, {40, 900}, 4);
    for (const Precision& p : {kF32, kBf16, kBf16Residual}) {
        const WanResult a = run_wan(ref_ops(), p, c, {.recompute = Recompute::kNone});
        const WanResult inference = run_wan(ref_ops(), p, c, {.backward = false});
        CHECK(a.out == inference.out);
        for (const Recompute r : {Recompute::kSelective, Recompute::kFull}) {
            const WanResult b = run_wan(ref_ops(), p, c, {.recompute = r});
            CHECK(a.out == b.out);
            CHECK(a.grads == b.grads);
            CHECK(a.dx == b.dx);
            CHECK(a.dtext == b.dtext);
        }
    }
}

TEST_CASE("wan: selective recomputation runs no attention twice and keeps less than none") {
    const WanCase c = filled_case(odd_config(), kOdd, {40, 900}, 4);
    const int64_t L = c.config.num_layers;
    const auto calls_of = [&](Recompute r) {
        Ledger ledger;
        static_cast<void>(run_wan(ref_ops(), kF32, c, {.recompute = r, .observer = &ledger}));
        std::map<std::string, int64_t> calls;
        for (const OpTotal& t : ledger.totals()) calls[t.op] = t.calls;
        return calls;
    };
    auto none = calls_of(Recompute::kNone), selective = calls_of(Recompute::kSelective),
         full = calls_of(Recompute::kFull);
    CHECK(none["attention_fwd"] == 2 * L);
    CHECK(selective["attention_fwd"] == none["attention_fwd"]);
    CHECK(full["attention_fwd"] == 2 * none["attention_fwd"]);
    CHECK(selective["linear_fwd"] == full["linear_fwd"]);  // linears again
    CHECK(selective["linear_fwd"] == none["linear_fwd"] + 10 * L);

    const auto kept = [&](Recompute r) {
        Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
        const auto model = make_wan(c.config, kBf16);
        static_cast<void>(model->declare(acts, work, c.shape, {0, L, true, true}, r, true));
        return acts.high_water();
    };
    CHECK(kept(Recompute::kFull) < kept(Recompute::kSelective));
    CHECK(kept(Recompute::kSelective) < kept(Recompute::kNone));
}

TEST_CASE("wan: samples of a batch do not see each other") {
    const WanCase both = filled_case(odd_config(), kOdd, {40, 900}, 5);
    const WanResult together = run_wan(ref_ops(), kF64, both);
    std::vector<std::vector<double>> sum;
    for (size_t s = 0; s < 2; ++s) {
        CAPTURE(s);
        WanCase one = both;
        one.shape.n = 1;
        const auto half = [&](std::vector<double>& v) {
            const auto n = static_cast<std::ptrdiff_t>(v.size() / 2);
            const auto begin = v.begin() + static_cast<std::ptrdiff_t>(s) * n;
            v = std::vector<double>(begin, begin + n);
        };
        for (std::vector<double>* v : {&one.x, &one.tau, &one.text, &one.r}) half(*v);
        const WanResult alone = run_wan(ref_ops(), kF64, one);
        WanResult part = together;
        for (std::vector<double>* v : {&part.out, &part.dx, &part.dtext}) half(*v);
        CHECK(part.out == alone.out);
        CHECK(part.dx == alone.dx);
        CHECK(part.dtext == alone.dtext);
        if (s == 0) {
            sum = alone.grads;
        } else {
            for (size_t i = 0; i < sum.size(); ++i) {
                for (size_t j = 0; j < sum[i].size(); ++j) sum[i][j] += alone.grads[i][j];
                // the same terms in another order
                CHECK(relative(sum[i], together.grads[i]) < 1e-13);
            }
        }
    }
}

TEST_CASE("wan: 750 and 752 differ in bf16 too") {
    const WanCase a = filled_case(odd_config(), kOdd, {750, 750}, 5);
    WanCase b = a;
    b.tau = {752, 752};
    CHECK(run_wan(ref_ops(), kBf16, a, {.backward = false}).out !=
          run_wan(ref_ops(), kBf16, b, {.backward = false}).out);
}

TEST_CASE("wan: refuses batches and sizes that cannot work, naming the key") {
    const std::unique_ptr<Model> model = make_wan(odd_config(), kF32);
    const auto refused = [](auto&& call, const char* key) {
        CAPTURE(key);
        try {
            call();
            FAIL("accepted");
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kUser);
            CHECK(e.message().find(key) != std::string::npos);
        }
    };
    model->check(kOdd);
    const auto batch = [&](const BatchShape& s) { return [&model, s] { model->check(s); }; };
    refused(batch({2, {3, 4, 3, 6}, 5}), "model.in_channels");
    refused(batch({2, {2, 5, 3, 6}, 5}), "model.patch_size[0]");
    refused(batch({2, {2, 4, 3, 7}, 5}), "model.patch_size[2]");
    refused(batch({2, {2, 4, 17, 6}, 5}), "rope_max_seq_len");
    refused(batch({0, {2, 4, 3, 6}, 5}), "at least 1");

    const auto config = [](auto&& change) {
        return [change] {
            WanConfig c = odd_config();
            change(c);
            (void)make_wan(c, kF32);
        };
    };
    refused(config([](WanConfig& c) { c.attention_head_dim = 9; }), "model.attention_head_dim");
    refused(config([](WanConfig& c) { c.text_dim = 0; }), "model.text_dim");
    refused(config([](WanConfig& c) { c.num_layers = 0; }), "model.num_layers");
    refused(config([](WanConfig& c) { c.freq_dim = 3; }), "model.freq_dim");
    refused(
        [] {
            (void)make_wan(odd_config(), {DType::kF32, DType::kBF16, DType::kF32});
        },
        "model.residual");
}

TEST_CASE("wan: memory of a large model is declared without taking any") {
    const WanConfig c = preset("wan2.1-t2v-1.3b");
    const std::unique_ptr<Model> model = make_wan(c, kBf16);
    const BatchShape s{1, {16, 21, 60, 104}, 512};
    int64_t kept[2] = {0, 0};
    for (const Recompute r : {Recompute::kNone, Recompute::kFull}) {
        Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
        (void)model->declare(acts, work, s, {0, 30, true, true}, r, true);
        kept[r == Recompute::kFull] = acts.high_water();
    }
    // Full recomputation keeps the block inputs, 4 S D bytes each; without it a block keeps that,
    // nine (S,D) and two (S,F) of 2 bytes, and its share of text rows and statistics.
    const double S = 32760, D = 1536, F = 8960;
    CHECK(double(kept[1]) == doctest::Approx(31 * 4 * S * D).epsilon(0.01));
    CHECK(double(kept[0]) ==
          doctest::Approx(4 * S * D + 30 * S * (4 * D + 18 * D + 4 * F)).epsilon(0.02));
}
