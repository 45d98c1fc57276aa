// SPDX-License-Identifier: MIT
#include "app/data_options.h"

#include <charconv>

#include "core/check.h"
#include "core/log.h"
#include "data/index.h"

namespace vt {

namespace {

// The codec must be the same; text and fps too, or the shards could not be used together.
void take_stats(EncodeArgs& a) {
    const auto indexed = index_files({a.stats_from}, {});
    if (!indexed[0].index) {
        raise(Fault::kData,
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
        .add_option("--frames", a.spec.T, "Frames per clip: 1 + a multiple of 2^temporal-levels")
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
    command.add_option("--seed", a.seed, "Seed")->capture_default_str();
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
    parse_size(a.size, &a.spec.H, &a.spec.W);
    a.spec.dtype = a.dtype == "f32" ? DType::kF32 : DType::kBF16;
    if (!a.stats_from.empty()) take_stats(a);
    check_spec(a.spec);
}

void say_report(const EncodeArgs& a, const EncodeReport& r) {
    const LatentFacts& f = r.facts;
    say("wrote {} training and {} validation samples in {} shard(s), {:.1f} MB, to {}", r.train,
        r.valid, r.shards, static_cast<double>(r.bytes) / 1e6, a.out.string());
    say("latents {} of {} channels x {} x {} x {}, {}; text {} of {} rows x {}", f.codec,
        f.channels, (a.spec.T - 1) / f.scale[0] + 1, a.spec.H / f.scale[1], a.spec.W / f.scale[2],
        a.dtype, f.text_encoder, f.text_len, f.text_dim);
}

}  // namespace vt
