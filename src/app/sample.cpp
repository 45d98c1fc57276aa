// SPDX-License-Identifier: MIT
// `vtrain sample`: from a checkpoint and captions to latents, and through the codec to video and
// pictures. Floor 7.
#include <algorithm>
#include <limits>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/run_config.h"
#include "app/runtime.h"
#include "app/sample_text.h"
#include "ckpt/load.h"
#include "core/log.h"
#include "data/facts.h"
#include "meta/meta.h"
#include "model/registry.h"
#include "model/store.h"
#include "prof/machine.h"
#include "sample/choose.h"
#include "sample/sampler.h"
#include "sample/trajectory.h"

namespace vt {

namespace {

struct Flags {
    std::string checkpoint, out, size, weights = "auto", guidance = "5", device = "auto",
                                       trajectory;
    PromptFlags texts;
    SolverOptions solver;
    int64_t frames = 0, seed = 1, count = 1, batch = 1, threads = 0;
    bool gif = false;
};

// --size HxW and --frames in pixels, or what the model was trained on.
constexpr int64_t kMaxSide = 65536;  // pixels, frames: keeps every product far from overflow

LatentShape wanted_shape(const Flags& f, const LatentFacts& facts, const CheckpointInfo& info) {
    LatentShape s{facts.channels, 0, 0, 0};
    const auto trained = info.extra.find("shape");
    if (trained != info.extra.end()) {
        long long c = 0, t = 0, h = 0, w = 0;
        if (std::sscanf(trained->second.c_str(), "%lld,%lld,%lld,%lld", &c, &t, &h, &w) == 4) {
            s = {c, t, h, w};
        }
    }
    if (!f.size.empty()) {
        long long h = 0, w = 0;
        int used = 0;
        if (std::sscanf(f.size.c_str(), "%lldx%lld%n", &h, &w, &used) != 2 ||
            used != static_cast<int>(f.size.size()) || h <= 0 || w <= 0 || h > kMaxSide ||
            w > kMaxSide || h % facts.scale[1] != 0 || w % facts.scale[2] != 0) {
            raise(Fault::kUser,
                  fmt::format("--size {}: must be HxW in pixels, multiples of {} and {}, at most "
                              "{}",
                              f.size, facts.scale[1], facts.scale[2], kMaxSide));
        }
        s.H = h / facts.scale[1];
        s.W = w / facts.scale[2];
    }
    if (f.frames > 0) {
        if ((f.frames - 1) % facts.scale[0] != 0) {
            raise(Fault::kUser, fmt::format("--frames {}: must be a multiple of {}, plus 1",
                                            f.frames, facts.scale[0]));
        }
        s.T = (f.frames - 1) / facts.scale[0] + 1;
    }
    if (s.numel() == 0) {
        raise(Fault::kUser, "the checkpoint does not say what sizes it was trained on",
              "give --size HxW and --frames N");
    }
    return s;
}

// Loads "model" or an EMA into the store's master tensors.
std::string load_weights(const fs::path& dir, const std::string& which, ParamStore& store) {
    const std::vector<std::string> names = tensor_names(dir);
    const auto has = [&](const std::string& kind) {
        return std::any_of(names.begin(), names.end(), [&](const std::string& n) {
            return n.compare(0, kind.size() + 1, kind + "/") == 0;
        });
    };
    std::string kind = which == "raw" ? "model" : which;
    if (which == "auto") kind = has("ema0") ? "ema0" : "model";
    if ((kind != "model" && kind.rfind("ema", 0) != 0) || which == "model" || !has(kind)) {
        raise(Fault::kUser,
              fmt::format("--weights {}: {} has no such tensors", which, dir.string()),
              "one of: auto, raw, ema0, ema1, ... as optim.ema_decay, then optim.ema list them");
    }
    std::vector<StateTensor> wanted;
    for (size_t i = 0; i < store.table().size(); ++i) {
        const Tensor& t = store.master()[i];
        wanted.push_back({.name = kind + "/" + store.table()[i].name,
                          .global = t.shape,
                          .local = t,
                          .rect = {}});
    }
    (void)load(dir, wanted);
    return kind;
}

void make_folder(const std::string& path) {
    std::error_code ec;
    fs::create_directories(path, ec);
    if (ec || !fs::is_directory(path)) {
        raise(Fault::kUser, fmt::format("--out {}: cannot be made a folder{}{}", path,
                                        ec ? ": " : "", ec ? ec.message() : ""));
    }
    // what an earlier call left would pass for this one's
    for (const auto& entry : fs::directory_iterator(path)) {
        const std::string name = entry.path().filename().string();
        const bool made =
            name.ends_with(".mp4") || name.ends_with(".png") || name.ends_with(".gif");
        if (name.rfind("sample-", 0) == 0 && made) fs::remove(entry.path());
    }
}

// All latents; says when each batch is done, and keeps the paths if that is asked for.
std::vector<std::vector<float>> draw(const Flags& f, Sampler& sampler, const Ctx& ctx,
                                     const Weights& weights,
                                     const std::vector<SampleRequest>& requests, const Texts& texts,
                                     const Solver& solver, const LatentShape& shape) {
    std::unique_ptr<TrajectoryFile> paths;
    if (!f.trajectory.empty()) {
        paths = std::make_unique<TrajectoryFile>(f.trajectory, solver, shape, requests);
    }
    double begin = seconds_now();
    const auto visit = [&](const PathPoint& point) {
        if (paths) paths->add(point);
        if (point.step < solver.steps()) return true;
        for (int64_t b = 0; b < point.count; ++b) {
            const auto i = static_cast<size_t>(point.first + b);
            say("  sample {}: \"{}\" ({:.1f} s)", i, texts.captions[i % texts.captions.size()],
                (seconds_now() - begin) / static_cast<double>(point.count));
        }
        begin = seconds_now();
        return true;
    };
    std::vector<std::vector<float>> latents =
        sampler.run(ctx, weights, requests, texts.negative.data(), visit);
    if (paths) {
        paths->close(latents);
        say("paths: {}", f.trajectory);
    }
    return latents;
}

int sample(const Flags& f) {
    const fs::path dir = checkpoint_at(f.checkpoint);
    const CheckpointInfo info = read_info(dir);
    if (info.config.empty()) {
        raise(Fault::kUser,
              fmt::format("{} holds imported weights: neither the codec nor the text encoder that "
                          "go with them are known",
                          dir.string()),
              "train from it with checkpoint.resume on data encoded alike, and sample from that "
              "run; one step with optim.lr = 0 is enough");
    }
    const RunConfig config = parse_run_config(info.config, (dir / "manifest.json").string(), "/");
    const LatentFacts facts = facts_from_json(info.facts_json, dir.string());
    const Texts texts = read_texts(f.texts, facts);
    const LatentShape shape = wanted_shape(f, facts, info);

    make_folder(f.out);  // before the work, not after
    Pool pool(narrow<int>(f.threads));
    const Precision precision = make_precision(config.run.precision, config.model);
    const std::unique_ptr<Model> model = make_model(config.model, facts, precision);
    ParamStore store(model->params(), precision, false);
    Arena acts("activations", MemCategory::kActivations),
        work("workspace", MemCategory::kWorkspace);
    Arena scratch("scratch", MemCategory::kWorkspace);
    const SampleOptions options{
        .seed = static_cast<uint64_t>(f.seed), .guidance = f.guidance, .batch = f.batch};
    const std::shared_ptr<const Solver> solver = choose_solver(config.objective, shape, f.solver);
    Ctx ctx;
    ctx.ops = &backend_for(f.device);
    ctx.pool = &pool;
    std::unique_ptr<Sampler> sampler;
    const auto declare = [&] {
        sampler = std::make_unique<Sampler>(*model, acts, work, shape, facts.text_len,
                                            facts.text_dim, solver, options);
        ScratchNeed need = sampler->scratch_need();
        need.threads = pool.threads();
        ctx.scratch = scratch.alloc("op scratch", {ctx.ops->scratch_bytes(need)}, DType::kU8);
    };
    declare();
    const Ops meta = meta_ops(*ctx.ops);
    Ctx dry = ctx;
    dry.ops = &meta;
    sampler->rehearse(dry, store.weights());
    store.reserve();
    for (Arena* a : {&acts, &work, &scratch}) a->reserve();
    declare();
    const std::string kind = load_weights(dir, f.weights, store);
    store.refresh_operands(ctx);

    std::vector<SampleRequest> requests;
    for (int64_t c = 0; c < f.count; ++c) {
        for (const std::vector<float>& text : texts.embedded) {
            requests.push_back({requests.size(), text.data()});
        }
    }
    say("sampling {} x {} captions at {}x{}, {} frames: {} steps, guidance {}, weights {} of step "
        "{}",
        f.count, texts.captions.size(), shape.H * facts.scale[1], shape.W * facts.scale[2],
        (shape.T - 1) * facts.scale[0] + 1, solver->steps(), f.guidance, kind, info.step);
    const std::vector<std::vector<float>> latents =
        draw(f, *sampler, ctx, store.weights(), requests, texts, *solver, shape);
    std::vector<Sample> samples;
    for (size_t i = 0; i < requests.size(); ++i) {
        const size_t p = i % texts.captions.size();
        samples.push_back({i, texts.captions[p], latents[i], texts.embedded[p]});
    }
    const SampleFiles files = write_samples(f.out, facts, shape, samples, texts.empty, f.gif);
    say("latents: {}", files.latents.string());
    if (!files.sheet.empty()) say("contact sheet: {}", files.sheet.string());
    for (const fs::path& v : files.videos) {
        say("{}: {}", v.extension() == ".png" ? "image" : "video", v.string());
    }
    for (const fs::path& v : files.gifs) say("gif: {}", v.string());
    if (files.sheet.empty()) {
        say("the codec '{}' is not built in: decode the latents with it", facts.codec);
    }
    return 0;
}

}  // namespace

void add_sample_command(CLI::App& app, Work& work) {
    const auto f = std::make_shared<Flags>();
    CLI::App* sub = app.add_subcommand("sample", "draw videos from a checkpoint");
    sub->add_option("--checkpoint", f->checkpoint,
                    "a step-N folder, or a run's folder (its newest)")
        ->required();
    sub->add_option("--out", f->out, "folder for latents, videos and pictures")->required();
    sub->add_option("--prompt", f->texts.prompts, "caption (repeatable)")->allow_extra_args(false);
    sub->add_option("--prompts", f->texts.prompts_file, "text file with one caption a line");
    sub->add_option("--negative-prompt", f->texts.negative,
                    "what guidance leads away from; default: the empty caption");
    sub->add_option("--text-embeddings,--text", f->texts.embeddings,
                    "safetensors file with embeddings of the captions: `text` (captions, rows, "
                    "text_dim), `empty` (rows, text_dim) and optionally `negative`");
    sub->add_option("--count", f->count, "samples per caption")->check(CLI::Range(1, 10000));
    sub->add_option("--size", f->size, "HxW in pixels; default: a size of the training data");
    sub->add_option("--frames", f->frames, "frames of the video; default: as the training data")
        ->check(CLI::Range(int64_t{1}, kMaxSide));
    sub->add_option(
           "--solver", f->solver.solver,
           "euler or unipc (rectified flows), ddim or ddpm (noise schedules); auto: euler or "
           "ddim")
        ->capture_default_str();
    sub->add_option("--steps", f->solver.steps, "steps of the solver")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    sub->add_option("--guidance", f->guidance,
                    "classifier-free guidance w; 1 or less: none. 5 for every step, 7:3 from the "
                    "first to the last, 7,6,5 for each, 0.2-0.8:5 where the timestep / 1000 is in "
                    "between")
        ->capture_default_str();
    sub->add_option("--shift", f->solver.shift, "timestep shift; default: the run's for this shape")
        ->check(CLI::Range(1e-3, 1e3));
    sub->add_option("--batch", f->batch, "samples drawn at a time; their bits do not depend on it")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    sub->add_option("--trajectory", f->trajectory,
                    "safetensors file for every x_t and model output of every sample");
    sub->add_option("--seed", f->seed, "seed of the starting noise")
        ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
        ->capture_default_str();
    sub->add_option("--weights", f->weights, "auto (the first EMA, else raw), raw, ema0, ema1, ...")
        ->capture_default_str();
    sub->add_flag("--gif", f->gif, "also write each video as an animated GIF (needs libav)");
    sub->add_option("--device", f->device, "auto, cpu or cuda")->capture_default_str();
    sub->add_option("--threads", f->threads, "0: all the process may use")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    sub->callback([f, &work] { work = [f] { return sample(*f); }; });
}

}  // namespace vt
