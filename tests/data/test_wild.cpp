// SPDX-License-Identifier: MIT
// Files as people have them: the fixtures of scripts/make_video_fixtures.sh, whose pictures all
// show one card, read and compared with it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/video.h"
#include "tests/paths.h"

namespace vt {
namespace {

using Color = std::array<int, 3>;
constexpr Color kTopLeft{200, 60, 50}, kTopRight{50, 180, 70}, kLowLeft{60, 80, 200},
    kLowRight{220, 200, 60};

bool skip() {
    if (have_video()) return false;
    MESSAGE("skipped: built without libav");
    return true;
}

fs::path fixture(const std::string& name) {
    return test::source_dir() / "tests" / "data" / "video" / name;
}

// What the test looks at of one frame: the mean colour around the middles of the card's five parts.
struct Look {
    int64_t H = 0, W = 0;
    std::array<Color, 4> quarters{};  // top left, top right, low left, low right
    Color middle{};
    bool joins = false, still = false;
};

Color mean_at(const VideoFrame& f, double y, double x) {
    std::array<double, 3> sum{};
    const auto cy = static_cast<int64_t>(y * static_cast<double>(f.H)),
               cx = static_cast<int64_t>(x * static_cast<double>(f.W));
    const int64_t reach = f.H / 24;
    int64_t n = 0;
    for (int64_t v = cy - reach; v <= cy + reach; ++v) {
        for (int64_t u = cx - reach; u <= cx + reach; ++u, ++n) {
            for (size_t c = 0; c < 3; ++c) sum.at(c) += f.rgb[(v * f.W + u) * 3 + int64_t(c)];
        }
    }
    Color out{};
    for (size_t c = 0; c < 3; ++c) {
        out.at(c) = static_cast<int>(std::lround(sum.at(c) / static_cast<double>(n)));
    }
    return out;
}

std::vector<Look> look(const std::string& name, double fps, VideoInfo* info = nullptr) {
    std::vector<Look> out;
    const VideoInfo i =
        read_video(fixture(name), {.fps = fps, .threads = 1}, [&](const VideoFrame& f) {
            out.push_back({.H = f.H,
                           .W = f.W,
                           .quarters = {mean_at(f, 0.17, 0.14), mean_at(f, 0.17, 0.86),
                                        mean_at(f, 0.83, 0.14), mean_at(f, 0.83, 0.86)},
                           .middle = mean_at(f, 0.5, 0.5),
                           .joins = f.joins,
                           .still = f.still});
            return true;
        });
    if (info != nullptr) *info = i;
    return out;
}

int distance(const Color& a, const Color& b) {
    int worst = 0;
    for (size_t c = 0; c < 3; ++c) worst = std::max(worst, std::abs(a.at(c) - b.at(c)));
    return worst;
}

void check_card(const Look& l, int tolerance) {
    const std::array<Color, 4> want{kTopLeft, kTopRight, kLowLeft, kLowRight};
    for (size_t q = 0; q < 4; ++q) {
        CAPTURE(q);
        CAPTURE(l.quarters.at(q)[0]);
        CAPTURE(l.quarters.at(q)[1]);
        CAPTURE(l.quarters.at(q)[2]);
        CHECK(distance(l.quarters.at(q), want.at(q)) <= tolerance);
    }
}

// Which frame of the card the middle shows, to the nearest.
int64_t number_of(const Look& l) {
    return std::lround((l.middle[1] - 24) / 12.0);
}

struct Kind {
    std::string name;
    int64_t frames = 12, H = 48, W = 64;
    // 6: coded colours at the encoders' finest steps; the patches are flat, so more than that is a
    // wrong matrix or range (the nearest, BT.601 read as BT.709, is 15 off)
    int tolerance = 6;
};

TEST_SUITE("data") {
    TEST_CASE("wild: containers, codecs, depths and pixel formats show the card") {
        if (skip()) return;
        for (const Kind& k : {Kind{"h264.mp4"},
                              Kind{"h264.mkv"},
                              Kind{"h264.ts"},
                              Kind{"h264.flv"},
                              Kind{"raw.h264"},
                              Kind{"hevc.mov"},
                              Kind{"vp8.webm"},
                              Kind{"vp9.webm"},
                              Kind{"av1.webm"},
                              Kind{"mpeg4.avi"},
                              Kind{"wmv2.wmv"},
                              Kind{"theora.ogv"},
                              Kind{"mjpeg.avi"},
                              Kind{.name = "ffv1.nut", .tolerance = 0},
                              Kind{.name = "animated.gif", .tolerance = 0},
                              Kind{.name = "animated.apng", .tolerance = 0},
                              Kind{"full.mp4"},
                              Kind{"bt709.mp4"},
                              Kind{"bt2020.mp4"},
                              Kind{"p444.mp4"},
                              Kind{"p422p10.mp4"},
                              Kind{"p420p10.mkv"},
                              Kind{"gbrp.mkv"},
                              Kind{"negative.mov"},
                              Kind{"late.mkv"},
                              Kind{"wide.mp4"},
                              Kind{.name = "h263.3gp", .frames = 6, .H = 144, .W = 192},
                              Kind{.name = "odd.mkv", .frames = 3, .H = 35, .W = 67},
                              Kind{.name = "hd.mp4", .frames = 2, .H = 720, .W = 1280}}) {
            CAPTURE(k.name);
            VideoInfo info;
            const auto frames = look(k.name, 0, &info);
            REQUIRE(static_cast<int64_t>(frames.size()) == k.frames);
            CHECK(info.decoded == k.frames);
            CHECK(info.trouble.empty());
            for (size_t i = 0; i < frames.size(); ++i) {
                CAPTURE(i);
                REQUIRE(frames[i].H == k.H);
                REQUIRE(frames[i].W == k.W);
                check_card(frames[i], k.tolerance);
                CHECK(number_of(frames[i]) == static_cast<int64_t>(i));
                CHECK_FALSE(frames[i].still);
            }
            // and on the clock they were made for
            if (k.name != "raw.h264") {
                CHECK(static_cast<int64_t>(look(k.name, 10).size()) == k.frames);
            }
        }
    }

    TEST_CASE("wild: pictures, with palettes, alpha, deep colour and marks of how to hold them") {
        if (skip()) return;
        for (const std::string name :
             {"rgb.png", "deep.png", "palette.png", "photo.jpg", "still.webp", "still.gif",
              "still.bmp", "still.tiff", "still.tga", "still.jp2", "single.mp4"}) {
            CAPTURE(name);
            for (const double fps : {0.0, 3.0, 60.0}) {
                const auto frames = look(name, fps);
                const bool lossy = name.ends_with(".jpg") || name.ends_with(".jp2");
                const bool video = name.ends_with(".gif") || name.ends_with(".mp4");
                REQUIRE(frames.size() == (video && fps == 60 ? 6 : 1));  // it lasts 1/10 s
                check_card(frames[0], video || lossy ? 6 : 0);
                CHECK(frames[0].still == !video);
                CHECK(distance(frames[0].middle, {24, 24, 24}) <= 3);
            }
        }
        const auto gray = look("gray.png", 0);
        REQUIRE(gray.size() == 1);
        // BT.601 luma of the card, full range: every value counts
        for (const auto& [q, rgb] : {std::pair{0, kTopLeft}, {1, kTopRight}, {3, kLowRight}}) {
            const int luma =
                static_cast<int>(std::lround(0.299 * rgb[0] + 0.587 * rgb[1] + 0.114 * rgb[2]));
            CHECK(distance(gray[0].quarters.at(static_cast<size_t>(q)), {luma, luma, luma}) <= 1);
        }
        const auto film = look("gray.mkv", 0);
        REQUIRE(film.size() == 12);
        for (size_t i = 0; i < 12; ++i) CHECK(number_of(film[i]) == static_cast<int64_t>(i));
        for (const std::string name : {"alpha.png", "alpha.webm"}) {  // its right half is not there
            CAPTURE(name);
            const auto half = look(name, 0);
            REQUIRE_FALSE(half.empty());
            const int tolerance = half[0].still ? 0 : 6;
            CHECK(distance(half[0].quarters[0], kTopLeft) <= tolerance);
            CHECK(distance(half[0].quarters[2], kLowLeft) <= tolerance);
            CHECK(distance(half[0].quarters[1], {255, 255, 255}) <= tolerance);
            CHECK(distance(half[0].quarters[3], {255, 255, 255}) <= tolerance);
        }
        const auto held = look("exif6.jpg", 0);
        REQUIRE(held.size() == 1);
        CHECK(held[0].H == 64);
        CHECK(held[0].W == 48);
        CHECK(distance(held[0].quarters[0], kLowLeft) <= 6);
        CHECK(distance(held[0].quarters[1], kTopLeft) <= 6);
    }

    TEST_CASE("wild: turned files are shown turned") {
        if (skip()) return;
        // how a quarter turn carries the card's corners, read row by row
        struct Turned {
            std::string name;
            int64_t H;
            std::array<Color, 4> want;
        };
        for (const Turned& t :
             {Turned{"turned90.mp4", 64, {kTopRight, kLowRight, kTopLeft, kLowLeft}},
              Turned{"turned180.mp4", 48, {kLowRight, kLowLeft, kTopRight, kTopLeft}},
              Turned{"turned270.mp4", 64, {kLowLeft, kTopLeft, kLowRight, kTopRight}}}) {
            CAPTURE(t.name);
            const auto frames = look(t.name, 0);
            REQUIRE(frames.size() == 12);
            CHECK(frames[0].H == t.H);
            CHECK(frames[0].W == 112 - t.H);
            for (size_t q = 0; q < 4; ++q) {
                CAPTURE(q);
                CHECK(distance(frames[0].quarters.at(q), t.want.at(q)) <= 6);
            }
        }
    }

    TEST_CASE("wild: frames are chosen by time, not by number") {
        if (skip()) return;
        // frame i is at i*i/100 s: at 10 fps, tick k shows the i with i*i nearest to 10 k at or
        // before it, unless a later one is nearer to the tick
        const auto frames = look("vfr.mkv", 10);
        REQUIRE(frames.size() >= 12);
        int64_t shown = 0;
        for (int64_t k = 0; k <= 12; ++k) {
            for (int64_t i = 0; i < 12; ++i) {
                // a frame belongs to its nearest tick; of several there the nearest counts
                const double at = static_cast<double>(i * i) / 10;
                if (std::llround(at - 1e-3) == k &&
                    (std::llround(static_cast<double>(shown * shown) / 10 - 1e-3) != k ||
                     std::fabs(at - static_cast<double>(k)) <
                         std::fabs(static_cast<double>(shown * shown) / 10 -
                                   static_cast<double>(k)))) {
                    shown = i;
                }
            }
            CAPTURE(k);
            CHECK(number_of(frames[static_cast<size_t>(k)]) == shown);
        }
        // an NTSC clock with every frame three times, and an edit list that starts at frame 4
        const auto ntsc = look("ntsc.mov", 10);
        REQUIRE(ntsc.size() == 12);
        for (size_t i = 0; i < 12; ++i) CHECK(number_of(ntsc[i]) == static_cast<int64_t>(i));
        const auto edited = look("edited.mp4", 10);
        REQUIRE(edited.size() >= 8);
        REQUIRE(edited.size() <= 9);
        CHECK(number_of(edited.front()) == 4);
        CHECK(number_of(edited.back()) == 11);
        for (const std::string name : {"mpeg1.mpg", "mpeg2.vob"}) {  // 25 fps made of 10
            CAPTURE(name);
            const auto ten = look(name, 10);
            REQUIRE(ten.size() >= 11);
            REQUIRE(ten.size() <= 13);
            for (size_t i = 0; i < 11; ++i) {
                CHECK(std::abs(number_of(ten[i]) - static_cast<int64_t>(i)) <= 1);
                check_card(ten[i], 6);
            }
        }
    }

    TEST_CASE("wild: a clock that jumps begins a new stretch and loses nothing") {
        if (skip()) return;
        const auto frames = look("jump.ts", 10);
        REQUIRE(frames.size() == 24);
        for (size_t i = 0; i < 24; ++i) {
            CAPTURE(i);
            CHECK(number_of(frames[i]) == static_cast<int64_t>(i % 12));
            CHECK(frames[i].joins == (i % 12 != 0));
        }
    }

    TEST_CASE("wild: of interlaced frames one field") {
        if (skip()) return;
        const auto frames = look("interlaced.mpg", 0);
        REQUIRE(frames.size() >= 10);
        for (const Look& l : frames) {
            check_card(l, 6);
            // woven fields differ by 12 in the middle: a comb's mean lies 6 from both
            CHECK(std::abs(l.middle[1] - (24 + 12 * number_of(l))) <= 3);
        }
    }

    TEST_CASE(
        "wild: of several streams the best, sound and covers refused, cut files as far as "
        "they go") {
        if (skip()) return;
        const auto best = look("streams.mkv", 0);
        REQUIRE_FALSE(best.empty());
        CHECK(best[0].W == 64);  // the one the file marks as its default, though it is smaller
        check_card(best[0], 6);
        const auto cut = look("cut-faststart.mp4", 0);
        CHECK(cut.size() >= 2);
        CHECK(cut.size() < 12);
        for (const Look& l : cut) check_card(l, 6);
        for (const auto& [name, why] : {std::pair{"sound.mp4", "it has no video stream"},
                                        {"cover.mp4", "only a cover picture"},
                                        {"cut.mp4", "ends before its index (moov)"},
                                        {"animated.webp", "animated WebP"}}) {
            CAPTURE(name);
            CHECK_THROWS_WITH_AS((void)look(name, 0), doctest::Contains(why), Error);
        }
    }

    TEST_CASE("wild: files that name other files reach none of them") {
        if (skip()) return;
        const test::TempDir dir;
        const std::string other = fixture("h264.mp4").string();
        write_atomic(dir / "list.ffconcat", "ffconcat version 1.0\nfile '" + other + "'\n");
        write_atomic(dir / "list.m3u8", "#EXTM3U\n#EXT-X-TARGETDURATION:2\n#EXTINF:2,\nfile:" +
                                            other + "\n#EXT-X-ENDLIST\n");
        for (const std::string name : {"list.ffconcat", "list.m3u8"}) {
            CAPTURE(name);
            CHECK_THROWS_AS(
                (void)read_video(dir / name, {}, [](const VideoFrame&) { return true; }), Error);
            CHECK_FALSE(looks_like_video(dir / name));
        }
        // a name that looks like a pattern is a name
        fs::copy_file(fixture("still.tga"), dir / "a%03d.tga");
        fs::copy_file(fixture("rgb.png"), dir / "b%d*.png");
        for (const std::string name : {"a%03d.tga", "b%d*.png"}) {
            int64_t frames = 0;
            (void)read_video(dir / name, {}, [&](const VideoFrame&) { return ++frames > 0; });
            CHECK(frames == 1);
        }
    }

    TEST_CASE("wild: what is worth trying, by ending or by content") {
        if (skip()) return;
        const test::TempDir dir;
        fs::copy_file(fixture("h264.mp4"), dir / "8f3a21");
        fs::copy_file(fixture("h264.mkv"), dir / "clip.backup");
        write_atomic(dir / "notes", "only words, and more words\n");
        write_atomic(dir / "notes.md", "# words\n");
        write_atomic(dir / "empty", "");
        CHECK(looks_like_video(dir / "8f3a21"));
        CHECK(looks_like_video(dir / "clip.backup"));
        CHECK(looks_like_video("any/A.MP4"));
        CHECK(looks_like_video("any/a.webp"));
        for (const std::string name : {"notes", "notes.md", "empty", "absent"}) {
            CAPTURE(name);
            CHECK_FALSE(looks_like_video(dir / name));
        }
        for (const std::string name : {"a.txt", "a.csv", "a.jsonl", "a.srt", "a.wav", "a.h5"}) {
            CAPTURE(name);
            CHECK_FALSE(looks_like_video(name));
        }
    }
}

}  // namespace
}  // namespace vt
