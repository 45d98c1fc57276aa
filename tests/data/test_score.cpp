// SPDX-License-Identifier: MIT
// The judge of the labelled set: right on true clips, at chance on shuffled captions.
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "data/score.h"
#include "data/synth.h"

using namespace vt;

namespace {

ShapeLabel label_of(const SynthClip& c) {
    const auto l = shape_label(c.caption);
    REQUIRE(l);
    return *l;
}

}  // namespace

TEST_CASE("score: captions of the set are read, others are not") {
    CHECK(shape_label("a red circle moving left") == ShapeLabel{0, 0, 0});
    CHECK(shape_label("an orange star") == ShapeLabel{4, 6, std::nullopt});
    for (const char* other : {"", "a red circle moving", "an red circle",
                              "a red circle moving left ", "two red circles"}) {
        CHECK(!shape_label(other));
    }
}

TEST_CASE("score: at least 99 % of true clips are right, through the codec too") {
    struct Size {
        int64_t T, H, W;
        int levels;
    };
    for (const Size& z : {Size{9, 24, 24, 1}, {5, 32, 32, 2}, {9, 48, 64, 2}, {1, 32, 32, 1}}) {
        ShapeScore score;
        for (uint64_t i = 0; i < 100; ++i) {
            const SynthClip c = synth_clip(7, i, {.T = z.T, .H = z.H, .W = z.W, .fps = 8});
            const HaarCodec codec{.lt = 1, .ls = z.levels};
            std::vector<float> latent = codec.encode(c.clip);
            // what training stores is bf16: eight bits of each number
            for (float& v : latent) {
                const auto scale = static_cast<float>(std::exp2(std::ilogb(v) - 7));
                if (v != 0) v = std::round(v / scale) * scale;
            }
            const int64_t T = (z.T - 1) / 2 + 1, cell = int64_t{1} << z.levels;
            const Clip back = codec.decode(latent.data(), T, z.H / cell, z.W / cell);
            score.add(label_of(c), see_shape(back));
        }
        MESSAGE(z.T << " frames of " << z.H << "x" << z.W << ": " << score.str());
        CHECK(score.clips == 100);
        CHECK(score.all >= 99);
    }
}

TEST_CASE("score: shuffled captions are at chance, noise and blank clips are not right") {
    ShapeScore shuffled;
    const SynthSpec spec{.T = 5, .H = 24, .W = 24, .fps = 8};
    const int64_t n = 600;
    for (int64_t i = 0; i < n; ++i) {
        const auto asked = label_of(synth_clip(7, static_cast<uint64_t>(i), spec));
        const auto shown = label_of(synth_clip(8, static_cast<uint64_t>(i), spec));
        shuffled.add(asked, {.label = shown, .coverage = 0.1, .misfit = 0});
    }
    // four standard deviations of a binomial share
    const auto near_chance = [&](int64_t right, double chance) {
        const double share = static_cast<double>(right) / static_cast<double>(n);
        const double sigma = std::sqrt(chance * (1 - chance) / static_cast<double>(n));
        CHECK(std::fabs(share - chance) < 4 * sigma);
    };
    near_chance(shuffled.color, 1.0 / 8);
    near_chance(shuffled.shape, 1.0 / 7);
    near_chance(shuffled.way, 1.0 / 4);
    near_chance(shuffled.all, 1.0 / 224);

    Clip blank{.T = 5, .H = 24, .W = 24, .fps = 8, .rgb = {}};
    blank.rgb.assign(static_cast<size_t>(5 * 24 * 24 * 3), 40);
    ShapeScore none;
    none.add({0, 0, 0}, see_shape(blank));
    CHECK(none.clips == 1);
    CHECK(none.color + none.shape + none.way + none.all == 0);
}

TEST_CASE("score: a clip that runs backwards goes the other way") {
    const SynthClip c = synth_clip(3, 5, {.T = 9, .H = 32, .W = 32, .fps = 8});
    Clip back = c.clip;
    const size_t frame = static_cast<size_t>(back.H * back.W * 3);
    for (size_t t = 0; t < 9; ++t) {
        std::copy_n(c.clip.rgb.data() + (8 - t) * frame, frame, back.rgb.data() + t * frame);
    }
    const ShapeSeen seen = see_shape(back);
    const ShapeLabel label = label_of(c);
    CHECK(seen.label.color == label.color);
    CHECK(seen.label.shape == label.shape);
    CHECK(*seen.label.way == (*label.way ^ 1U));  // left and right, up and down are neighbours
}
