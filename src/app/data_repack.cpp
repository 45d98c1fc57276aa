// SPDX-License-Identifier: MIT
// vtrain data repack: HDF5 of any layout to shards as the reader wants them. Floor 7.
#include <fmt/format.h>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "data/h5_child.h"
#include "data/import.h"
#include "data/import_file.h"

namespace vt {

namespace {

struct Args {
    std::vector<fs::path> paths;  // IN ..., OUT
    std::vector<std::string> maps;
    FactsArgs facts;
    std::string layout = "NCTHW", dtype = "as stored", empty_text;
    bool normalise = false, strict = false;
};

void check_layout(const std::string& layout) {
    std::string letters = layout;
    std::sort(letters.begin(), letters.end());
    if (layout.empty() || layout[0] != 'N' || (letters != "CHNTW" && letters != "CHNW")) {
        raise(Fault::kUser,
              fmt::format("--layout {}: must be N, then C, T, H and W in some order", layout),
              "for example NTCHW, or NCHW where there is one frame");
    }
}

// One file to one shard.
class Repack {
  public:
    Repack(const Args& args, fs::path from, fs::path to)
        : args_(args), from_(std::move(from)), to_(std::move(to)) {}

    // Samples written.
    int64_t run(const IndexOptions& options) {
        read_h5(
            from_, options, [&](const H5Head& h) { begin(h, options.foreign.facts); },
            [&](const H5Sample& s) { take(s); });
        if (written_ == 0 && bad_ > 0) {
            raise(Fault::kData,
                  fmt::format("{}: none of its {} samples can be used", from_.string(), bad_));
        }
        writer_->close();
        say("{}: {} samples of {},{},{},{} written to {}{}", from_.string(), written_, shape_[0],
            shape_[1], shape_[2], shape_[3], to_.string(),
            bad_ > 0 ? fmt::format(", {} left out", bad_) : "");
        return written_;
    }

  private:
    void begin(const H5Head& h, const FactsGiven& given) {
        FactsGiven facts = h.facts;
        join_facts(facts, given, from_.string(), "what was given");
        add_known(facts);
        if (!facts.text_dim) facts.text_dim = h.text_dim;
        if (!facts.channels) facts.channels = h.shape[0];
        if (*facts.text_dim != h.text_dim || *facts.channels != h.shape[0]) {
            raise(Fault::kData,
                  fmt::format("{}: latents have {} channels and text is {} wide, the facts say {} "
                              "and {}",
                              from_.string(), h.shape[0], h.text_dim, *facts.channels,
                              *facts.text_dim),
                  "is --layout right?");
        }
        if (args_.normalise) {
            if (facts.normalised.value_or(true) || !facts.mean || !facts.std) {
                raise(
                    Fault::kUser,
                    fmt::format("--normalise: {} must be stated to hold raw latents, with mean and "
                                "std",
                                from_.string()),
                    "--normalised no, and --codec or --mean and --std");
            }
            facts.normalised = true;
        }
        facts_ = complete_facts(facts, "as options or in --facts");
        std::vector<float> empty = h.empty_text;
        if (!h.has_empty) {
            if (args_.empty_text.empty()) {
                raise(Fault::kUser,
                      fmt::format("{} holds no embedding of the empty caption", from_.string()),
                      "--empty-text FILE (.safetensors, .npy), or --empty-text zero");
            }
            ImportSpec spec;
            spec.empty_text = args_.empty_text;
            int64_t dim = h.text_dim;
            empty = read_empty_text(spec, &dim);
        }
        const bool half =
            args_.dtype == "bf16" || (args_.dtype == "as stored" && h.stored == Stored::kBF16);
        shape_ = h.shape;
        unchecked_ = !h.has_checksums;
        if (unchecked_) {
            warn("{} has no checksums: what is damaged in it cannot be told", from_.string());
        }
        writer_ =
            std::make_unique<ShardWriter>(to_, facts_, shape_, std::move(empty),
                                          ShardOptions{.dtype = half ? DType::kBF16 : DType::kF32});
    }

