// SPDX-License-Identifier: MIT
#include <cmath>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
#include "data/image.h"
#include "data/synth.h"
#include "tests/paths.h"

namespace vt {
namespace {

std::vector<uint8_t> read_png(const fs::path& path, int64_t* H, int64_t* W) {
    std::vector<uint8_t> out;
    (void)read_video(path, {}, [&](const VideoFrame& f) {
        *H = f.H;
        *W = f.W;
        out.assign(f.rgb, f.rgb + f.H * f.W * 3);
        return true;
    });
    return out;
}

TEST_SUITE("data") {
    TEST_CASE("png: another decoder reads back every byte") {
        if (!have_video()) {
            MESSAGE("skipped: needs libav to read PNG");
            return;
        }
        const test::TempDir dir;
        struct Case {
            int64_t H, W;
            int kind;
        };
        // noise (literals, 9-bit codes), flat and periodic (longest matches, all distances), smooth
        for (const Case c : {Case{1, 1, 0}, Case{37, 53, 0}, Case{300, 301, 1}, Case{64, 700, 2},
                             Case{129, 1, 3}, Case{200, 333, 3}}) {
            CAPTURE(c.H);
            CAPTURE(c.kind);
            std::vector<uint8_t> rgb(static_cast<size_t>(c.H * c.W * 3));
            for (size_t i = 0; i < rgb.size(); ++i) {
                const auto bits = random_bits(4, Purpose::kTest, 1, c.kind == 2 ? i % 1237 : i);
                rgb[i] = static_cast<uint8_t>(c.kind == 1   ? 200
                                              : c.kind == 3 ? (i / 7 + i / 911) & 0xff
                                                            : bits >> 24);
            }
            const fs::path path = dir / "a.png";
            write_png(path, rgb.data(), c.H, c.W);
            int64_t H = 0, W = 0;
            CHECK(read_png(path, &H, &W) == rgb);
            CHECK(H == c.H);
            CHECK(W == c.W);
            if (c.kind == 1) CHECK(fs::file_size(path) < rgb.size() / 50);
        }
    }

    TEST_CASE("resize_crop: constants stay, areas average, crops are central") {
        const std::vector<uint8_t> flat(static_cast<size_t>(31 * 47 * 3), 93);
        for (const int64_t n : {5, 16, 60}) {
            for (const uint8_t v : resize_crop(flat.data(), 31, 47, n, 2 * n)) REQUIRE(v == 93);
        }
        // 4x8 to 2x2: the middle 4x4, averaged in blocks of 2x2
        std::vector<uint8_t> in(4 * 8 * 3);
        for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i / 3 * 7);
        const auto out = resize_crop(in.data(), 4, 8, 2, 2);
        for (size_t y = 0; y < 2; ++y) {
            for (size_t x = 0; x < 2; ++x) {
                const size_t at = 2 * y * 8 + 2 + 2 * x;
                const double mean = 7.0 * static_cast<double>(at + at + 1 + at + 8 + at + 9) / 4;
                CHECK(std::fabs(out[(y * 2 + x) * 3] - mean) <= 0.5);
            }
        }
        // doubling a ramp stays a ramp between its ends
        const auto up = resize_crop(in.data(), 4, 8, 8, 16);
        for (size_t x = 1; x + 2 < 16; ++x) {
            CHECK(std::fabs(up[(x + 1) * 3] - up[x * 3] - 3.5) <= 1.0);
        }
        CHECK(resize_crop(in.data(), 4, 8, 4, 8) == in);
    }

