// SPDX-License-Identifier: MIT
// vtrain forward: one forward pass (and backward) of exported weights on given inputs, file to
// file. The parity tool: scripts/check_diffusers.py compares what it writes with diffusers.
// Floor 7.
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "core/log.h"
#include "cpu/cpu.h"
#include "data/safetensors.h"
#include "model/diffusers.h"
#include "model/store.h"

namespace vt {

namespace {

struct ForwardArgs {
    std::string weights, inputs, out;
    std::string precision = "fp32", residual = "fp32";
    bool grad = false;
    int threads = 0;
};

const StoredTensor& input(const SafetensorsReader& file, const std::string& name,
                          const std::string& dims, int rank) {
    const StoredTensor* t = file.find(name);
    if (t == nullptr) {
        raise(Fault::kUser,
              fmt::format("{} has no tensor '{}' {}", file.path().string(), name, dims),
              "inputs are hidden_states, timestep, encoder_hidden_states and, with --grad, r");
    }
    if (t->shape.rank != rank) {
        raise(Fault::kUser, fmt::format("{}: '{}' is {}, but must be {}", file.path().string(),
                                        name, t->shape.str(), dims));
    }
    return *t;
}

void require_dim(const SafetensorsReader& file, const StoredTensor& t, int dim, int64_t want,
                 const char* of) {
    if (t.shape[dim] == want) return;
    raise(Fault::kUser, fmt::format("{}: '{}' is {}, but dim {} must be {}, {}",
                                    file.path().string(), t.name, t.shape.str(), dim, want, of));
}

// Timesteps may be stored as integers; 0..1000 are exact in f32.
void read_timesteps(const SafetensorsReader& file, const StoredTensor& t, Tensor out) {
    auto* to = out.as<float>();
    const int64_t n = out.numel();
    if (t.type == StoredType::kI64) {
        std::vector<int64_t> v(static_cast<size_t>(n));
        file.read(t, Tensor(v.data(), {n}, DType::kI64));
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(v[static_cast<size_t>(i)]);
    } else if (t.type == StoredType::kI32) {
        std::vector<int32_t> v(static_cast<size_t>(n));
        file.read(t, Tensor(v.data(), {n}, DType::kI32));
        for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(v[static_cast<size_t>(i)]);
    } else {
        file.read(t, out);
    }
}

int forward(const ForwardArgs& args) {
    const WanConfig config = read_wan_config(args.weights);
    const bool bf16 = args.precision == "bf16";
    const Precision precision{bf16 ? DType::kBF16 : DType::kF32,
                              args.residual == "bf16" ? DType::kBF16 : DType::kF32, DType::kF32};
    const std::unique_ptr<Model> model = make_wan(config, precision);

    const SafetensorsReader file(args.inputs);
    const StoredTensor& x = input(file, "hidden_states", "(B,C,T,H,W)", 5);
    const StoredTensor& tau = input(file, "timestep", "(B)", 1);
    const StoredTensor& text = input(file, "encoder_hidden_states", "(B,St,text_dim)", 3);
    const BatchShape batch{
        x.shape[0], {x.shape[1], x.shape[2], x.shape[3], x.shape[4]}, text.shape[1]};
    require_dim(file, tau, 0, batch.n, "the batch of hidden_states");
    require_dim(file, text, 0, batch.n, "the batch of hidden_states");
    require_dim(file, text, 2, config.text_dim, "the model's text_dim");
    model->check(batch);
    Shape v_shape = x.shape;
    v_shape.dim[1] = config.out_channels;
    if (args.grad) {
        const StoredTensor& r = input(file, "r", "of the output's shape", 5);
        for (int d = 0; d < 5; ++d) require_dim(file, r, d, v_shape[d], "as in the output");
    }

    ParamStore store(model->params(), precision, args.grad);
    Arena data("data", MemCategory::kData), acts("activations", MemCategory::kActivations);
    Arena work("workspace", MemCategory::kWorkspace);
    Pool pool(args.threads);
    ScratchNeed need = model->scratch_need(batch);
    need.threads = pool.threads();
    Tensor in_x, in_tau, in_text, v, r, dx, dtext;
    Ctx ctx;
    ctx.ops = &cpu_ops();
    ctx.pool = &pool;
    std::unique_ptr<Activations> a;
    for (const bool real : {false, true}) {
        if (real) {
            store.reserve();
            for (Arena* arena : {&data, &acts, &work}) arena->reserve();
        }
        ctx.scratch = work.alloc("scratch", {ctx.ops->scratch_bytes(need)}, DType::kU8);
        in_x = data.alloc("hidden_states", x.shape, DType::kF32);
        in_tau = data.alloc("timestep", tau.shape, DType::kF32);
        in_text = data.alloc("encoder_hidden_states", text.shape, DType::kF32);
        v = data.alloc("out", v_shape, DType::kF32);
        if (args.grad) {
            r = data.alloc("r", v_shape, DType::kF32);
            dx = data.alloc("d hidden_states", x.shape, DType::kF32);
            dtext = data.alloc("d encoder_hidden_states", text.shape, DType::kF32);
        }
        a = model->declare(acts, work, batch, {0, model->num_blocks(), true, true},
                           Recompute::kNone, args.grad);
    }
    import_diffusers(args.weights, model->params(), store.master());
    store.refresh_operands(ctx);
    file.read(x, in_x);
    read_timesteps(file, tau, in_tau);
    file.read(text, in_text);

    const BatchInput in{in_x, in_tau, in_text};
    const Weights w = store.weights();
    model->forward(ctx, w, *a, in, v);
    std::vector<NamedTensor> results{{"out", v}};
    if (args.grad) {
        file.read(file.at("r"), r);
        store.zero_grads(ctx);
        model->backward(ctx, w, store.grads(), *a, in, r, {dx, dtext});
        for (size_t i = 0; i < store.table().size(); ++i) {
            results.push_back({"grad." + store.table()[i].name, store.grads()[i]});
        }
        results.push_back({"grad.hidden_states", dx});
        results.push_back({"grad.encoder_hidden_states", dtext});
    }
    write_safetensors(args.out, results, {{"format", "pt"}});
    say("wrote {} tensors to {}", results.size(), args.out);
    return 0;
}

}  // namespace

void add_forward_command(CLI::App& app, Work& work) {
    CLI::App* sub = app.add_subcommand(
        "forward", "One forward pass of given weights on given inputs, file to file");
    const auto args = std::make_shared<ForwardArgs>();
    sub->add_option("--weights", args->weights,
                    "diffusers folder: config.json and safetensors weights")
        ->required();
    sub->add_option("--inputs", args->inputs,
                    "safetensors file: hidden_states (B,C,T,H,W), timestep (B), "
                    "encoder_hidden_states (B,St,text_dim), never padded; r with --grad")
        ->required();
    sub->add_option("--out", args->out, "safetensors file to write: out (F32), and the gradients")
        ->required();
    sub->add_flag("--grad", args->grad,
                  "also write grad.<parameter>, grad.hidden_states and grad.encoder_hidden_states "
                  "of sum(out * r)");
    sub->add_option("--precision", args->precision, "of matrix operands")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    sub->add_option("--residual", args->residual,
                    "of the residual stream; bf16 needs bf16 operands")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    sub->add_option("--threads", args->threads, "0: as many as the process may use")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    sub->callback([args, &work] { work = [args] { return forward(*args); }; });
}

}  // namespace vt