    void take(const H5Sample& s) {
        const int64_t row = written_ + bad_;
        ShardSample out{
            .id = s.id.empty() ? fmt::format("{}#{}", from_.stem().string(), row) : s.id,
            .caption = s.caption,
            .latent = s.latent,
            .text = s.text};
        if (args_.normalise) {
            const size_t per = out.latent.size() / facts_.mean.size();
            for (size_t i = 0; i < out.latent.size(); ++i) {
                const size_t c = i / per;
                out.latent[i] =
                    static_cast<float>((double{out.latent[i]} - facts_.mean[c]) / facts_.std[c]);
            }
        }
        try {
            if (s.damaged) raise(Fault::kData, "its checksum does not fit its bytes");
            writer_->add(out);
            ++written_;
        } catch (const Error& e) {
            if (e.fault() != Fault::kData || args_.strict) throw;
            ++bad_;
            warn("{}, row {}: left out: {}", from_.string(), row, e.message());
        }
    }

    const Args& args_;
    fs::path from_, to_;
    std::array<int64_t, 4> shape_{};
    LatentFacts facts_;
    std::unique_ptr<ShardWriter> writer_;
    int64_t written_ = 0, bad_ = 0;
    bool unchecked_ = false;
};

int repack(const Args& a) {
    if (a.paths.size() < 2) {
        raise(Fault::kUser, "data repack needs the file to read and the one to write",
              "vtrain data repack IN.h5 OUT.h5, or IN1.h5 IN2.h5 ... FOLDER");
    }
    check_layout(a.layout);
    IndexOptions options;
    options.foreign.names = parse_names(a.maps, data_set_names(), "--map");
    options.foreign.facts = a.facts.given();
    options.foreign.layout = a.layout;
    const fs::path out = a.paths.back();
    const bool folder = a.paths.size() > 2 || fs::is_directory(out);
    if (folder) fs::create_directories(out);
    int64_t bad = 0;
    for (size_t i = 0; i + 1 < a.paths.size(); ++i) {
        const fs::path& from = a.paths[i];
        const fs::path to = folder ? out / (from.stem().string() + ".h5") : out;
        try {
            if (fs::exists(to)) {
                raise(Fault::kUser, fmt::format("{} is there already", to.string()),
                      "nothing is written over");
            }
            (void)Repack(a, from, to).run(options);
        } catch (const Error& e) {
            if (a.paths.size() == 2 || e.fault() != Fault::kData || a.strict) throw;
            ++bad;
            warn("left out: {}; {}", e.message(), e.hint());
        }
    }
    return bad == 0 ? 0 : static_cast<int>(Fault::kData);
}

}  // namespace

void add_data_repack(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand(
        "repack",
        "HDF5 of any layout (chunked, compressed, big-endian, strings as data sets, data sets of "
        "other names) to shards that are read in place. vtrain data repack IN.h5 OUT.h5, or "
        "IN1.h5 IN2.h5 ... FOLDER");
    const auto a = std::make_shared<Args>();
    c->add_option("paths", a->paths, "The files to read, and last the one (or folder) to write")
        ->required();
    c->add_option("--map", a->maps,
                  fmt::format("What a data set is called there: OURS=THEIRS, perhaps with groups "
                              "(text=cond/prompt_embeds). OURS: {}",
                              fmt::join(data_set_names(), ", ")));
    c->add_option("--layout", a->layout, "The dims of latents there, e.g. NTCHW")
        ->capture_default_str();
    c->add_option("--empty-text", a->empty_text,
                  "File with the embedding of the empty caption, or the word zero, where the file "
                  "has no empty_text");
    c->add_option("--dtype", a->dtype, "Stored numbers: bf16, f32 or as stored (bf16 or f32)")
        ->check(CLI::IsMember({"bf16", "f32", "as stored"}))
        ->capture_default_str();
    c->add_flag("--normalise", a->normalise, "Normalise raw latents by mean and std");
    c->add_flag("--strict", a->strict, "End at the first sample that cannot be used");
    add_facts_options(*c, a->facts);
    c->callback([a, &work] { work = [a] { return repack(*a); }; });

    struct ChildArgs {
        std::string foreign, file;
    };
    CLI::App* child = data.add_subcommand("h5-child", "Used by vtrain itself")->group("");
    const auto b = std::make_shared<ChildArgs>();
    child->add_option("--foreign", b->foreign);
    child->add_option("file", b->file)->required();
    child->callback([b, &work] { work = [b] { return h5_child_main(b->foreign, b->file); }; });
}

}  // namespace vt
