// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/rng.h"
#include "data/codec.h"

namespace vt {
namespace {

Clip noise_clip(uint64_t seed, int64_t T, int64_t H, int64_t W) {
    Clip clip{.T = T, .H = H, .W = W, .fps = 8, .rgb = {}};
    clip.rgb.resize(static_cast<size_t>(T * H * W * 3));
    for (size_t i = 0; i < clip.rgb.size(); ++i) {
        clip.rgb[i] = static_cast<uint8_t>(random_bits(seed, Purpose::kTest, 0, i) >> 24);
    }
    return clip;
}

// The codec's definition, one coefficient at a time: the inner product of the pixel block with the
// tensor product of three Haar functions.
double haar_function(int64_t k, int64_t n, int64_t i) {
    if (k == 0) return std::sqrt(1.0 / static_cast<double>(n));
    int64_t level = 1;  // functions of this level: level .. 2*level-1
    while (2 * level <= k) level *= 2;
    const int64_t span = n / level, from = (k - level) * span;
    if (i < from || i >= from + span) return 0;
    return (i < from + span / 2 ? 1.0 : -1.0) / std::sqrt(static_cast<double>(span));
}

TEST_SUITE("data") {
    TEST_CASE("codec: every coefficient is the product of three Haar functions") {
        const HaarCodec codec{.lt = 1, .ls = 2};
        const Clip clip = noise_clip(3, 3, 8, 12);
        const auto z = codec.encode(clip);
        const int64_t T = 2, H = 2, W = 3, nt = 2, ns = 4;
        REQUIRE(static_cast<int64_t>(z.size()) == codec.channels() * T * H * W);
        double worst = 0;
        for (int64_t c = 0; c < codec.channels(); ++c) {
            const int64_t colour = c % 3, kw = c / 3 % ns, kh = c / 3 / ns % ns,
                          kt = c / 3 / ns / ns;
            for (int64_t t = 0; t < T; ++t) {
                for (int64_t y = 0; y < H; ++y) {
                    for (int64_t x = 0; x < W; ++x) {
                        double sum = 0;
                        for (int64_t i = 0; i < nt * ns * ns; ++i) {
                            const int64_t it = i / (ns * ns), ih = i / ns % ns, iw = i % ns;
                            const int64_t frame = std::max<int64_t>(0, t * nt + it - 1);
                            const auto at = static_cast<size_t>(
                                ((frame * clip.H + y * ns + ih) * clip.W + x * ns + iw) * 3 +
                                colour);
                            sum += (clip.rgb[at] / 127.5 - 1) * haar_function(kt, nt, it) *
                                   haar_function(kh, ns, ih) * haar_function(kw, ns, iw);
                        }
                        const auto j = static_cast<size_t>(((c * T + t) * H + y) * W + x);
                        worst = std::max(worst, std::fabs(sum - z[j]));
                    }
                }
            }
        }
        // |z| <= sqrt(32) < 6; five levels of butterflies of two roundings each
        CHECK(worst < 6 * 10 * 0x1p-24);
    }

    TEST_CASE("codec: decode of encode gives back every byte") {
        for (int lt = 0; lt <= 2; ++lt) {
            for (int ls = 0; ls <= 3; ++ls) {
                const HaarCodec codec{.lt = lt, .ls = ls};
                for (const int64_t groups : {0, 1, 3}) {
                    const int64_t T = 1 + (groups << lt), edge = int64_t{1} << ls;
                    const Clip clip = noise_clip(7, T, 3 * edge, 5 * edge);
                    const auto z = codec.encode(clip);
                    const Clip back = codec.decode(z.data(), groups + 1, 3, 5);
                    CHECK(back.T == T);
                    CHECK(back.H == clip.H);
                    CHECK(back.W == clip.W);
                    CHECK(back.rgb == clip.rgb);
                }
            }
        }
    }

    TEST_CASE("codec: orthonormal, so energy is kept") {
        const HaarCodec codec{.lt = 2, .ls = 2};
        Clip clip = noise_clip(9, 5, 8, 8);
        // make the repeats of frame 0 count: energy of the padded clip
        const auto z = codec.encode(clip);
        double pixels = 0, latents = 0;
        const size_t frame = clip.rgb.size() / 5;
        for (size_t i = 0; i < clip.rgb.size(); ++i) {
            const double v = clip.rgb[i] / 127.5 - 1;
            pixels += v * v * (i < frame ? 4 : 1);
        }
        for (const float v : z) latents += double{v} * double{v};
        CHECK(latents == doctest::Approx(pixels).epsilon(1e-6));
    }

    TEST_CASE("codec: names") {
        const HaarCodec codec{.lt = 2, .ls = 3};
        CHECK(codec.name() == "haar3d-v1-t4-s8");
        CHECK(codec.channels() == 768);
        const HaarCodec back = HaarCodec::named("haar3d-v1-t4-s8");
        CHECK(back.lt == 2);
        CHECK(back.ls == 3);
        for (const char* bad : {"wan2.1-vae", "haar3d-v1-t3-s4", "haar3d-v1-t2", "haar3d-v1-t2-s4x",
                                "haar3d-v1-t-s", ""}) {
            CAPTURE(bad);
            try {
                (void)HaarCodec::named(bad);
                FAIL("accepted");
            } catch (const Error& e) {
                CHECK(e.fault() == Fault::kUser);
                CHECK(e.message().find(fmt::format("\"{}\"", bad)) != std::string::npos);
            }
        }
    }

    TEST_CASE("codec: sizes that do not divide are the user's error") {
        const HaarCodec codec{.lt = 1, .ls = 2};
        CHECK_THROWS_AS((void)codec.encode(noise_clip(1, 2, 8, 8)), Error);
        CHECK_THROWS_AS((void)codec.encode(noise_clip(1, 3, 6, 8)), Error);
        CHECK_THROWS_AS((void)codec.encode(noise_clip(1, 3, 8, 10)), Error);
        CHECK_THROWS_AS((void)codec.encode(noise_clip(1, 3, 2, 4)), Error);
    }

    TEST_CASE("codec: decode_latent undoes the normalisation") {
        const HaarCodec codec{.lt = 1, .ls = 1};
        const Clip clip = noise_clip(5, 3, 4, 6);
        const auto raw = codec.encode(clip);
        LatentFacts facts;
        facts.codec = codec.name();
        facts.channels = codec.channels();
        facts.fps = 12;
        const size_t per = raw.size() / static_cast<size_t>(facts.channels);
        std::vector<float> z(raw.size());
        for (int64_t c = 0; c < facts.channels; ++c) {
            facts.mean.push_back(0.1 * static_cast<double>(c) - 0.7);
            facts.std.push_back(0.5 + 0.05 * static_cast<double>(c));
        }
        for (size_t i = 0; i < raw.size(); ++i) {
            z[i] = static_cast<float>((double{raw[i]} - facts.mean[i / per]) / facts.std[i / per]);
        }
        const Clip back = decode_latent(facts, z.data(), 2, 2, 3);
        CHECK(back.rgb == clip.rgb);
        CHECK(back.fps == 12);
        facts.codec = "wan2.1-vae";
        CHECK_THROWS_WITH_AS((void)decode_latent(facts, z.data(), 2, 2, 3),
                             doctest::Contains("wan2.1-vae"), Error);
    }

    TEST_CASE("captions: equal words have equal vectors, places differ, long ones are cut") {
        constexpr int64_t kDim = 32, kWord = 24;
        const auto a = embed_caption("A red circle", kDim, 16);
        const auto b = embed_caption("circle, RED!", kDim, 16);
        REQUIRE(a.size() == 4 * kDim);
        REQUIRE(b.size() == 3 * kDim);
        CHECK(std::equal(a.begin() + kDim, a.begin() + kDim + kWord, b.begin() + kDim));   // red
        CHECK(std::equal(a.begin() + 2 * kDim, a.begin() + 2 * kDim + kWord, b.begin()));  // circle
        CHECK_FALSE(std::equal(a.begin() + 2 * kDim, a.begin() + 3 * kDim, b.begin()));
        CHECK_FALSE(std::equal(a.begin(), a.begin() + kWord, a.begin() + kDim));
        const auto empty = embed_caption("", kDim, 16);
        REQUIRE(empty.size() == kDim);
        CHECK(std::equal(empty.begin(), empty.begin() + kWord, a.begin() + 3 * kDim));  // the end
        const auto cut = embed_caption("a red circle", kDim, 2);
        REQUIRE(cut.size() == 2 * kDim);
        CHECK(std::equal(cut.begin(), cut.begin() + kDim, a.begin()));
        CHECK(std::equal(cut.begin() + kDim, cut.begin() + kDim + kWord, empty.begin()));
        CHECK(embed_caption("x", 1, 1).size() == 1);
        // non-ASCII letters are letters
        CHECK(embed_caption("ein gr\xc3\xbcner Kreis", kDim, 16).size() == 4 * kDim);
    }
}

}  // namespace
}  // namespace vt
