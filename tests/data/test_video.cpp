// SPDX-License-Identifier: MIT
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/synth.h"
#include "data/video.h"
#include "tests/paths.h"

namespace vt {
namespace {

Clip read_clip(const fs::path& path, double fps, VideoInfo* info = nullptr) {
    Clip clip;
    const VideoInfo i = read_video(path, {.fps = fps}, [&](const VideoFrame& f) {
        clip.H = f.H;
        clip.W = f.W;
        ++clip.T;
        clip.rgb.insert(clip.rgb.end(), f.rgb, f.rgb + f.H * f.W * 3);
        return true;
    });
    if (info != nullptr) *info = i;
    return clip;
}

double psnr(const uint8_t* a, const uint8_t* b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) {
        const double d = static_cast<double>(a[i]) - b[i];
        sum += d * d;
    }
    return 10 * std::log10(255.0 * 255.0 * static_cast<double>(n) / std::max(sum, 1e-9));
}

// Colours and motion without sharp colour edges, which 4:2:0 cannot keep.
Clip soft_clip(int64_t T, int64_t H, int64_t W, double fps) {
    Clip clip{.T = T, .H = H, .W = W, .fps = fps, .rgb = {}};
    for (int64_t t = 0; t < T; ++t) {
        for (int64_t y = 0; y < H; ++y) {
            for (int64_t x = 0; x < W; ++x) {
                const double u = static_cast<double>(x + 3 * t) / 17,
                             v = static_cast<double>(y) / 13;
                clip.rgb.push_back(static_cast<uint8_t>(128 + 100 * std::sin(u)));
                clip.rgb.push_back(static_cast<uint8_t>(128 + 100 * std::sin(v + 1)));
                clip.rgb.push_back(static_cast<uint8_t>(128 + 100 * std::sin(u + v)));
            }
        }
    }
    return clip;
}

void check_bad(const fs::path& path, const char* why) {
    CAPTURE(path.string());
    try {
        (void)read_video(path, {}, [](const VideoFrame&) { return true; });
        FAIL("accepted");
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kData);
        CHECK(e.message().find(path.string()) != std::string::npos);
        CAPTURE(e.message());
        CHECK(e.message().find(why) != std::string::npos);
    }
}

bool skip() {
    if (have_video()) return false;
    MESSAGE("skipped: built without libav");
    return true;
}

