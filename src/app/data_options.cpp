// SPDX-License-Identifier: MIT
#include "app/data_options.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/log.h"
#include "data/index.h"
#include "data/npy.h"

namespace vt {

namespace {

// The codec must be the same; text and fps too, or the shards could not be used together.
void take_stats(EncodeArgs& a) {
    if (!fs::exists(a.stats_from)) {
        raise(Fault::kUser, fmt::format("--stats-from {}: no such file", a.stats_from.string()));
    }
    const auto indexed = index_files({a.stats_from}, {});
    if (!indexed[0].index) {
        raise(indexed[0].fault,
              fmt::format("--stats-from {}: {}", a.stats_from.string(), indexed[0].reason),
              indexed[0].hint);
    }
    const LatentFacts& f = indexed[0].index->facts;
    if (f.codec != a.spec.codec.name() || !f.normalised || f.text_encoder != kBuiltinTextEncoder ||
        f.text_dim != a.spec.text_dim || f.text_len != a.spec.text_len) {
        raise(Fault::kUser,
              fmt::format("--stats-from {}: its latents are {} ({}), its text {} of {} rows x {}; "
                          "here they are {} and {} of {} rows x {}",
                          a.stats_from.string(), f.codec, f.normalised ? "normalised" : "raw",
                          f.text_encoder, f.text_len, f.text_dim, a.spec.codec.name(),
                          kBuiltinTextEncoder, a.spec.text_len, a.spec.text_dim),
              "use the same levels and text sizes as there");
    }
    a.spec.mean = f.mean;
    a.spec.std = f.std;
}

}  // namespace

void add_encode_options(CLI::App& command, EncodeArgs& a, bool out_required) {
    CLI::Option* out = command.add_option("--out", a.out, "Folder for the shards");
    if (out_required) out->required();
    command.add_option("--size", a.size, "Height x width of every clip, e.g. 256x448")
        ->capture_default_str();
    command
        .add_option("--frames", a.frames, "Frames per clip: 1 + a multiple of 2^temporal-levels")
        ->capture_default_str();
    command.add_option("--temporal-levels", a.spec.codec.lt, "Halvings in time")
        ->check(CLI::Range(0, 4))
        ->capture_default_str();
    command.add_option("--spatial-levels", a.spec.codec.ls, "Halvings in height and width")
        ->check(CLI::Range(0, 4))
        ->capture_default_str();
    command.add_option("--text-dim", a.spec.text_dim, "Width of the caption embedding")
        ->capture_default_str();
    command.add_option("--text-len", a.spec.text_len, "Rows of text the model sees")
        ->capture_default_str();
    command.add_option("--dtype", a.dtype, "Stored numbers: bf16 or f32")
        ->check(CLI::IsMember({"bf16", "f32"}))
        ->capture_default_str();
    command.add_option("--samples-per-shard", a.spec.samples_per_shard, "Samples in one file")
        ->capture_default_str();
    command.add_option("--stats-from", a.stats_from,
                       "Shard whose mean and std per channel to take over, so that data sets of "
                       "several shapes can be trained on together");
    command.add_option("--seed", a.seed, "Seed")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command.add_option("--threads", a.spec.threads, "Threads; 0: all the process may use")
        ->check(CLI::Range(0, 1024))
        ->capture_default_str();
}

void parse_size(const std::string& text, int64_t* H, int64_t* W) {
    const char* end = text.data() + text.size();
    const auto h = std::from_chars(text.data(), end, *H);
    const bool cut = h.ec == std::errc{} && h.ptr != end && *h.ptr == 'x';
    const auto w = cut ? std::from_chars(h.ptr + 1, end, *W) : h;
    if (!cut || w.ec != std::errc{} || w.ptr != end || *H < 1 || *W < 1 || *H > 16384 ||
        *W > 16384) {
        raise(Fault::kUser, fmt::format("--size {}: must be height x width, e.g. 256x448", text));
    }
}

void finish_encode_args(EncodeArgs& a) {
    if (a.shapes.empty()) {
        ClipShape s{.T = a.frames};
        parse_size(a.size, &s.H, &s.W);
        if (s.T > 65536) raise(Fault::kUser, fmt::format("--frames {}: at most 65536", s.T));
        a.spec.shapes = {s};
    } else {
        a.spec.shapes = a.shapes;
    }
    a.spec.dtype = a.dtype == "f32" ? DType::kF32 : DType::kBF16;
    if (!a.stats_from.empty()) take_stats(a);
    check_spec(a.spec);
}

void check_range(const char* option, double value, double low, double high) {
    if (std::isfinite(value) && value >= low && value <= high) return;
    raise(Fault::kUser,
          fmt::format("{} {}: must be between {:g} and {:g}", option, value, low, high));
}

Progress::Progress(std::string what) : what_(std::move(what)) {}

void Progress::tick(double share, const std::string& where) {
    const std::lock_guard lock(mutex_);
    const auto now = Clock::now();
    if (begin_ == Clock::time_point{}) {  // the work begins now
        begin_ = now;
        next_ = now + std::chrono::seconds(2);
    }
    if (now < next_) return;
    next_ = now + std::chrono::seconds(2);
    const double spent = std::chrono::duration<double>(now - begin_).count();
    const double left = share > 0 ? spent * (1 - share) / share : 0;
    const auto clock = [](double s) {
        const auto n = static_cast<int64_t>(s + 0.5);
        return n < 100 ? fmt::format("{} s", n)
                       : fmt::format("{} h {:02} min", n / 3600, n % 3600 / 60);
    };
    say("{}: {}, {:.0f} %, {} so far, about {} left", what_, where, 100 * share, clock(spent),
        clock(left));
}

void say_report(const EncodeArgs& a, const EncodeReport& r) {
    const LatentFacts& f = r.facts;
    say("wrote {} training and {} validation samples in {} shard(s), {:.1f} MB, to {}", r.train,
        r.valid, r.shards, static_cast<double>(r.bytes) / 1e6, a.out.string());
    say("latents {} of {} channels, {}; text {} of {} rows x {}", f.codec, f.channels, a.dtype,
        f.text_encoder, f.text_len, f.text_dim);
    for (const EncodeReport::Part& p : r.parts) {
        say("  {:>14}  latent {} x {} x {}  {:>8} training {:>6} validation  {:.1f} MB",
            name_of(p.shape), (p.shape.T - 1) / f.scale[0] + 1, p.shape.H / f.scale[1],
            p.shape.W / f.scale[2], p.train, p.valid, static_cast<double>(p.bytes) / 1e6);
    }
}

FactsGiven FactsArgs::given() const {
    FactsGiven f;
    if (!file.empty()) {
        f = facts_given_from_json(read_file(file), file.string());
    }
    FactsGiven o;
    if (!codec.empty()) o.codec = codec;
    if (channels > 0) o.channels = channels;
    if (!scale.empty()) o.scale = {scale[0], scale[1], scale[2]};
    if (!mean.empty()) o.mean = mean;
    if (!std.empty()) o.std = std;
    if (!text_encoder.empty()) o.text_encoder = text_encoder;
    if (text_len > 0) o.text_len = text_len;
    if (fps >= 0) o.fps = fps;
    if (!normalised.empty()) o.normalised = normalised == "yes";
    join_facts(f, o, "--facts", "the option");
    if (!vae.empty()) join_facts(f, facts_of_vae(vae), "--facts or an option", vae.string());
    return f;
}

FactsGiven facts_of_vae(const fs::path& path) {
    FactsGiven f;
    if (path.extension() == ".safetensors") {
        const ArrayFile file(path);
        for (const ArrayFile::Array& a : file.arrays()) {
            const bool mean = a.name.ends_with("latents_mean") || a.name.ends_with("mean-of-means");
            if (!mean && !a.name.ends_with("latents_std") && !a.name.ends_with("std-of-means")) {
                continue;
            }
            std::vector<float> v(static_cast<size_t>(a.shape.numel()));
            file.read(a, 0, a.shape.numel(), v.data());
            (mean ? f.mean : f.std) = std::vector<double>(v.begin(), v.end());
        }
        if (!f.mean || !f.std) {
            raise(Fault::kUser,
                  fmt::format("--vae {}: it holds no latents_mean and latents_std", path.string()),
                  "most models keep them in the config.json beside it");
        }
        return f;
    }
    const nlohmann::json j = nlohmann::json::parse(read_file(path), nullptr, false);
    try {
        if (j.contains("latents_mean") && j["latents_mean"].is_array()) {
            f.mean = j["latents_mean"].get<std::vector<double>>();
            f.std = j.at("latents_std").get<std::vector<double>>();
            return f;
        }
        const auto channels = j.at("latent_channels").get<size_t>();
        const double factor = j.at("scaling_factor").get<double>();
        double shift = 0;
        if (j.contains("shift_factor") && j["shift_factor"].is_number()) {
            shift = j["shift_factor"].get<double>();
        }
        f.channels = static_cast<int64_t>(channels);
        f.mean = std::vector<double>(channels, shift);
        f.std = std::vector<double>(channels, 1 / factor);
    } catch (const nlohmann::json::exception&) {
        raise(Fault::kUser,
              fmt::format("--vae {}: neither latents_mean and latents_std nor latent_channels and "
                          "scaling_factor are there",
                          path.string()),
              "name the config.json of a diffusers autoencoder, or its .safetensors file");
    }
    return f;
}

void add_facts_options(CLI::App& c, FactsArgs& a) {
    std::string known;
    for (const KnownCodec& k : known_codecs()) {
        known += fmt::format("\n  {} ({}; {} channels)", k.name, k.what, k.channels);
    }
    const char* group = "Facts of the latents";
    c.add_option("--codec", a.codec,
                 "The encoder that made the latents. Known, with channels, scale, mean and std:" +
                     known + "\nOf any other name state those too")
        ->group(group);
    c.add_option("--normalised", a.normalised,
                 "Whether the latents in the files are already (z - mean) / std: yes or no. Never "
                 "guessed")
        ->check(CLI::IsMember({"yes", "no"}))
        ->group(group);
    c.add_option("--text-encoder", a.text_encoder, "What made the embeddings, e.g. umt5-xxl")
        ->group(group);
    c.add_option("--text-len", a.text_len, "Rows of text the model sees (Wan: 512)")
        ->check(CLI::PositiveNumber)
        ->group(group);
    c.add_option("--fps", a.fps, "Frames per second of the clips; 0: unknown or mixed")
        ->check(CLI::NonNegativeNumber)
        ->group(group);
    c.add_option("--channels", a.channels, "Latent channels of a codec that is not known")
        ->check(CLI::PositiveNumber)
        ->group(group);
    c.add_option("--scale", a.scale, "Pixels per latent along t,h,w of such a codec, e.g. 4,8,8")
        ->delimiter(',')
        ->expected(3)
        ->group(group);
    c.add_option("--mean", a.mean, "Mean of the raw latents per channel, separated by commas")
        ->delimiter(',')
        ->group(group);
    c.add_option("--std", a.std, "Deviation of the raw latents per channel")
        ->delimiter(',')
        ->group(group);
    c.add_option("--vae", a.vae,
                 "Take mean and std from a diffusers autoencoder: its config.json, or the "
                 ".safetensors file that holds latents_mean and latents_std")
        ->group(group);
    c.add_option("--facts", a.file,
                 "JSON file with any of these facts by their names in data/README.md")
        ->group(group);
}

std::vector<fs::path> shards_of(const std::vector<std::string>& names) {
    std::vector<fs::path> out;
    for (const std::string& name : names) {
        std::error_code error;
        if (!fs::is_directory(name, error)) {
            out.emplace_back(name);
            continue;
        }
        const size_t before = out.size();
        for (const fs::directory_entry& e : fs::directory_iterator(name)) {
            const std::string file = e.path().filename().string();
            const std::string ext = e.path().extension().string();
            if (file.front() != '.' && (ext == ".h5" || ext == ".hdf5")) out.push_back(e.path());
        }
        std::sort(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
        if (out.size() == before) {
            raise(Fault::kUser, fmt::format("folder {} holds no *.h5", name));
        }
    }
    return out;
}

}  // namespace vt
