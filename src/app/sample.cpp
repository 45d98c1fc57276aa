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
#include "ckpt/load.h"
#include "core/log.h"
#include "data/codec.h"
#include "data/facts.h"
#include "data/safetensors.h"
#include "meta/meta.h"
#include "model/registry.h"
#include "model/store.h"
#include "prof/machine.h"
#include "sample/sampler.h"

namespace vt {

namespace {

struct Flags {
    std::string checkpoint, out, size, weights = "auto", text_file, prompts_file, device = "auto";
    std::vector<std::string> prompts;
    int64_t frames = 0, steps = 30, seed = 1, count = 1, threads = 0;
    double guidance = 5.0, shift = 0;
    bool gif = false;
};

std::vector<std::string> all_prompts(const Flags& f) {
    std::vector<std::string> out = f.prompts;
    if (!f.prompts_file.empty()) {
        if (!fs::is_regular_file(f.prompts_file)) {
            raise(Fault::kUser, fmt::format("--prompts {}: no such file", f.prompts_file));
        }
        const std::string text = read_file(f.prompts_file);
        for (size_t at = 0; at < text.size();) {
            const size_t end = std::min(text.find('\n', at), text.size());
            // a carriage return of a foreign line end is not part of the caption
            const size_t last = text.find_last_not_of(" \t\r", end == at ? at : end - 1);
            if (end > at && last != std::string::npos && last >= at) {
                out.push_back(text.substr(at, last + 1 - at));
            }
            at = end + 1;
        }
    }
    if (out.empty()) {
        raise(Fault::kUser, "no caption to sample", "give --prompt \"...\" or --prompts FILE");
    }
    return out;
}

// Embeddings of the captions and of the empty one, each (text_len, text_dim) zero-padded.
struct Texts {
    std::vector<std::vector<float>> captions;
    std::vector<float> empty;
};

std::vector<float> padded(std::vector<float> rows, const LatentFacts& facts) {
    rows.resize(static_cast<size_t>(facts.text_len * facts.text_dim), 0.0F);
    return rows;
}

Texts embed(const std::vector<std::string>& prompts, const LatentFacts& facts, const Flags& f) {
    Texts t;
    if (f.text_file.empty()) {
        if (facts.text_encoder != kBuiltinTextEncoder) {
            raise(Fault::kUser,
                  fmt::format("the model was trained on embeddings of '{}', which is not built in",
                              facts.text_encoder),
                  "embed the captions and the empty one yourself and give --text FILE.safetensors "
                  "(tensors `text` (captions, rows, text_dim) and `empty` (rows, text_dim))");
        }
        for (const std::string& p : prompts) {
            t.captions.push_back(padded(embed_caption(p, facts.text_dim, facts.text_len), facts));
        }
        t.empty = padded(embed_caption("", facts.text_dim, facts.text_len), facts);
        return t;
    }
    const SafetensorsReader file(f.text_file);
    const auto read = [&](const std::string& name, int rank) {
        const StoredTensor& stored_tensor = file.at(name);
        const Shape& s = stored_tensor.shape;
        if (s.rank != rank || s[rank - 1] != facts.text_dim || s[rank - 2] > facts.text_len) {
            raise(Fault::kUser,
                  fmt::format("{}: tensor {} is {}, needs rows <= {} of width {}", f.text_file,
                              name, s.str(), facts.text_len, facts.text_dim));
        }
        std::vector<float> out(static_cast<size_t>(s.numel()));
        file.read(stored_tensor, Tensor(out.data(), s, DType::kF32));
        return out;
    };
    const std::vector<float> all = read("text", 3);
    const Shape s = file.at("text").shape;
    if (s[0] != static_cast<int64_t>(prompts.size())) {
        raise(Fault::kUser, fmt::format("{}: `text` holds {} captions, {} were given", f.text_file,
                                        s[0], prompts.size()));
    }
    const int64_t each = s[1] * s[2];
    for (int64_t i = 0; i < s[0]; ++i) {
        t.captions.push_back(padded({all.begin() + i * each, all.begin() + (i + 1) * each}, facts));
    }
    t.empty = padded(read("empty", 2), facts);
    return t;
}

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
              "one of: auto, raw, ema0, ema1, ... as optim.ema_decay lists them");
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
        if (name.rfind("sample-", 0) == 0 && (name.ends_with(".mp4") || name.ends_with(".gif")))
            fs::remove(entry.path());
    }
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
    const std::vector<std::string> prompts = all_prompts(f);
    const Texts texts = embed(prompts, facts, f);
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
        .seed = static_cast<uint64_t>(f.seed),
        .steps = f.steps,
        .shift = f.shift > 0 ? f.shift : Objective(config.objective).shift(shape),
        .guidance = f.guidance};
    Ctx ctx;
    ctx.ops = &backend_for(f.device);
    ctx.pool = &pool;
    std::unique_ptr<Sampler> sampler;
    const auto declare = [&] {
        sampler = std::make_unique<Sampler>(*model, acts, work, shape, facts.text_len,
                                            facts.text_dim, options);
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

    const int64_t frames = (shape.T - 1) * facts.scale[0] + 1;
    say("sampling {} x {} captions at {}x{}, {} frames: {} Euler steps, guidance {}, shift {}, "
        "weights "
        "{} of step {}",
        f.count, prompts.size(), shape.H * facts.scale[1], shape.W * facts.scale[2], frames,
        options.steps, options.guidance, options.shift, kind, info.step);
    std::vector<Sample> samples;
    for (int64_t c = 0; c < f.count; ++c) {
        for (size_t p = 0; p < prompts.size(); ++p) {
            const double begin = seconds_now();
            const auto index = static_cast<uint64_t>(c) * prompts.size() + p;
            Sample s{index, prompts[p], {}, texts.captions[p]};
            s.latent =
                sampler->run(ctx, store.weights(), {index, prompts[p], texts.captions[p].data()},
                             texts.empty.data());
            samples.push_back(std::move(s));
            say("  sample {}: \"{}\" ({:.1f} s)", index, prompts[p], seconds_now() - begin);
        }
    }
    const SampleFiles files = write_samples(f.out, facts, shape, samples, texts.empty, f.gif);
    say("latents: {}", files.latents.string());
    if (!files.sheet.empty()) say("contact sheet: {}", files.sheet.string());
    for (const fs::path& v : files.videos) say("video: {}", v.string());
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
    sub->add_option("--prompt", f->prompts, "caption (repeatable)")->allow_extra_args(false);
    sub->add_option("--prompts", f->prompts_file, "text file with one caption a line");
    sub->add_option("--count", f->count, "samples per caption")->check(CLI::Range(1, 10000));
    sub->add_option("--size", f->size, "HxW in pixels; default: a size of the training data");
    sub->add_option("--frames", f->frames, "frames of the video; default: as the training data")
        ->check(CLI::Range(int64_t{1}, kMaxSide));
    sub->add_option("--steps", f->steps, "Euler steps")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    sub->add_option("--guidance", f->guidance, "classifier-free guidance w; 1 or less: none")
        ->check(CLI::Range(0.0, 1000.0))
        ->capture_default_str();
    sub->add_option("--shift", f->shift, "timestep shift; default: the run's for this shape")
        ->check(CLI::Range(1e-3, 1e3));
    sub->add_option("--seed", f->seed, "seed of the starting noise")
        ->check(CLI::Range(int64_t{0}, std::numeric_limits<int64_t>::max()))
        ->capture_default_str();
    sub->add_option("--weights", f->weights, "auto (the first EMA, else raw), raw, ema0, ema1, ...")
        ->capture_default_str();
    sub->add_option("--text", f->text_file,
                    "embeddings of the captions, for encoders not built in");
    sub->add_flag("--gif", f->gif, "also write each video as an animated GIF (needs libav)");
    sub->add_option("--device", f->device, "auto, cpu or cuda")->capture_default_str();
    sub->add_option("--threads", f->threads, "0: all the process may use")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
    sub->callback([f, &work] { work = [f] { return sample(*f); }; });
}

}  // namespace vt
