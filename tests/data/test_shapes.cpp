// SPDX-License-Identifier: MIT
#include <cmath>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/cut.h"
#include "data/shapes.h"
#include "data/synth.h"
#include "tests/paths.h"

namespace vt {
namespace {

fs::path fixture(const std::string& name) {
    return test::source_dir() / "tests" / "data" / "video" / name;
}

struct Clips {
    CutReport report;
    std::vector<Clip> clips;
};

Clips cut(const fs::path& path, const CutSpec& spec) {
    Clips out;
    out.report = cut_video(path, spec, [&](const Clip& c, int64_t k) {
        CHECK(k == static_cast<int64_t>(out.clips.size()));
        out.clips.push_back(c);
    });
    CHECK(out.report.clips == static_cast<int64_t>(out.clips.size()));
    return out;
}

// The card's frame number (tests/data/test_wild.cpp) of frame t.
int64_t number_at(const Clip& c, int64_t t) {
    const auto at = static_cast<size_t>(((t * c.H + c.H / 2) * c.W + c.W / 2) * 3);
    return std::lround((c.rgb[at] - 24) / 12.0);
}

bool skip() {
    if (have_video()) return false;
    MESSAGE("skipped: built without libav");
    return true;
}

TEST_SUITE("data") {
    TEST_CASE("shapes: written and made") {
        const auto s = parse_shapes("256x448x17,8x16x1", "--shapes");
        REQUIRE(s.size() == 2);
        CHECK(s[0] == ClipShape{.H = 256, .W = 448, .T = 17});
        CHECK(name_of(s[1]) == "8x16x1");
        for (const char* bad : {"", "16x16", "16x16x0", "16x16x5,", "16x16x5x1", "-1x16x5",
                                "1e2x4x1", "16x16x5,16x16x5", "99999x16x1"}) {
            CAPTURE(bad);
            CHECK_THROWS_AS((void)parse_shapes(bad, "--shapes"), Error);
        }
        const auto a = parse_aspects("16:9,1:1,0.5625");
        REQUIRE(a.size() == 3);
        CHECK(a[0] == doctest::Approx(16.0 / 9));
        CHECK(a[2] == doctest::Approx(9.0 / 16));
        for (const char* bad : {"", "16:", "0:1", "1:0", "nan", "inf", "16:9:1", "100:1", "-1"}) {
            CAPTURE(bad);
            CHECK_THROWS_AS((void)parse_aspects(bad), Error);
        }
        const auto made = make_shapes(
            {.area = 480 * 832, .aspects = {16.0 / 9, 1, 9.0 / 16}, .frames = {1, 81}, .cell = 16});
        REQUIRE(made.size() == 6);
        for (const ClipShape& m : made) {
            CAPTURE(name_of(m));
            CHECK(m.H % 16 == 0);
            CHECK(m.W % 16 == 0);
            // half a cell a side at most: under 4 % each
            CHECK(std::fabs(std::log(static_cast<double>(m.H * m.W) / (480.0 * 832))) < 0.07);
        }
        CHECK(made[0] == ClipShape{.H = 480, .W = 832, .T = 1});
        CHECK(made[1] == ClipShape{.H = 480, .W = 832, .T = 81});
        CHECK(made[2] == ClipShape{.H = 624, .W = 624, .T = 1});
        CHECK(made[4].H == made[0].W);
        // aspects that round to one size
        CHECK(make_shapes({.area = 64, .aspects = {1, 1.05}, .frames = {1}, .cell = 8}).size() ==
              1);
    }

    TEST_CASE("shapes: the nearest aspect, then the largest that needs no enlarging") {
        const auto shapes = parse_shapes("64x64x5,32x64x5,64x32x5,128x128x5,96x96x1", "--shapes");
        const auto pick = [&](int64_t T, int64_t H, int64_t W, bool enlarge = true) {
            const auto s = choose_shape(shapes, T, H, W, enlarge);
            return s ? name_of(*s) : "none";
        };
        CHECK(pick(5, 1080, 1920) == "32x64x5");
        CHECK(pick(5, 1920, 1080) == "64x32x5");
        CHECK(pick(5, 500, 510) == "128x128x5");
        CHECK(pick(5, 100, 100) == "64x64x5");
        CHECK(pick(5, 20, 20) == "64x64x5");
        CHECK(pick(5, 20, 20, false) == "none");
        CHECK(pick(5, 64, 200, false) == "32x64x5");
        CHECK(pick(1, 1080, 1920) == "96x96x1");
        CHECK(pick(9, 64, 64) == "none");
        CHECK(crop_share({.H = 64, .W = 64, .T = 1}, 100, 200) == doctest::Approx(0.5));
        CHECK(crop_share({.H = 64, .W = 64, .T = 1}, 200, 100) == doctest::Approx(0.5));
        CHECK(crop_share({.H = 9, .W = 16, .T = 1}, 1080, 1920) == doctest::Approx(0));
    }

    TEST_CASE("cut: the longest shape that fits, clips by stride, none over a break") {
        if (skip()) return;
        CutSpec spec{.shapes = parse_shapes("24x32x9,24x32x5,24x32x1", "--shapes"), .fps = 10};
        auto got = cut(fixture("h264.mp4"), spec);  // 12 frames
        REQUIRE(got.clips.size() == 1);
        CHECK(got.report.shape == ClipShape{.H = 24, .W = 32, .T = 9});
        for (int64_t t = 0; t < 9; ++t) CHECK(number_at(got.clips[0], t) == t);
        spec.stride = 1;
        got = cut(fixture("h264.mp4"), spec);
        REQUIRE(got.clips.size() == 4);
        for (int64_t k = 0; k < 4; ++k) {
            CHECK(number_at(got.clips[static_cast<size_t>(k)], 0) == k);
            CHECK(number_at(got.clips[static_cast<size_t>(k)], 8) == k + 8);
        }
        spec.max_clips = 2;
        CHECK(cut(fixture("h264.mp4"), spec).clips.size() == 2);
        spec.max_clips = 0;
        spec.stride = 7;
        spec.shapes = parse_shapes("24x32x3", "--shapes");
        got = cut(fixture("h264.mp4"), spec);
        REQUIRE(got.clips.size() == 2);
        CHECK(number_at(got.clips[1], 0) == 7);
        // 6 frames: the next shorter one; two stretches of 12: never a clip of both
        spec.stride = 0;
        spec.shapes = parse_shapes("24x32x9,24x32x5", "--shapes");
        got = cut(fixture("h263.3gp"), spec);
        REQUIRE(got.clips.size() == 1);
        CHECK(got.report.shape.T == 5);
        spec.shapes = parse_shapes("24x32x7", "--shapes");
        got = cut(fixture("jump.ts"), spec);
        REQUIRE(got.clips.size() == 2);
        CHECK(number_at(got.clips[0], 0) == 0);
        CHECK(number_at(got.clips[1], 0) == 0);
        spec.shapes = parse_shapes("24x32x13", "--shapes");
        got = cut(fixture("jump.ts"), spec);
        CHECK(got.report.refused == "too short: 12 frames at 10 fps, a clip needs 13");
        CHECK(got.report.kind == "too short");
        // stills out of a video: one a second
        spec.shapes = parse_shapes("24x32x1", "--shapes");
        got = cut(fixture("h264.mp4"), spec);
        REQUIRE(got.clips.size() == 2);
        CHECK(number_at(got.clips[1], 0) == 10);
    }

    TEST_CASE("cut: pictures, short videos, and what is refused") {
        if (skip()) return;
        CutSpec spec{.shapes = parse_shapes("48x64x17,32x32x1", "--shapes"), .fps = 10};
        for (const char* name : {"rgb.png", "photo.jpg", "single.mp4", "h264.mp4"}) {
            CAPTURE(name);
            const auto got = cut(fixture(name), spec);
            REQUIRE(got.clips.size() == 1);
            CHECK(got.report.shape == ClipShape{.H = 32, .W = 32, .T = 1});
            CHECK(got.report.crop == doctest::Approx(0.25));
            CHECK(number_at(got.clips[0], 0) == 0);
        }
        spec.max_crop = 0.2;
        CHECK(cut(fixture("rgb.png"), spec).report.kind == "unlike every shape");
        spec.max_crop = 1;
        spec.enlarge = false;
        spec.shapes = parse_shapes("96x96x1", "--shapes");
        CHECK(cut(fixture("rgb.png"), spec).report.kind == "smaller than every shape");
        spec.shapes = parse_shapes("48x64x9", "--shapes");
        CHECK(cut(fixture("rgb.png"), spec).report.refused ==
              "too short: 1 frame, a picture; a clip needs 9");
        CHECK(cut(fixture("sound.mp4"), spec).report.kind == "it has no video stream");
        CHECK(cut(fixture("cover.mp4"), spec).report.kind == "it has no video stream");
        CHECK(cut(fixture("absent.mp4"), spec).report.kind == "No such file or directory");
        spec.shapes = parse_shapes("48x64x1", "--shapes");
        const auto part = cut(fixture("cut-faststart.mp4"), spec);
        CHECK(part.report.refused.empty());
        CHECK_FALSE(part.report.trouble.empty());
    }

    TEST_CASE("cut: what is kept of a picture of another shape") {
        // a column of 2 x 6 pixels to 2 x 2: the middle, the top, or all of it
        std::vector<uint8_t> column;
        for (int y = 0; y < 6; ++y) column.insert(column.end(), 6, static_cast<uint8_t>(40 * y));
        const auto rows = [&](Crop crop) {
            const auto out = resize_crop(column.data(), 6, 2, 2, 2, crop);
            return std::array<int, 2>{out[0], out[6]};
        };
        CHECK(rows(Crop::kCenter) == std::array{80, 120});
        CHECK(rows(Crop::kTop) == std::array{0, 40});
        CHECK(rows(Crop::kSqueeze) == std::array{40, 160});
    }
}

}  // namespace
}  // namespace vt
