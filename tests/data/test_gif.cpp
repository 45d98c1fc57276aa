// SPDX-License-Identifier: MIT
// GIF writing, and other programs' view of what is written.
#include <cmath>
#include <set>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/encode.h"
#include "data/loader.h"
#include "data/palette.h"
#include "data/synth.h"
#include "data/video.h"
#include "tests/paths.h"

namespace vt {
namespace {

bool skip() {
    if (have_video()) return false;
    MESSAGE("skipped: built without libav");
    return true;
}

Clip read_clip(const fs::path& path, double fps) {
    Clip clip;
    clip.fps = fps;
    (void)read_video(path, {.fps = fps}, [&](const VideoFrame& f) {
        clip.H = f.H;
        clip.W = f.W;
        ++clip.T;
        clip.rgb.insert(clip.rgb.end(), f.rgb, f.rgb + f.H * f.W * 3);
        return true;
    });
    return clip;
}

double psnr(const std::vector<uint8_t>& a, const std::vector<uint8_t>& b) {
    REQUIRE(a.size() == b.size());
    double sum = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double d = static_cast<double>(a[i]) - b[i];
        sum += d * d;
    }
    return 10 * std::log10(255.0 * 255.0 * static_cast<double>(a.size()) / std::max(sum, 1e-9));
}

std::string quoted(const fs::path& p) {
    return "'" + p.string() + "'";
}

TEST_SUITE("data") {
    TEST_CASE("palette: few colours are kept, many are cut and diffused") {
        Clip few{.T = 2, .H = 3, .W = 5, .fps = 8, .rgb = {}};
        for (int i = 0; i < 30; ++i) {
            for (const int v : {i % 7 * 30, 255 - i % 3, 9}) {
                few.rgb.push_back(static_cast<uint8_t>(v));
            }
        }
        const Paletted exact = make_paletted(few, 21);
        CHECK(exact.palette.size() == 21);
        for (size_t i = 0; i < 30; ++i) {
            for (size_t c = 0; c < 3; ++c) {
                CHECK(exact.palette[exact.index[i]].at(c) == few.rgb[3 * i + c]);
            }
        }
        // a smooth ramp with 8 colours: never far off where it counts, in the mean of 8 x 8 pixels
        Clip ramp{.T = 1, .H = 64, .W = 64, .fps = 8, .rgb = {}};
        for (int y = 0; y < 64; ++y) {
            for (int x = 0; x < 64; ++x) {
                for (const int v : {4 * x, 4 * x, 4 * x}) {
                    ramp.rgb.push_back(static_cast<uint8_t>(v));
                }
            }
        }
        const Paletted cut = make_paletted(ramp, 8);
        CHECK(cut.palette.size() == 8);
        for (int64_t x0 = 8; x0 < 56; x0 += 8) {
            double want = 0, got = 0;
            for (int64_t y = 24; y < 32; ++y) {
                for (int64_t x = x0; x < x0 + 8; ++x) {
                    const auto at = static_cast<size_t>(y * 64 + x);
                    want += ramp.rgb[3 * at];
                    got += cut.palette[cut.index[at]][0];
                }
            }
            CHECK(std::fabs(want - got) / 64 < 6);  // the steps between colours are 32
        }
    }

    TEST_CASE("gif: what write_gif writes is read back: colours, size, time") {
        if (skip()) return;
        const test::TempDir dir;
        const SynthClip s = synth_clip(3, 5, {.T = 9, .H = 33, .W = 47, .fps = 8});
        write_gif(dir / "a.gif", s.clip);
        const Clip back = read_clip(dir / "a.gif", 8);
        REQUIRE(back.T == 9);
        REQUIRE(back.H == 33);
        REQUIRE(back.W == 47);
        CHECK(psnr(s.clip.rgb, back.rgb) > 30);  // 255 colours, diffused
        // few colours come back to the bit
        Clip flat{.T = 4, .H = 16, .W = 20, .fps = 10, .rgb = {}};
        for (int i = 0; i < 4 * 16 * 20; ++i) {
            for (const int v : {i % 4 * 80, i / 320 * 60, 7}) {
                flat.rgb.push_back(static_cast<uint8_t>(v));
            }
        }
        write_gif(dir / "b.gif", flat);
        CHECK(read_clip(dir / "b.gif", 10).rgb == flat.rgb);
        CHECK(read_clip(dir / "b.gif", 0).T == 4);
        for (const auto& e : fs::directory_iterator(dir.path())) {
            CHECK(e.path().extension() == ".gif");
        }
        CHECK_THROWS_AS(write_gif(dir / "none" / "c.gif", flat), Error);
    }

    TEST_CASE("gif, mp4: ffprobe reads the same sizes, rates and counts") {
        if (skip()) return;
        if (test::run("ffprobe -version").code != 0) {
            MESSAGE("skipped: there is no ffprobe");
            return;
        }
        const test::TempDir dir;
        const SynthClip s = synth_clip(3, 7, {.T = 17, .H = 48, .W = 64, .fps = 16});
        write_gif(dir / "a.gif", s.clip);
        write_mp4(dir / "a.mp4", s.clip);
        for (const char* name : {"a.gif", "a.mp4"}) {
            CAPTURE(name);
            const auto ran = test::run(
                fmt::format("ffprobe -v error -count_frames -select_streams v -show_entries "
                            "stream=width,height,nb_read_frames:format=duration -of csv=p=0 {}",
                            quoted(dir / name)));
            CAPTURE(ran.output);
            REQUIRE(ran.code == 0);
            CHECK(ran.output.find("64,48,17") != std::string::npos);
            // 17/16 s; a GIF's clock ticks 100 times a second
            const double seconds =
                std::strtod(ran.output.c_str() + ran.output.find('\n') + 1, nullptr);
            CHECK(std::fabs(seconds - 17.0 / 16) < 0.011);
        }
    }

    TEST_CASE("codec: a video through encode, shard and view keeps its picture") {
        if (skip()) return;
        const test::TempDir dir;
        const fs::path video = test::source_dir() / "tests" / "data" / "video" / "ffv1.nut";
        const std::string vtrain = quoted(test::program());
        for (const char* dtype : {"f32", "bf16"}) {
            CAPTURE(dtype);
            const fs::path out = dir / dtype;
            auto ran = test::run(fmt::format(
                "{} data encode --videos {} --out {} --size 48x64 --frames 9 --fps 10 --dtype {}",
                vtrain, quoted(video), quoted(out), dtype));
            REQUIRE_MESSAGE(ran.code == 0, ran.output);
            const auto data =
                Dataset::open({{.files = {out / "shard-00000.h5"}, .weight = 1, .name = "one"}});
            const auto& f = data->facts();
            std::vector<float> z(static_cast<size_t>(96 * 5 * 12 * 16)),
                text(static_cast<size_t>(f.text_len * f.text_dim));
            data->read(0, 0, {z.data(), {96, 5, 12, 16}, DType::kF32},
                       {text.data(), {f.text_len, f.text_dim}, DType::kF32});
            const Clip back = decode_latent(f, z.data(), 5, 12, 16);
            Clip want = read_clip(video, 10);
            want.rgb.resize(static_cast<size_t>(9 * 48 * 64 * 3));
            if (std::string(dtype) == "f32") {
                CHECK(back.rgb == want.rgb);
            } else {
                // bfloat16 rounds each latent z by at most 2^-9 |z|, uniformly: an error energy of
                // 2^-18 / 3 that of the latents, which is at most that of the pixels, themselves at
                // most 1 in [-1, 1], where the peak is 2: 10 log10(4 * 3 * 2^18) = 65 dB
                CHECK(psnr(back.rgb, want.rgb) > 62);
            }
            ran = test::run(fmt::format("{} data view {} --gif --out {}", vtrain,
                                        quoted(out / "shard-00000.h5"), quoted(out / "seen")));
            REQUIRE_MESSAGE(ran.code == 0, ran.output);
            // H.264 at its settings here, 4:2:0 at sharp edges of colour: those cost the most
            CHECK(psnr(read_clip(out / "seen" / "shard-00000-000000.mp4", 10).rgb, want.rgb) > 25);
            CHECK(psnr(read_clip(out / "seen" / "shard-00000-000000.gif", 10).rgb, want.rgb) > 40);
        }
        // two shards of one name do not overwrite each other
        const auto ran = test::run(fmt::format(
            "{} data view {} {} --count 1 --out {}", vtrain, quoted(dir / "f32" / "shard-00000.h5"),
            quoted(dir / "bf16" / "shard-00000.h5"), quoted(dir / "both")));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CHECK(fs::exists(dir / "both" / "f32-shard-00000.png"));
        CHECK(fs::exists(dir / "both" / "bf16-shard-00000.png"));
    }
}

}  // namespace
}  // namespace vt
