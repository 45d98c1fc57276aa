// SPDX-License-Identifier: MIT
// vtrain data view: samples of shards as pictures. Floor 7.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
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
};

// Decodes `count` samples spread evenly over one shard. Returns how many.
int64_t view_shard(const fs::path& path, const ShardIndex& index, const fs::path& out,
                   int64_t count) {
    const auto& s = index.shape;
    const Fd fd = open_shard(path, index.stamp);
    std::vector<float> latent(static_cast<size_t>(index.latent_elements()));
    std::vector<float> text(static_cast<size_t>(index.facts.text_len * index.facts.text_dim));
    const int64_t n = std::min(count, index.count);
    std::vector<Clip> clips;
    clips.reserve(static_cast<size_t>(n));
    std::vector<SheetRow> rows;
    const std::string stem = path.stem().string();
    for (int64_t i = 0; i < n; ++i) {
        const int64_t row = i * index.count / n;
        read_sample(fd, path, index, row, {latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32},
                    {text.data(), {index.facts.text_len, index.facts.text_dim}, DType::kF32});
        clips.push_back(decode_latent(index.facts, latent.data(), s[1], s[2], s[3]));
        const std::string caption = read_caption(fd, path, index, row);
        rows.push_back({fmt::format("{}: {}", row, caption), &clips.back()});
        if (have_video()) {
            write_mp4(out / fmt::format("{}-{:06}.mp4", stem, row), clips.back());
        }
    }
    if (n > 0) write_contact_sheet(out / (stem + ".png"), rows);
    return n;
}

int view(const Args& a) {
    if (a.count < 1) raise(Fault::kUser, fmt::format("--count {}: must be 1 or more", a.count));
    const auto indexed = index_files(a.shards, {});
    std::error_code ec;
    fs::create_directories(a.out, ec);
    if (ec) raise(Fault::kSystem, fmt::format("cannot make {}: {}", a.out.string(), ec.message()));
    for (size_t i = 0; i < a.shards.size(); ++i) {
        if (!indexed[i].index) {
            raise(Fault::kData, fmt::format("{}: {}", a.shards[i].string(), indexed[i].reason),
                  indexed[i].hint);
        }
        const int64_t n = view_shard(a.shards[i], *indexed[i].index, a.out, a.count);
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
    c->add_option("--count", a->count, "Samples of each shard")->capture_default_str();
    c->callback([a, &work] { work = [a] { return view(*a); }; });
}

}  // namespace vt
