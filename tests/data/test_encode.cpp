// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/encode.h"
#include "data/loader.h"
#include "data/synth.h"
#include "data/video.h"
#include "tests/paths.h"

namespace vt {
namespace {

EncodeSpec small_spec() {
    EncodeSpec spec;
    spec.shapes = {{.H = 16, .W = 24, .T = 5}};
    spec.fps = 8;
    spec.text_dim = 16;
    spec.text_len = 10;
    spec.dtype = DType::kF32;
    spec.samples_per_shard = 4;
    return spec;
}

// Clip i has the spec's shape i modulo their number; `backwards` hands the last one over first.
void synth_source(const EncodeSpec& spec, int64_t train, int64_t valid, const ClipSink& sink,
                  bool backwards = false) {
    for (int64_t n = 0; n < train + valid; ++n) {
        const int64_t i = backwards ? train + valid - 1 - n : n;
        const ClipShape& c = spec.shapes[static_cast<size_t>(i) % spec.shapes.size()];
        const SynthClip s = synth_clip(2, static_cast<uint64_t>(i),
                                       {.T = c.T, .H = c.H, .W = c.W, .fps = spec.fps});
        sink({.file = i,
              .clip = 0,
              .id = fmt::format("s{}", i),
              .caption = s.caption,
              .valid = i >= train,
              .pixels = &s.clip});
    }
}

std::vector<fs::path> files_in(const fs::path& dir) {
    std::vector<fs::path> out;
    for (const auto& e : fs::directory_iterator(dir)) {
        if (e.path().extension() == ".h5") out.push_back(e.path());
    }
    std::sort(out.begin(), out.end());
    return out;
}

std::string quoted(const fs::path& p) {
    return "'" + p.string() + "'";
}

TEST_SUITE("data") {
    TEST_CASE("encode: shards decode to the clips, latents have mean 0 and deviation 1") {
        const test::TempDir dir;
        const EncodeSpec spec = small_spec();
        const EncodeReport report = encode_dataset(
            dir / "out", spec, [&](const ClipSink& sink) { synth_source(spec, 10, 3, sink); });
        CHECK(report.train == 10);
        CHECK(report.valid == 3);
        CHECK(report.shards == 4);  // 4 + 4 + 2, and 3
        CHECK_FALSE(fs::exists(dir / "out" / ".encoding"));
        const auto files = files_in(dir / "out");
        REQUIRE(files.size() == 3);
        REQUIRE(files_in(dir / "out" / "valid").size() == 1);

        const auto data = Dataset::open({{.files = files, .weight = 1, .name = "t"}});
        REQUIRE(data->source_size(0) == 10);
        CHECK(data->facts() == report.facts);
        const int64_t C = 96, per = 3 * 4 * 6;
        std::vector<float> z(static_cast<size_t>(C * per)), text(10 * 16);
        std::vector<double> sum(static_cast<size_t>(C)), square(static_cast<size_t>(C));
        for (int64_t i = 0; i < 10; ++i) {
            data->read(0, i, {z.data(), {C, 3, 4, 6}, DType::kF32},
                       {text.data(), {10, 16}, DType::kF32});
            const SynthClip s =
                synth_clip(2, static_cast<uint64_t>(i), {.T = 5, .H = 16, .W = 24, .fps = 8});
            const Clip back = decode_latent(data->facts(), z.data(), 3, 4, 6);
            CHECK(back.rgb == s.clip.rgb);
            CHECK(back.fps == 8);
            auto want = embed_caption(s.caption, 16, 10);
            want.resize(10 * 16);
            CHECK(text == want);
            CHECK(data->sample_id(0, i) == fmt::format("s{}", i));
            for (size_t j = 0; j < z.size(); ++j) {
                sum[j / per] += double{z[j]};
                square[j / per] += double{z[j]} * double{z[j]};
            }
        }
        for (size_t c = 0; c < sum.size(); ++c) {
            const double n = 10.0 * per, mean = sum[c] / n;
            CHECK(std::fabs(mean) < 1e-4);
            if (report.facts.std[c] > 1e-3) {
                CHECK(std::sqrt(square[c] / n - mean * mean) == doctest::Approx(1).epsilon(1e-3));
            }
        }
        CHECK_THROWS_WITH_AS(
            (void)encode_dataset(dir / "out", spec, [](const ClipSink& /*sink*/) { FAIL("read"); }),
            doctest::Contains("already holds shards"), Error);
    }

    TEST_CASE("encode: statistics taken over make data sets of two shapes one") {
        const test::TempDir dir;
        EncodeSpec spec = small_spec();
        const auto source = [&](const ClipSink& sink) { synth_source(spec, 4, 0, sink); };
        const EncodeReport first = encode_dataset(dir / "a", spec, source);
        spec.mean = first.facts.mean;
        spec.std = first.facts.std;
        spec.shapes = {{.H = 32, .W = 24, .T = 1}};
        const EncodeReport second = encode_dataset(dir / "b", spec, source);
        CHECK(second.train == 4);
        auto files = files_in(dir / "a");
        for (const fs::path& f : files_in(dir / "b")) files.push_back(f);
        const auto data = Dataset::open({{.files = files, .weight = 1, .name = "both"}});
        CHECK(data->shapes().size() == 2);
        spec.mean.pop_back();
        CHECK_THROWS_AS(check_spec(spec), Error);
    }

    TEST_CASE("encode: an error in the middle leaves nothing") {
        const test::TempDir dir;
        const EncodeSpec spec = small_spec();
        CHECK_THROWS_AS((void)encode_dataset(dir / "out", spec,
                                             [&](const ClipSink& sink) {
                                                 synth_source(spec, 6, 0, sink);
                                                 raise(Fault::kSystem, "the disk is gone");
                                             }),
                        Error);
        CHECK_FALSE(fs::exists(dir / "out"));
        CHECK_THROWS_AS(
            (void)encode_dataset(
                dir / "out", spec, [&](const ClipSink& sink) { synth_source(spec, 6, 0, sink); },
                [](int64_t done, int64_t) {
                    if (done == 5) raise(Fault::kSystem, "the disk is gone");
                }),
            Error);
        CHECK_FALSE(fs::exists(dir / "out"));
        const EncodeReport none =
            encode_dataset(dir / "out", spec, [](const ClipSink& /*sink*/) {});
        CHECK(none.train == 0);
        CHECK_FALSE(fs::exists(dir / "out"));
    }

    TEST_CASE(
        "encode: shapes share statistics and make one data set, in order and to the bit "
        "however the clips arrive") {
        const test::TempDir dir;
        EncodeSpec spec = small_spec();
        spec.shapes = {
            {.H = 16, .W = 24, .T = 5}, {.H = 24, .W = 16, .T = 5}, {.H = 8, .W = 8, .T = 1}};
        const EncodeReport a = encode_dataset(
            dir / "a", spec, [&](const ClipSink& sink) { synth_source(spec, 15, 6, sink); });
        spec.threads = 2;
        const EncodeReport b = encode_dataset(
            dir / "b", spec, [&](const ClipSink& sink) { synth_source(spec, 15, 6, sink, true); });
        CHECK(a.facts == b.facts);
        REQUIRE(a.parts.size() == 3);
        for (const auto& part : a.parts) {
            CHECK(part.train == 5);
            CHECK(part.valid == 2);
            CHECK(part.bytes > 0);
        }
        const auto files = files_in(dir / "a");
        REQUIRE(files.size() == 6);  // 4 and 1 of each shape
        CHECK(files[0].filename() == "shard-16x24x5-00000.h5");
        for (const fs::path& f : files) {
            CHECK(read_file(f) == read_file(dir / "b" / f.filename().string()));
        }
        auto all = files;
        for (const fs::path& f : files_in(dir / "a" / "valid")) all.push_back(f);
        const auto data = Dataset::open({{.files = all, .weight = 1, .name = "all"}});
        CHECK(data->shapes().size() == 3);
        CHECK(data->source_size(0) == 21);
        // mean 0 and deviation 1 hold over the training clips of all shapes together
        double sum = 0, square = 0, n = 0;
        std::vector<float> text(10 * 16);
        for (int64_t i = 0; i < 15; ++i) {
            const auto at = data->sample(0, i).shape;
            std::vector<float> z(static_cast<size_t>(at[0] * at[1] * at[2] * at[3]));
            data->read(0, i, {z.data(), {at[0], at[1], at[2], at[3]}, DType::kF32},
                       {text.data(), {10, 16}, DType::kF32});
            for (size_t k = 0; k < z.size() / 96; ++k, ++n) {
                sum += double{z[k]};
                square += double{z[k]} * double{z[k]};
            }
        }
        CHECK(std::fabs(sum / n) < 1e-4);
        CHECK(square / n == doctest::Approx(1).epsilon(1e-3));
    }

    TEST_CASE("encode: what a killed run left is cleared, or completed if it was whole") {
        const test::TempDir dir;
        const EncodeSpec spec = small_spec();
        const auto source = [&](const ClipSink& sink) { synth_source(spec, 5, 2, sink); };
        fs::create_directories(dir / "a" / ".encoding" / "train");
        write_atomic(dir / "a" / ".encoding" / "train" / "shard-00007.h5", "half a shard");
        CHECK(encode_dataset(dir / "a", spec, source).train == 5);
        CHECK(files_in(dir / "a").size() == 2);
        // killed while the shards were being moved into place, after the first
        fs::create_directories(dir / "b" / ".encoding" / "train");
        fs::create_directories(dir / "b" / ".encoding" / "valid");
        fs::copy_file(dir / "a" / "shard-00000.h5", dir / "b" / "shard-00000.h5");
        fs::copy_file(dir / "a" / "shard-00001.h5",
                      dir / "b" / ".encoding" / "train" / "shard-00001.h5");
        fs::copy_file(dir / "a" / "valid" / "shard-00000.h5",
                      dir / "b" / ".encoding" / "valid" / "shard-00000.h5");
        write_atomic(dir / "b" / ".encoding" / "complete", "");
        CHECK_THROWS_WITH_AS((void)encode_dataset(dir / "b", spec, source),
                             doctest::Contains("already holds shards"), Error);
        CHECK_FALSE(fs::exists(dir / "b" / ".encoding"));
        CHECK(files_in(dir / "b").size() == 2);
        CHECK(files_in(dir / "b" / "valid").size() == 1);
    }

    TEST_CASE("encode: a disk too small and folders that cannot be are told first") {
        const test::TempDir dir;
        try {
            check_space(dir / "not" / "there", int64_t{1} << 62, "the data set");
            FAIL("accepted");
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kSystem);
            CHECK(e.message().find("needs 4611686018.43 GB") != std::string::npos);
        }
        CHECK_NOTHROW(check_space(dir.path(), 1, "a byte"));
        write_atomic(dir / "file", "x");
        for (const fs::path& bad : {dir / "file", dir / "file" / "below"}) {
            try {
                make_folder(bad, "--out");
                FAIL("accepted");
            } catch (const Error& e) {
                CHECK(e.fault() == Fault::kUser);
            }
        }
    }

