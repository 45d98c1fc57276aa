// SPDX-License-Identifier: MIT
// vtrain data score: do clips of the labelled set show what their captions say? Floor 7.
#include <filesystem>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "data/index.h"
#include "data/moving_shapes.h"
#include "data/score.h"
#include "data/shard_read.h"

namespace vt {
namespace {

struct Args {
    std::vector<fs::path> shards;
    bool list = false;
};

std::string words(const ShapeLabel& l) {
    std::string out = fmt::format("{} {}", kShapeColors.at(l.color).name, kShapeNames.at(l.shape));
    if (l.way) out += fmt::format(" moving {}", kShapeWays.at(*l.way).name);
    return out;
}

int score(const Args& a) {
    ShapeScore total;
    int64_t others = 0;
    const auto indexed = index_files(a.shards, {});
    for (size_t f = 0; f < a.shards.size(); ++f) {
        if (!indexed[f].index) {
            raise(Fault::kData, fmt::format("{}: {}", a.shards[f].string(), indexed[f].reason),
                  indexed[f].hint);
        }
        const ShardIndex& index = *indexed[f].index;
        const auto& s = index.shape;
        const Fd fd = open_shard(a.shards[f], index.stamp);
        std::vector<float> latent(static_cast<size_t>(index.latent_elements()));
        std::vector<float> text(static_cast<size_t>(index.facts.text_len * index.facts.text_dim));
        for (int64_t row = 0; row < index.count; ++row) {
            const std::string caption = read_caption(fd, a.shards[f], index, row);
            const auto asked = shape_label(caption);
            if (!asked) {
                ++others;
                continue;
            }
            read_sample(fd, a.shards[f], index, row,
                        {latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32},
                        {text.data(), {index.facts.text_len, index.facts.text_dim}, DType::kF32});
            const ShapeSeen seen =
                see_shape(decode_latent(index.facts, latent.data(), s[1], s[2], s[3]));
            total.add(*asked, seen);
            if (a.list) {
                say("{} row {}: \"{}\" looks like {} (misfit {:.2f})", a.shards[f].string(), row,
                    caption, words(seen.label), seen.misfit);
            }
        }
    }
    if (total.clips == 0) {
        raise(Fault::kUser,
              fmt::format("none of {} captions is of the labelled set (\"a red circle moving "
                          "left\")",
                          others),
              "only clips of `vtrain data synth`, and samples of a model trained on them, can be "
              "scored");
    }
    if (others > 0) say("{} clips with other captions left out", others);
    say("{}", total.str());
    return 0;
}

}  // namespace

void add_data_score(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand(
        "score",
        "Tell whether clips of moving shapes show what their captions say: colour, shape and way");
    const auto a = std::make_shared<Args>();
    c->add_option("shards", a->shards,
                  "Shards of `vtrain data synth`, or the samples.h5 of `vtrain sample`")
        ->required();
    c->add_flag("--list", a->list, "Say of each clip what it looks like");
    c->callback([a, &work] { work = [a] { return score(*a); }; });
}

}  // namespace vt
