// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/captions.h"
#include "data/encode.h"
#include "data/loader.h"
#include "data/synth.h"
#include "data/video.h"
#include "tests/paths.h"

namespace vt {
namespace {

EncodeSpec small_spec() {
    EncodeSpec spec;
    spec.T = 5;
    spec.H = 16;
    spec.W = 24;
    spec.fps = 8;
    spec.text_dim = 16;
    spec.text_len = 10;
    spec.dtype = DType::kF32;
    spec.samples_per_shard = 4;
    return spec;
}

void synth_source(const EncodeSpec& spec, int64_t train, int64_t valid, const ClipSink& sink) {
    for (int64_t i = 0; i < train + valid; ++i) {
        const SynthClip s = synth_clip(2, static_cast<uint64_t>(i),
                                       {.T = spec.T, .H = spec.H, .W = spec.W, .fps = spec.fps});
        sink({.id = fmt::format("s{}", i),
              .caption = s.caption,
              .valid = i >= train,
              .clip = &s.clip});
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
            dir / "out", spec,
            [&](int /*pass*/, const ClipSink& sink) { synth_source(spec, 10, 3, sink); });
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
            (void)encode_dataset(dir / "out", spec,
                                 [](int /*pass*/, const ClipSink& /*sink*/) { FAIL("read"); }),
            doctest::Contains("already holds shards"), Error);
    }

    TEST_CASE("encode: statistics taken over make data sets of two shapes one") {
        const test::TempDir dir;
        EncodeSpec spec = small_spec();
        const auto source = [&](int pass, const ClipSink& sink) {
            CHECK((pass == 2 || spec.mean.empty()));
            synth_source(spec, 4, 0, sink);
        };
        const EncodeReport first = encode_dataset(dir / "a", spec, source);
        spec.mean = first.facts.mean;
        spec.std = first.facts.std;
        spec.T = 1;
        spec.H = 32;
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
        for (const int bad_pass : {1, 2}) {
            CHECK_THROWS_AS((void)encode_dataset(dir / "out", spec,
                                                 [&](int pass, const ClipSink& sink) {
                                                     synth_source(spec, 6, 0, sink);
                                                     if (pass == bad_pass) {
                                                         raise(Fault::kSystem, "the disk is gone");
                                                     }
                                                 }),
                            Error);
            CHECK_FALSE(fs::exists(dir / "out"));
        }
        const EncodeReport none =
            encode_dataset(dir / "out", spec, [](int /*pass*/, const ClipSink& /*sink*/) {});
        CHECK(none.train == 0);
        CHECK_FALSE(fs::exists(dir / "out"));
    }

    TEST_CASE("encode: sizes that do not fit the codec are told before any work") {
        EncodeSpec spec = small_spec();
        spec.T = 6;
        CHECK_THROWS_WITH_AS(check_spec(spec), doctest::Contains("--frames 6"), Error);
        spec.T = 5;
        spec.W = 26;
        CHECK_THROWS_WITH_AS(check_spec(spec), doctest::Contains("--size 16x26"), Error);
    }

    TEST_CASE("captions: tables in three forms, files beside, names") {
        const test::TempDir dir;
        write_atomic(dir / "c.txt", "# comment\na.mp4\tA red  fox\n\nsub/b.mp4\tSecond\r\n");
        const Captions t = Captions::load(dir / "c.txt");
        CHECK(t.size() == 2);
        CHECK(t.find("/x/y/a.mp4") == "A red fox");
        CHECK(t.find("/x/sub/b.mp4") == "Second");
        CHECK_FALSE(t.find("/x/other/b.mp4"));
        write_atomic(
            dir / "c.csv",
            "\xef\xbb\xbfid,Caption,file\r\n1,\"one, \"\"two\"\"\nthree\",a\r\n2,plain,b.mp4");
        const Captions c = Captions::load(dir / "c.csv");
        CHECK(c.find("z/a.mov") == "one, \"two\" three");
        CHECK(c.find("b.mp4") == "plain");
        write_atomic(dir / "c.jsonl", "{\"path\": \"a.mp4\", \"text\": \"gr\\u00fcn\"}\n\n");
        CHECK(Captions::load(dir / "c.jsonl").find("a.mp4") == "gr\xc3\xbcn");
        for (const std::array<const char*, 3>& row :
             {std::array<const char*, 3>{"x.txt", "ok\tfine\nno tab\n", "line 2"},
              {"x.csv", "name,words\na,b\n", "caption"},
              {"y.csv", "file,caption\na,b\nc\n", "line 3"},
              {"z.csv", "file,caption\na,\"b\n", "never closed"},
              {"x.jsonl", "{\"file\": \"a\", \"caption\": \"b\"}\n[1]\n", "line 2"},
              {"x.xml", "<a/>", ".jsonl"}}) {
            CAPTURE(row[0]);
            write_atomic(dir / row[0], row[1]);
            CHECK_THROWS_WITH_AS((void)Captions::load(dir / row[0]), doctest::Contains(row[2]),
                                 Error);
        }
        write_atomic(dir / "clip.txt", " beside\n the clip \n");
        CHECK(caption_beside(dir / "clip.mp4") == "beside the clip");
        CHECK_FALSE(caption_beside(dir / "none.mp4"));
        CHECK(caption_of_name("d/red_fox-running.01.mp4") == "red fox running 01");
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
        CHECK(ran.output.find("still.png: 1 frames at 8 fps, a clip needs 5") != std::string::npos);
        CHECK(ran.output.find("3 of 7 files were left out") != std::string::npos);
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
