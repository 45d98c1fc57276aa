// SPDX-License-Identifier: MIT
// vtrain data view: samples of shards as pictures. Floor 7.
#include <algorithm>
#include <map>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "data/encode.h"
#include "data/image.h"
#include "data/index.h"
#include "data/shard_read.h"
#include "data/video.h"

namespace vt {
namespace {

struct Args {
    std::vector<fs::path> shards;
    fs::path out;
    int64_t count = 8;
    bool gif = false;
};

// A name for each shard's pictures: its own, and of equal ones the folder's before it, and a number
// if that is not enough.
std::vector<std::string> names_of(const std::vector<fs::path>& shards) {
    std::map<std::string, int> stems, longer;
    for (const fs::path& p : shards) ++stems[p.stem().string()];
    std::vector<std::string> out;
    for (const fs::path& p : shards) {
        std::string name = p.stem().string();
        if (stems[name] > 1) {
            name =
                fs::absolute(p).lexically_normal().parent_path().filename().string() + "-" + name;
        }
        const int before = longer[name]++;
        if (before > 0) name += fmt::format("-{}", before + 1);
        out.push_back(name);
    }
    return out;
}

// Decodes `count` samples spread evenly over one shard. Returns how many.
int64_t view_shard(const fs::path& path, const ShardIndex& index, const std::string& stem,
                   const Args& a) {
    const auto& s = index.shape;
    const Fd fd = open_shard(path, index.stamp);
    std::vector<float> latent(static_cast<size_t>(index.latent_elements()));
    std::vector<float> text(static_cast<size_t>(index.facts.text_len * index.facts.text_dim));
    const int64_t n = std::min(a.count, index.count);
    std::vector<Clip> clips;
    clips.reserve(static_cast<size_t>(n));
    std::vector<SheetRow> rows;
    for (int64_t i = 0; i < n; ++i) {
        const int64_t row = i * index.count / n;
        read_sample(fd, path, index, row, {latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32},
                    {text.data(), {index.facts.text_len, index.facts.text_dim}, DType::kF32});
        clips.push_back(decode_latent(index.facts, latent.data(), s[1], s[2], s[3]));
        const std::string caption = read_caption(fd, path, index, row);
        rows.push_back({fmt::format("{}: {}", row, caption), &clips.back()});
        if (have_video()) {
            const std::string name = fmt::format("{}-{:06}", stem, row);
            write_mp4(a.out / (name + ".mp4"), clips.back());
            if (a.gif) write_gif(a.out / (name + ".gif"), clips.back());
        }
    }
    if (n > 0) write_contact_sheet(a.out / (stem + ".png"), rows);
    return n;
}

int view(const Args& a) {
    for (const fs::path& p : a.shards) {
        std::error_code ec;
        if (!fs::exists(p, ec)) raise(Fault::kUser, fmt::format("{}: no such file", p.string()));
        if (fs::is_directory(p, ec)) {
            raise(Fault::kUser, fmt::format("{}: is a folder", p.string()),
                  fmt::format("name its shards: {}/*.h5", p.string()));
        }
    }
    if (a.gif && !have_video()) {
        raise(Fault::kUser, "--gif: this vtrain was built without libav",
              "install the libav development packages and configure with -DVTRAIN_LIBAV=ON");
    }
    const auto indexed = index_files(a.shards, {});
    const auto names = names_of(a.shards);
    make_folder(a.out, "--out");
    for (size_t i = 0; i < a.shards.size(); ++i) {
        if (!indexed[i].index) {
            raise(Fault::kData, fmt::format("{}: {}", a.shards[i].string(), indexed[i].reason),
                  indexed[i].hint);
        }
        const int64_t n = view_shard(a.shards[i], *indexed[i].index, names[i], a);
        say("{}: {} of {} samples to {}", a.shards[i].string(), n, indexed[i].index->count,
            a.out.string());
    }
    return 0;
}

}  // namespace

void add_data_view(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand("view", "Decode samples of shards to a picture and videos");
    const auto a = std::make_shared<Args>();
    c->add_option("shards", a->shards, "Shards (*.h5)")->required();
    c->add_option("--out", a->out, "Folder for the pictures")->required();
    c->add_option("--count", a->count, "Samples of each shard")
        ->check(CLI::Range(int64_t{1}, int64_t{100000}))
        ->capture_default_str();
    c->add_flag("--gif", a->gif, "Also write each clip as an animated GIF");
    c->callback([a, &work] { work = [a] { return view(*a); }; });
}

}  // namespace vt
