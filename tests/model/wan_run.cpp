// SPDX-License-Identifier: MIT
#include "tests/model/wan_run.h"

#include <cmath>

#include "tests/model/fill.h"

namespace vt::test {

namespace {

void put(Tensor t, const std::vector<double>& v) {
    VT_CHECK(t.numel() == static_cast<int64_t>(v.size()), "{} values into {}", v.size(),
             t.shape.str());
    for (size_t i = 0; i < v.size(); ++i) {
        if (t.dtype == DType::kF64) {
            t.as<double>()[i] = v[i];
        } else if (t.dtype == DType::kBF16) {
            t.as<bf16>()[i] = to_bf16(static_cast<float>(v[i]));
        } else {
            t.as<float>()[i] = static_cast<float>(v[i]);
        }
    }
}

std::vector<double> get(CTensor t) {
    std::vector<double> v(static_cast<size_t>(t.numel()));
    for (size_t i = 0; i < v.size(); ++i) {
        v[i] = t.dtype == DType::kF64 ? t.as<double>()[i] : double(t.as<float>()[i]);
    }
    return v;
}

}  // namespace

WanConfig odd_config() {
    return {.patch_size = {2, 1, 2},
            .num_attention_heads = 3,
            .attention_head_dim = 8,
            .in_channels = 2,
            .out_channels = 3,
            .text_dim = 10,
            .freq_dim = 14,
            .ffn_dim = 20,
            .num_layers = 2,
            .rope_max_seq_len = 16};
}

WanCase filled_case(const WanConfig& config, const BatchShape& shape, std::vector<double> tau,
                    int64_t text_rows) {
    WanCase c;
    c.config = config;
    c.shape = shape;
    c.tau = std::move(tau);
    const LatentShape& l = shape.latent;
    c.x = fill_input(0, shape.n * l.numel());
    c.text = fill_input(1, shape.n * shape.St * config.text_dim);
    for (size_t i = 0; i < c.text.size(); ++i) {
        if (static_cast<int64_t>(i) / config.text_dim % shape.St >= text_rows) c.text[i] = 0;
    }
    c.r = fill_input(50, shape.n * config.out_channels * l.T * l.H * l.W);
    c.weights = fill_weights(make_wan(config, kF64)->params());
    return c;
}

WanResult run_wan(const Ops& ops, const Precision& precision, const WanCase& c,
                  const WanRunOptions& options) {
    const std::unique_ptr<Model> model = make_wan(c.config, precision);
    const BatchShape& b = c.shape;
    const LatentShape& l = b.latent;
    const DType st = precision.stat;
    const Chunk whole{0, model->num_blocks(), true, true};

    Pool pool(options.threads);
    Ctx ctx;
    ctx.ops = &ops;
    ctx.pool = &pool;
    ctx.observer = options.observer;
    ScratchNeed need = model->scratch_need(b);
    need.threads = options.threads;
    std::vector<uint8_t> scratch(static_cast<size_t>(ops.scratch_bytes(need)) + 64);
    const auto at = reinterpret_cast<uintptr_t>(scratch.data());
    ctx.scratch = Tensor(scratch.data() + (64 - at % 64) % 64,
                         {static_cast<int64_t>(scratch.size()) - 64}, DType::kU8);

    Arena data("data", MemCategory::kData), acts("acts", MemCategory::kActivations);
    Arena work("work", MemCategory::kWorkspace);
    ParamStore store(model->params(), precision, options.backward);
    store.reserve();
    Tensor x, tau, text, out, dv, dx, dtext;
    std::unique_ptr<Activations> a;
    for (const bool real : {false, true}) {
        if (real) {
            for (Arena* arena : {&data, &acts, &work}) arena->reserve();
        }
        x = data.alloc("x", {b.n, l.C, l.T, l.H, l.W}, st);
        tau = data.alloc("tau", {b.n}, st);
        text = data.alloc("text", {b.n, b.St, c.config.text_dim}, st);
        out = data.alloc("out", {b.n, c.config.out_channels, l.T, l.H, l.W}, st);
        dv = data.alloc("dv", out.shape, st);
        dx = data.alloc("dx", x.shape, st);
        dtext = data.alloc("dtext", text.shape, st);
        a = model->declare(acts, work, b, whole, options.recompute, options.backward);
    }
    put(x, c.x);
    put(tau, c.tau);
    put(text, c.text);
    put(dv, c.r);
    for (size_t i = 0; i < c.weights.size(); ++i) put(store.master()[i], c.weights[i]);
    store.refresh_operands(ctx);
    const BatchInput in{x, tau, text};
    const Weights w = store.weights();

    WanResult result;
    model->forward(ctx, w, *a, in, out);
    result.out = get(out);
    for (size_t i = 0; i < result.out.size(); ++i) result.loss += result.out[i] * c.r[i];
    if (options.backward) {
        store.zero_grads(ctx);
        model->backward(ctx, w, store.grads(), *a, in, dv, {dx, dtext});
        result.dx = get(dx);
        result.dtext = get(dtext);
        for (const Tensor& g : store.grads()) result.grads.push_back(get(g));
    }
    return result;
}

double norm2(const std::vector<double>& v) {
    double sum = 0;
    for (const double x : v) sum += x * x;
    return std::sqrt(sum);
}

double relative(const std::vector<double>& a, const std::vector<double>& b) {
    std::vector<double> d(b.size());
    for (size_t i = 0; i < b.size(); ++i) d[i] = a.at(i) - b[i];
    return norm2(d) / norm2(b);
}

double max_abs_diff(const std::vector<double>& a, const std::vector<double>& b) {
    double most = 0;
    for (size_t i = 0; i < b.size(); ++i) {
        // a NaN must not pass for a small number
        const double d = std::abs(a.at(i) - b[i]);
        most = d <= most ? most : d;
    }
    return most;
}

}  // namespace vt::test
