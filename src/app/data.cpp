// SPDX-License-Identifier: MIT
// vtrain data info | verify: what is in shards, and whether it is whole. (The other subcommands
// of `vtrain data` are in data_tools.h.)
// Floor 7.
#include <algorithm>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "data/index.h"
#include "data/index_child.h"
#include "data/shard_read.h"

namespace vt {

namespace {

std::string range_of(const std::vector<double>& v) {
    if (v.empty()) return "not given";
    const auto [low, high] = std::minmax_element(v.begin(), v.end());
    return fmt::format("{} values in [{:.4g}, {:.4g}]", v.size(), *low, *high);
}

void print_facts(const LatentFacts& f) {
    say("  codec         {}", f.codec);
    say("  channels      {}", f.channels);
    say("  scale t,h,w   {} x {} x {} pixels per latent", f.scale[0], f.scale[1], f.scale[2]);
    say("  latents       {}", f.normalised ? "normalised: (z - mean) / std" : "raw");
    say("  mean          {}", range_of(f.mean));
    say("  std           {}", range_of(f.std));
    say("  text encoder  {}, width {}, {} rows", f.text_encoder, f.text_dim, f.text_len);
    say("  fps           {}", f.fps == 0 ? "unknown or mixed" : fmt::format("{}", f.fps));
}

void print_shard(const fs::path& path, const ShardIndex& x, int64_t examples) {
    const auto& s = x.shape;
    const auto mib = [](int64_t bytes) { return static_cast<double>(bytes) / 0x1p20; };
    say("{}", path.string());
    say("  samples       {}", x.count);
    say("  shape         C,T,H,W = {},{},{},{} ({} per sample)", s[0], s[1], s[2], s[3],
        name_of(x.latent_type));
    say("  text rows     {} ({}), {:.1f} a sample; the empty caption has {}", x.text_rows,
        name_of(x.text_type),
        x.count == 0 ? 0.0 : static_cast<double>(x.text_rows) / static_cast<double>(x.count),
        static_cast<int64_t>(x.empty_text.size()) / x.facts.text_dim);
    say("  size          {:.2f} MiB; latents {:.2f}, text {:.2f}", mib(x.stamp.size),
        mib(x.latents.bytes), mib(x.text.bytes));
    const Fd fd = open_shard(path, x.stamp);
    for (int64_t i = 0; i < std::min(x.count, examples); ++i) {
        say("  sample {:<6} {} \"{}\"", i, read_id(fd, path, x, i), read_caption(fd, path, x, i));
    }
}

void print_bad(const fs::path& path, const Indexed& bad) {
    say("{}: BAD SHARD: {}", path.string(), bad.reason);
    if (!bad.hint.empty()) say("  hint: {}", bad.hint);
}

int info(const std::vector<std::string>& names, const IndexOptions& options, int64_t examples) {
    const std::vector<fs::path> files = shards_of(names);
    const std::vector<Indexed> got = index_files(files, options);
    int64_t samples = 0, bytes = 0, bad = 0, missing = 0;
    std::map<std::array<int64_t, 4>, int64_t> shapes;
    std::vector<const LatentFacts*> facts;
    for (size_t i = 0; i < files.size(); ++i) {
        if (!got[i].index) {
            ++bad;
            missing += got[i].fault == Fault::kUser ? 1 : 0;
            print_bad(files[i], got[i]);
            continue;
        }
        const ShardIndex& x = *got[i].index;
        print_shard(files[i], x, examples);
        if (std::none_of(facts.begin(), facts.end(), [&](auto* f) { return *f == x.facts; })) {
            facts.push_back(&x.facts);
            print_facts(x.facts);
        }
        samples += x.count;
        bytes += x.stamp.size;
        shapes[x.shape] += x.count;
    }
    say("total: {} samples in {} shards, {:.2f} MiB, {} bad", samples, files.size(),
        static_cast<double>(bytes) / 0x1p20, bad);
    for (const auto& [s, n] : shapes) {
        say("  {},{},{},{}: {} samples", s[0], s[1], s[2], s[3], n);
    }
    if (facts.size() > 1) {
        say("the shards hold {} different sets of facts and cannot be used in one run",
            facts.size());
    }
    return bad == 0 ? 0 : static_cast<int>(missing == bad ? Fault::kUser : Fault::kData);
}

int verify(const std::vector<std::string>& names, const IndexOptions& options) {
    const std::vector<fs::path> files = shards_of(names);
    const std::vector<Indexed> got = index_files(files, options);
    int64_t samples = 0, bad_samples = 0, bad_shards = 0, missing = 0;
    std::map<std::string, size_t> ids;  // where each was seen
    for (size_t i = 0; i < files.size(); ++i) {
        if (!got[i].index) {
            ++bad_shards;
            missing += got[i].fault == Fault::kUser ? 1 : 0;
            print_bad(files[i], got[i]);
            continue;
        }
        const ShardIndex& x = *got[i].index;
        const LatentFacts& f = x.facts;
        if (!x.has_checksums) {
            warn("{} has no checksums: what is damaged in it cannot be told", files[i].string());
        }
        const Fd fd = open_shard(files[i], x.stamp);
        std::vector<float> latent(static_cast<size_t>(x.latent_elements()));
        std::vector<float> text(static_cast<size_t>(f.text_len * f.text_dim));
        const Tensor to(latent.data(), {x.shape[0], x.shape[1], x.shape[2], x.shape[3]},
                        DType::kF32);
        const Tensor words(text.data(), {f.text_len, f.text_dim}, DType::kF32);
        for (int64_t row = 0; row < x.count; ++row, ++samples) {
            try {
                read_sample(fd, files[i], x, row, to, words);
                const std::string id = read_id(fd, files[i], x, row);
                (void)read_caption(fd, files[i], x, row);
                const auto [seen, fresh] = ids.emplace(id, i);
                if (!fresh) {
                    raise(Fault::kData,
                          fmt::format("{}, row {}: id '{}' is also in {}", files[i].string(), row,
                                      id, files[seen->second].string()));
                }
            } catch (const Error& e) {
                ++bad_samples;
                say("BAD SAMPLE: {}", e.message());
            }
        }
    }
    say("{} samples in {} shards: {} bad samples, {} bad shards", samples, files.size(),
        bad_samples, bad_shards);
    if (bad_samples + bad_shards == 0) return 0;
    return static_cast<int>(missing == bad_samples + bad_shards ? Fault::kUser : Fault::kData);
}

}  // namespace

void add_data_command(CLI::App& app, Work& work) {
    CLI::App* data = app.add_subcommand("data", "Shards of latents: look, check, make");
    data->require_subcommand(1);

    struct Args {
        std::vector<std::string> files;
        int64_t examples = 3;
        std::string foreign;  // of the child
        std::vector<std::string> maps;
        FactsArgs facts;
        [[nodiscard]] IndexOptions options() const {
            IndexOptions o;
            o.foreign.names = parse_names(maps, data_set_names(), "--map");
            o.foreign.facts = facts.given();
            return o;
        }
    };
    // how files of other formats are to be read
    const auto add_foreign = [](CLI::App& c, Args& a) {
        c.add_option("--map", a.maps,
                     "What a data set is called in files of another format: OURS=THEIRS, e.g. "
                     "latents=vae_latent");
        add_facts_options(c, a.facts);
    };
    const auto args = std::make_shared<Args>();
    CLI::App* show = data->add_subcommand("info", "Print facts, shapes, counts, sizes, examples");
    show->add_option("files", args->files, "Shards, or folders of them")->required();
    show->add_option("--examples", args->examples, "Ids and captions shown per shard")
        ->capture_default_str()
        ->check(CLI::NonNegativeNumber);
    add_foreign(*show, *args);
    show->callback([args, &work] {
        work = [args] { return info(args->files, args->options(), args->examples); };
    });

    CLI::App* check = data->add_subcommand(
        "verify",
        "Read every sample: checksums, finiteness, unique ids; exit 3 names the bad ones");
    check->add_option("files", args->files, "Shards, or folders of them")->required();
    add_foreign(*check, *args);
    check->callback(
        [args, &work] { work = [args] { return verify(args->files, args->options()); }; });

    add_data_view(*data, work);
    add_data_score(*data, work);
    add_data_encode(*data, work);
    add_data_import(*data, work);
    add_data_repack(*data, work);
    add_data_stats(*data, work);
    add_data_synth(*data, work);
    add_data_timesteps(*data, work);

    CLI::App* child = data->add_subcommand("index-child", "Used by vtrain itself")->group("");
    child->add_option("--foreign", args->foreign);
    child->add_option("files", args->files)->required();
    child->callback(
        [args, &work] { work = [args] { return index_child_main(args->foreign, args->files); }; });
}

}  // namespace vt