    TEST_CASE("canvas: strokes cover their area, text has its width and is clipped") {
        Canvas canvas(40, 60, {255, 255, 255});
        canvas.stroke({{10, 20}, {50, 20}}, 4, {0, 0, 0});
        double ink = 0;
        for (int64_t i = 0; i < 40 * 60; ++i) ink += 1 - canvas.rgb()[i * 3] / 255.0;
        CHECK(ink == doctest::Approx(40 * 4 + 3.14159 * 4).epsilon(0.02));  // bar + round ends
        canvas.text(-20, -5, "clipped", 30, {255, 0, 0});
        canvas.text(50, 35, "clipped", 30, {255, 0, 0});
        canvas.text_up(55, 3, "clipped", 30, {255, 0, 0});
        CHECK(Canvas::text_width("ab", 12) == doctest::Approx(22));
        CHECK(Canvas::text_width("", 12) == 0);
    }

    TEST_CASE("plots and contact sheets are written whatever the data") {
        const test::TempDir dir;
        const double nan = std::nan("");
        write_plot(dir / "empty.png", "nothing", "x", "y", {});
        write_plot(dir / "one.png", "one point", "x", "y", {{"a", {3}, {5}}});
        write_plot(dir / "odd.png", "odd", "x", "y", {{"a", {1, 2, 3, 4}, {nan, 1, -1, 1e300}}},
                   {.log_y = true});
        write_plot(dir / "tiny.png", "tiny", "x", "y", {{"a", {0, 1e-9}, {1.00001, 1.00002}}},
                   {.log_y = true});
        const SynthClip s = synth_clip(1, 0, {.T = 5, .H = 32, .W = 32, .fps = 8});
        write_contact_sheet(dir / "sheet.png", {{s.caption, &s.clip}, {"", &s.clip}}, 3);
        for (const char* name : {"empty.png", "one.png", "odd.png", "tiny.png", "sheet.png"}) {
            CAPTURE(name);
            CHECK(fs::file_size(dir / name) > 100);
        }
    }

    TEST_CASE("synth: a pure function of (seed, index); shapes move as the caption says") {
        const SynthSpec spec{.T = 9, .H = 48, .W = 64, .fps = 8};
        int seen = 0;
        for (uint64_t i = 0; i < 40; ++i) {
            const SynthClip a = synth_clip(5, i, spec), b = synth_clip(5, i, spec);
            REQUIRE(a.clip.rgb == b.clip.rgb);
            REQUIRE(a.caption == b.caption);
            CAPTURE(a.caption);
            // centroid of what is brighter than any background, first and last frame
            double x[2] = {0, 0}, y[2] = {0, 0}, n[2] = {0, 0};
            for (int k = 0; k < 2; ++k) {
                const uint8_t* f = a.clip.rgb.data() + (k == 0 ? 0 : 8 * 48 * 64 * 3);
                for (int64_t p = 0; p < 48 * 64; ++p) {
                    if (std::max({f[p * 3], f[p * 3 + 1], f[p * 3 + 2]}) < 130) continue;
                    x[k] += static_cast<double>(p % 64);
                    y[k] += static_cast<double>(p / 64);
                    n[k] += 1;
                }
                REQUIRE(n[k] > 10);
                x[k] /= n[k];
                y[k] /= n[k];
            }
            const double dx = x[1] - x[0], dy = y[1] - y[0];
            const auto says = [&](const char* way) {
                return a.caption.size() > 5 && a.caption.rfind(way) != std::string::npos;
            };
            if (says("moving left")) CHECK(dx < -8);
            if (says("moving right")) CHECK(dx > 8);
            if (says("moving up")) CHECK(dy < -8);
            if (says("moving down")) CHECK(dy > 8);
            if (says("left") || says("right")) CHECK(std::fabs(dy) < 1);
            if (says("up") || says("down")) CHECK(std::fabs(dx) < 1);
            CHECK(std::fabs(n[0] - n[1]) < 0.15 * n[0] + 8);  // it never leaves the picture
            seen += a.caption != synth_clip(6, i, spec).caption ? 1 : 0;
        }
        CHECK(seen > 30);
        CHECK(synth_captions() == 7 * 8 * 4);
    }
}

}  // namespace
}  // namespace vt