TEST_SUITE("data") {
    TEST_CASE("video: what write_mp4 writes, read_video reads: colours, size, time") {
        if (skip()) return;
        const test::TempDir dir;
        const Clip clip = soft_clip(12, 96, 128, 24);
        write_mp4(dir / "a.mp4", clip);
        VideoInfo info;
        const Clip back = read_clip(dir / "a.mp4", 0, &info);
        CHECK(info.width == 128);
        CHECK(info.height == 96);
        CHECK(info.fps == doctest::Approx(24));
        CHECK(info.seconds == doctest::Approx(0.5));
        REQUIRE(back.T == 12);
        // wrong range or matrix costs far more: limited read as full gives about 24 dB
        CHECK(psnr(clip.rgb.data(), back.rgb.data(), clip.rgb.size()) > 36);
        for (const auto& e : fs::directory_iterator(dir.path())) CHECK(e.path() == dir / "a.mp4");
        write_mp4(dir / "b.mp4", clip);
        CHECK(read_file(dir / "a.mp4") == read_file(dir / "b.mp4"));
    }

    TEST_CASE("video: matrix, range and depth, on hand-made YUV") {
        if (skip()) return;
        const test::TempDir dir;
        // RGB (200, 80, 40) as each standard writes it (ITU-R BT.601-7 and BT.709-6, quantised);
        // no component is near its end, where a wrong range would be clipped away
        constexpr std::array<int, 3> kRgb{200, 80, 40};
        struct Case {
            const char* header;
            int64_t H;
            std::array<int, 3> yuv;
            int bytes;
        };
        for (const Case& c :
             {Case{"C444", 32, {112, 93, 184}, 1},
              Case{"C444 XCOLORRANGE=FULL", 32, {111, 88, 191}, 1},
              Case{"C444", 720, {104, 98, 182}, 1}, Case{"C444p10", 32, {446, 371, 734}, 2},
              Case{"C444p10", 720, {417, 393, 729}, 2}}) {
            CAPTURE(c.header);
            CAPTURE(c.H);
            std::string y4m =
                fmt::format("YUV4MPEG2 W32 H{} F10:1 Ip A1:1 {}\nFRAME\n", c.H, c.header);
            for (const int v : c.yuv) {
                for (int64_t i = 0; i < 32 * c.H; ++i) {
                    y4m += static_cast<char>(v & 0xff);
                    if (c.bytes == 2) y4m += static_cast<char>(v >> 8);
                }
            }
            write_atomic(dir / "a.y4m", y4m);
            const Clip clip = read_clip(dir / "a.y4m", 0);
            REQUIRE(clip.T == 1);
            REQUIRE(clip.H == c.H);
            for (size_t i = 0; i < clip.rgb.size(); ++i) {  // 2: the YUV triple is rounded itself
                REQUIRE(std::abs(clip.rgb[i] - kRgb.at(i % 3)) <= 2);
            }
        }
    }

    TEST_CASE("video: turned and mirrored as the display matrix says") {
        if (skip()) return;
        const test::TempDir dir;
        const Clip clip = soft_clip(2, 32, 48, 10);
        write_mp4(dir / "a.mp4", clip);
        const Clip plain = read_clip(dir / "a.mp4", 0);
        const std::string bytes = read_file(dir / "a.mp4");
        const size_t at = bytes.find("tkhd") + 4 + 40;  // ISO/IEC 14496-12, 8.3.2, version 0
        // (a b u c d v x y w): x' = a x + c y, y' = b x + d y
        struct Case {
            int a, b, c, d;
        };
        for (const Case& m : {Case{1, 0, 0, 1}, Case{0, 1, -1, 0}, Case{-1, 0, 0, -1},
                              Case{0, -1, 1, 0}, Case{-1, 0, 0, 1}, Case{0, 1, 1, 0}}) {
            CAPTURE(m.a);
            CAPTURE(m.b);
            CAPTURE(m.c);
            std::string turned = bytes;
            const std::array<int, 9> matrix{m.a, m.b, 0, m.c, m.d, 0, 0, 0, 1 << 14};
            for (size_t i = 0; i < 9; ++i) {
                const auto v =
                    static_cast<uint32_t>(i == 8 ? matrix[8] << 16 : matrix.at(i) * 65536);
                for (size_t k = 0; k < 4; ++k) {
                    turned[at + 4 * i + k] = static_cast<char>((v >> (24 - 8 * k)) & 0xff);
                }
            }
            write_atomic(dir / "b.mp4", turned);
            VideoInfo info;
            const Clip got = read_clip(dir / "b.mp4", 0, &info);
            REQUIRE(got.T == 2);
            REQUIRE(got.W == (m.a != 0 ? 48 : 32));
            CHECK(info.width == got.W);
            int64_t wrong = 0;
            for (int64_t y = 0; y < 32; ++y) {
                for (int64_t x = 0; x < 48; ++x) {
                    // the shown place of a stored pixel, moved so that the picture begins at 0
                    const int64_t u = m.a * x + m.c * y + (m.a < 0 ? 47 : 0) + (m.c < 0 ? 31 : 0);
                    const int64_t v = m.b * x + m.d * y + (m.b < 0 ? 47 : 0) + (m.d < 0 ? 31 : 0);
                    for (int64_t k = 0; k < 3; ++k) {
                        wrong += plain.rgb[static_cast<size_t>((y * 48 + x) * 3 + k)] !=
                                 got.rgb[static_cast<size_t>((v * got.W + u) * 3 + k)];
                    }
                }
            }
            CHECK(wrong == 0);
        }
    }

    TEST_CASE("video: odd sizes are padded by their own edge, a single frame is a video") {
        if (skip()) return;
        const test::TempDir dir;
        const Clip clip = soft_clip(1, 33, 47, 10);
        write_mp4(dir / "odd.mp4", clip);
        const Clip back = read_clip(dir / "odd.mp4", 0);
        REQUIRE(back.T == 1);
        REQUIRE(back.H == 34);
        REQUIRE(back.W == 48);
        for (int64_t y = 0; y < 34; ++y) {
            const auto rows = psnr(clip.rgb.data() + std::min<int64_t>(y, 32) * 47 * 3,
                                   back.rgb.data() + y * 48 * 3, 47 * 3);
            CHECK(rows > 26);
        }
    }

    TEST_CASE("video: constant frame rate, up and down and stopping early") {
        if (skip()) return;
        const test::TempDir dir;
        const Clip clip = soft_clip(24, 32, 32, 24);
        write_mp4(dir / "a.mp4", clip);
        const Clip all = read_clip(dir / "a.mp4", 0);
        const Clip half = read_clip(dir / "a.mp4", 12), twice = read_clip(dir / "a.mp4", 48);
        CHECK(read_clip(dir / "a.mp4", 24).rgb == all.rgb);
        const size_t frame = 32 * 32 * 3;
        REQUIRE(half.T == 12);
        REQUIRE(twice.T == 48);
        for (size_t i = 0; i < 48; ++i) {  // nearest source frame
            const auto* f = twice.rgb.data() + i * frame;
            const auto* low = all.rgb.data() + i / 2 * frame;
            CHECK(std::equal(f, f + frame, low));
        }
        for (size_t i = 0; i < 12; ++i) {  // the frame at that very time
            const auto* f = half.rgb.data() + i * frame;
            CHECK(std::equal(f, f + frame, all.rgb.data() + 2 * i * frame));
        }
        const Clip third = read_clip(dir / "a.mp4", 10);  // 2.4 frames a tick
        REQUIRE(third.T == 10);
        for (size_t i = 0; i < 10; ++i) {
            const auto nearest = static_cast<size_t>(std::lround(static_cast<double>(i) * 2.4));
            const auto* f = third.rgb.data() + i * frame;
            CHECK(std::equal(f, f + frame, all.rgb.data() + nearest * frame));
        }
        int64_t got = 0;
        (void)read_video(dir / "a.mp4", {}, [&](const VideoFrame&) { return ++got < 5; });
        CHECK(got == 5);
    }

    TEST_CASE("video: files that hold no pictures are named with the reason") {
        if (skip()) return;
        const test::TempDir dir;
        write_atomic(dir / "zero.mp4", "");
        write_atomic(dir / "text.mp4", "this is not a video at all, only words in a file\n");
        check_bad(dir / "zero.mp4", "0 bytes");
        check_bad(dir / "text.mp4", "Invalid data");
        check_bad(dir / "absent.mp4", "No such file");
        // one second of silence as WAV: sound only
        std::string wav = "RIFF";
        const auto put = [&](uint32_t v, int bytes) {
            for (int i = 0; i < bytes; ++i) wav += static_cast<char>((v >> (8 * i)) & 0xff);
        };
        put(36 + 8000, 4);
        wav += "WAVEfmt ";
        put(16, 4);
        put(1, 2);
        put(1, 2);
        put(8000, 4);
        put(8000, 4);
        put(1, 2);
        put(8, 2);
        wav += "data";
        put(8000, 4);
        wav += std::string(8000, '\x80');
        write_atomic(dir / "sound.wav", wav);
        check_bad(dir / "sound.wav", "no video stream");
    }

    TEST_CASE("video: of a truncated file what decodes is used") {
        if (skip()) return;
        const test::TempDir dir;
        write_mp4(dir / "a.mp4", soft_clip(48, 64, 64, 24));  // index first: +faststart
        const std::string all = read_file(dir / "a.mp4");
        write_atomic(dir / "cut.mp4", all.substr(0, all.size() * 6 / 10));
        const Clip cut = read_clip(dir / "cut.mp4", 0);
        CHECK(cut.T >= 5);
        CHECK(cut.T < 48);
        write_atomic(dir / "head.mp4", all.substr(0, 40));
        CHECK_THROWS_AS((void)read_clip(dir / "head.mp4", 0), Error);
    }

    TEST_CASE("video: real clips") {
        const char* folder = std::getenv("VTRAIN_TEST_VIDEOS");
        if (skip()) return;
        if (folder == nullptr || *folder == '\0') {
            MESSAGE("skipped: VTRAIN_TEST_VIDEOS is not set");
            return;
        }
        int64_t files = 0;
        for (const auto& e : fs::directory_iterator(folder)) {
            if (e.path().extension() != ".mp4") continue;
            ++files;
            CAPTURE(e.path().string());
            VideoInfo info;
            const Clip own = read_clip(e.path(), 0, &info);
            CHECK(info.fps > 0);
            CHECK(own.W == info.width);
            CHECK(own.H == info.height);
            CHECK(std::fabs(static_cast<double>(own.T) - info.fps * info.seconds) <= 2);
            const Clip slow = read_clip(e.path(), 8);
            CHECK(std::fabs(static_cast<double>(slow.T) - 8 * info.seconds) <= 1);
            int64_t lit = 0;
            for (const uint8_t v : own.rgb) lit += v > 24 && v < 232 ? 1 : 0;
            CHECK(lit > static_cast<int64_t>(own.rgb.size()) / 20);
        }
        CHECK(files > 0);
    }
}

}  // namespace
}  // namespace vt