    TEST_CASE("encode: sizes that do not fit the codec are told before any work") {
        EncodeSpec spec = small_spec();
        spec.shapes = {{.H = 16, .W = 24, .T = 6}};
        CHECK_THROWS_WITH_AS(check_spec(spec), doctest::Contains("--frames 6"), Error);
        spec.shapes = {{.H = 16, .W = 24, .T = 5}, {.H = 16, .W = 26, .T = 5}};
        CHECK_THROWS_WITH_AS(check_spec(spec), doctest::Contains("--size 16x26"), Error);
    }

    TEST_CASE("data encode: good files go on past bad ones, each named") {
        if (!have_video()) {
            MESSAGE("skipped: built without libav");
            return;
        }
        const test::TempDir dir;
        const std::string vtrain = quoted(test::program());
        auto ran = test::run(fmt::format("{} data synth --mp4 {} --count 4 --size 32x48 --frames 9",
                                         vtrain, quoted(dir / "in")));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        write_atomic(dir / "in" / "zero.mp4", "");
        write_atomic(dir / "in" / "words.mkv", "not a video");
        write_atomic(dir / "in" / "notes.md", "ignored");
        const SynthClip still = synth_clip(1, 1, {.T = 1, .H = 32, .W = 48, .fps = 8});
        write_png(dir / "in" / "still.png", still.clip.rgb.data(), 32, 48);

        const std::string encode = fmt::format("{} data encode --videos {} --fps 8 --size 16x24 ",
                                               vtrain, quoted(dir / "in"));
        ran = test::run(encode + fmt::format("--frames 5 --stride 4 --valid-fraction 0.3 --out {}",
                                             quoted(dir / "out")));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CAPTURE(ran.output);
        CHECK(ran.output.find("zero.mp4: the file is empty") != std::string::npos);
        CHECK(ran.output.find("words.mkv: Invalid data") != std::string::npos);
        CHECK(ran.output.find("still.png: too short: 1 frame, a picture") != std::string::npos);
        CHECK(ran.output.find("left out: 3 of 7 files") != std::string::npos);
        // two clips of each 9-frame file: frames 0-4 and 4-8
        const auto data =
            Dataset::open({{.files = files_in(dir / "out"), .weight = 1, .name = "t"}});
        CHECK(data->source_size(0) % 2 == 0);
        CHECK(data->source_size(0) >= 2);

        ran = test::run(encode +
                        fmt::format("--frames 1 --max-clips 1 --out {}", quoted(dir / "images")));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CHECK(ran.output.find("wrote 5 training") != std::string::npos);

        ran =
            test::run(encode + fmt::format("--frames 1 --max-clips 1 --out {} --stats-from {}",
                                           quoted(dir / "more"), quoted(files_in(dir / "out")[0])));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        auto both = files_in(dir / "out");
        both.push_back(files_in(dir / "more")[0]);
        CHECK_NOTHROW((void)Dataset::open({{.files = both, .weight = 1, .name = "t"}}));
        ran = test::run(encode +
                        fmt::format("--frames 1 --spatial-levels 1 --out {} --stats-from {}",
                                    quoted(dir / "other"), quoted(files_in(dir / "out")[0])));
        CHECK(ran.code == 2);
        CHECK(ran.output.find("haar3d-v1-t2-s2") != std::string::npos);

        ran = test::run(fmt::format("{} data view {} --out {} --count 2", vtrain,
                                    quoted(files_in(dir / "images")[0]), quoted(dir / "seen")));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CHECK(fs::exists(dir / "seen" / "shard-00000.png"));
        CHECK(fs::exists(dir / "seen" / "shard-00000-000000.mp4"));

        ran = test::run(fmt::format("{} data encode --videos {} --out {}", vtrain,
                                    quoted(dir / "in" / "zero.mp4"), quoted(dir / "none")));
        CHECK(ran.code == 3);
        CHECK_FALSE(fs::exists(dir / "none"));
        ran = test::run(encode + fmt::format("--frames 4 --out {}", quoted(dir / "none")));
        CHECK(ran.code == 2);
        ran = test::run(encode + fmt::format("--frames 5 --out {}", quoted(dir / "out")));
        CHECK(ran.code == 2);
        CHECK(ran.output.find("already holds shards") != std::string::npos);
    }
}

}  // namespace
}  // namespace vt
