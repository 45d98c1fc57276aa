// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "core/rng.h"
#include "data/codec.h"
#include "data/loader.h"
#include "data/video.h"
#include "sample/sampler.h"
#include "tests/paths.h"

namespace vt {
namespace {

TEST_SUITE("sample") {
    TEST_CASE("samples: latents, sheet and videos are written with the data set's facts") {
        const test::TempDir dir;
        LatentFacts facts;
        facts.codec = "haar3d-v1-t2-s4";
        facts.channels = 96;
        facts.scale = {2, 4, 4};
        facts.mean.assign(96, 0.0);
        facts.std.assign(96, 1.0);
        facts.text_encoder = kBuiltinTextEncoder;
        facts.text_dim = 8;
        facts.text_len = 6;
        facts.fps = 8;
        const LatentShape shape{.C = 96, .T = 2, .H = 4, .W = 4};
        const auto empty = embed_caption("", 8, 6);
        std::vector<Sample> samples;
        for (uint64_t i = 0; i < 2; ++i) {
            Sample s;
            s.index = i + 7;
            s.caption = "a caption";
            for (int64_t j = 0; j < shape.numel(); ++j) {
                s.latent.push_back(random_normal(1, Purpose::kTest, i, static_cast<uint64_t>(j)));
            }
            samples.push_back(s);
        }
        const SampleFiles files = write_samples(dir / "s", facts, shape, samples, empty);
        CHECK(fs::exists(files.sheet));
        CHECK(files.videos.size() == (have_video() ? 2U : 0U));
        const auto data = Dataset::open({{.files = {files.latents}, .weight = 1, .name = "s"}});
        CHECK(data->facts() == facts);
        std::vector<float> z(static_cast<size_t>(shape.numel())), text(6 * 8);
        data->read(0, 1, {z.data(), {96, 2, 4, 4}, DType::kF32},
                   {text.data(), {6, 8}, DType::kF32});
        CHECK(z == samples[1].latent);
        facts.codec = "some-vae";
        const SampleFiles only = write_samples(dir / "v", facts, shape, samples, empty);
        CHECK(only.sheet.empty());
        CHECK(only.videos.empty());
        CHECK(fs::exists(only.latents));
    }
}

}  // namespace
}  // namespace vt
