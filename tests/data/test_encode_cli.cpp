// SPDX-License-Identifier: MIT
// `vtrain data encode` and its sisters as people call them.
#include <algorithm>
#include <set>
#include <sys/stat.h>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/loader.h"
#include "data/video.h"
#include "tests/paths.h"

namespace vt {
namespace {

std::string quoted(const fs::path& p) {
    return "'" + p.string() + "'";
}

fs::path fixtures() {
    return test::source_dir() / "tests" / "data" / "video";
}

std::vector<fs::path> shards_in(const fs::path& dir) {
    std::vector<fs::path> out;
    std::error_code ec;
    for (const auto& e : fs::directory_iterator(dir, ec)) {
        if (e.path().extension() == ".h5") out.push_back(e.path());
    }
    std::sort(out.begin(), out.end());
    return out;
}

// ids of all samples of a folder, with their captions
std::vector<std::pair<std::string, std::string>> samples_in(const fs::path& dir) {
    std::vector<std::pair<std::string, std::string>> out;
    const auto files = shards_in(dir);
    if (files.empty()) return out;
    const auto data = Dataset::open({{.files = files, .weight = 1, .name = "d"}});
    for (int64_t i = 0; i < data->source_size(0); ++i) {
        out.emplace_back(data->sample_id(0, i), data->caption(0, i));
    }
    return out;
}

std::string file_of(const std::string& id) {
    return id.substr(0, id.rfind('#'));
}

bool skip() {
    if (have_video()) return false;
    MESSAGE("skipped: built without libav");
    return true;
}

TEST_SUITE("data") {
    TEST_CASE("data encode: a folder of everything, in shapes that train together") {
        if (skip()) return;
        const test::TempDir dir;
        const std::string call = fmt::format(
            "{} data encode --videos {} --fps 10 --spatial-levels 2 --valid-fraction 0.2",
            quoted(test::program()), quoted(fixtures()));
        auto ran = test::run(call + " --shapes 48x64x9,64x48x9,32x32x1 --out " + quoted(dir / "a"));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CAPTURE(ran.output);
        for (const char* line :
             {"taken: 57 of 61 files", "left out: 4 of 61 files", "2  it has no video stream",
              "1  this libav cannot decode animated WebP",
              "cut.mp4: the file ends before its index (moov)", "damaged: "}) {
            CAPTURE(line);
            CHECK(ran.output.find(line) != std::string::npos);
        }
        auto all = shards_in(dir / "a");
        CHECK(all.size() == 3);
        const auto valid = samples_in(dir / "a" / "valid"), train = samples_in(dir / "a");
        CHECK(valid.size() >= 3);
        CHECK(train.size() >= 40);
        for (const fs::path& f : shards_in(dir / "a" / "valid")) all.push_back(f);
        CHECK_NOTHROW((void)Dataset::open({{.files = all, .weight = 1, .name = "all"}}));
        std::set<std::string> held;
        for (const auto& [id, caption] : valid) held.insert(file_of(id));
        for (const auto& [id, caption] : train) CHECK_FALSE(held.contains(file_of(id)));

        // the same files set aside from a part of the folder: each file is judged by itself
        ran = test::run(fmt::format(
            "{} data encode --videos {} --fps 10 --area 48x64 --aspects 4:3 --durations 1,9 "
            "--valid-fraction 0.2 --threads 1 --stride 2 --out {}",
            quoted(test::program()), quoted(fixtures()), quoted(dir / "b")));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        std::set<std::string> again;
        for (const auto& [id, caption] : samples_in(dir / "b" / "valid")) again.insert(file_of(id));
        CHECK(again == held);

        ran = test::run(call + " --shapes 48x64x9 --strict --out " + quoted(dir / "c"));
        CHECK(ran.code == 3);
        CHECK(ran.output.find("nothing was written") != std::string::npos);
        CHECK_FALSE(fs::exists(dir / "c"));
    }

    TEST_CASE("data encode: captions of every kind, several for a file, none") {
        if (skip()) return;
        const test::TempDir dir;
        fs::create_directories(dir / "in");
        for (const char* name : {"a.mp4", "b.mp4", "c_d.mp4", "e.mp4", "f.mp4"}) {
            fs::copy_file(fixtures() / "h264.mp4", dir / "in" / name);
        }
        write_atomic(dir / "in" / "b.txt", "beside\n");
        write_atomic(dir / "in" / "e.txt", "gr\xfcn");
        write_atomic(dir / "in" / "f.txt", "\xff\xfe\xfd");  // the mark of UTF-16, half a unit
        write_atomic(dir / "t.jsonl",
                     "{\"file\": \"a.mp4\", \"caption\": [\"one\", \"two\", \"three\"]}\n"
                     "{\"file\": \"z.mp4\", \"caption\": \"nobody\"}\n");
        const std::string call = fmt::format(
            "{} data encode --videos {} --fps 10 --size 24x32 --frames 3 --stride 3 --captions {} ",
            quoted(test::program()), quoted(dir / "in"), quoted(dir / "t.jsonl"));
        auto ran = test::run(call + "--out " + quoted(dir / "out"));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CAPTURE(ran.output);
        CHECK(ran.output.find("1 of 2 names") != std::string::npos);
        CHECK(ran.output.find("z.mp4") != std::string::npos);
        CHECK(ran.output.find("e.txt line 1: byte 0xfc is not UTF-8") != std::string::npos);
        CHECK(ran.output.find("f.txt line 1: the UTF-16 text ends with half") != std::string::npos);
        CHECK(ran.output.find("2  caption is not UTF-8 text") != std::string::npos);
        std::vector<std::string> of_a;
        for (const auto& [id, caption] : samples_in(dir / "out")) {
            if (file_of(id) == "a.mp4") of_a.push_back(caption);
            if (file_of(id) == "b.mp4") CHECK(caption == "beside");
            if (file_of(id) == "c_d.mp4") CHECK(caption == "c d");
            CHECK(file_of(id) != "e.mp4");
            CHECK(file_of(id) != "f.mp4");
        }
        REQUIRE(of_a.size() == 4);  // in turn, so that each has its clips
        CHECK(std::set<std::string>(of_a.begin(), of_a.end()).size() == 3);
        CHECK(of_a[0] == of_a[3]);
        ran = test::run(call + "--require-captions --out " + quoted(dir / "strict"));
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CHECK(ran.output.find("1  no caption") != std::string::npos);
        CHECK(samples_in(dir / "strict").size() == 8);
    }

    TEST_CASE("data encode: links, pipes and what lies beside the videos") {
        if (skip()) return;
        const test::TempDir dir;
        const fs::path in = dir / "in";
        fs::create_directories(in / "deep" / "er");
        fs::copy_file(fixtures() / "rgb.png", in / "deep" / "er" / "a.png");
        fs::copy_file(fixtures() / "rgb.png", dir / "outside.png");
        write_atomic(in / "deep" / "er" / "a.txt", "its caption");
        fs::create_symlink(dir / "outside.png", in / "link.png");
        fs::create_directory_symlink(".", in / "loop");
        fs::create_directory_symlink("..", in / "deep" / "up");
        fs::create_directory_symlink("deep/er", in / "near");  // the shorter path
        const std::string call =
            fmt::format("{} data encode --videos {} --fps 10 --size 24x32 --frames 1 ",
                        quoted(test::program()), quoted(in));
        auto ran = test::run(call + "--out " + quoted(dir / "a"));
        CAPTURE(ran.output);
        REQUIRE(ran.code == 0);
        using Samples = std::vector<std::pair<std::string, std::string>>;
        const Samples both{{"link.png#0", "link"}, {"near/a.png#0", "its caption"}};
        CHECK(samples_in(dir / "a") == both);
        // captions of the videos are no files to wonder about
        CHECK(ran.output.find("taken: 2 of 2 files\n") != std::string::npos);

        fs::create_symlink("gone.mp4", in / "dang.mp4");
        fs::create_symlink("self.mp4", in / "self.mp4");
        REQUIRE(::mkfifo((in / "fifo.mp4").c_str(), 0600) == 0);
        REQUIRE(::mkfifo((in / "pipe").c_str(), 0600) == 0);
        write_atomic(in / "notes.md", "# words\n");
        ran = test::run("timeout 20 " + call + "--out " + quoted(dir / "b"));
        CAPTURE(ran.output);
        REQUIRE(ran.code == 0);
        CHECK(samples_in(dir / "b") == both);
        for (const char* line :
             {"dang.mp4: the link leads nowhere", "self.mp4: Too many levels of symbolic links",
              "fifo.mp4: it is not a regular file", "pipe: it is not a regular file",
              "taken: 2 of 6 files; 1 more are no videos by name or content: notes.md\n",
              "left out: 4 of 6 files", "1  broken link", "2  it is not a regular file"}) {
            CAPTURE(line);
            CHECK(ran.output.find(line) != std::string::npos);
        }
        ran = test::run("timeout 20 " + call + "--strict --out " + quoted(dir / "c"));
        CHECK(ran.code == 3);
        CHECK_FALSE(fs::exists(dir / "c"));
    }

    TEST_CASE("data: what was mistyped ends with 2 and writes nothing") {
        const test::TempDir dir;
        const std::string vtrain = quoted(test::program());
        write_atomic(dir / "file", "x");
        const std::string videos = "--videos " + quoted(fixtures()),
                          out = "--out " + quoted(dir / "out");
        const std::string encode = "encode " + videos + " " + out + " ";
        std::vector<std::string> calls{
            "synth --out " + quoted(dir / "file"),
            "synth --mp4 " + quoted(dir / "file"),
            "synth " + out + " --fps nan",
            "synth " + out + " --fps inf",
            "synth " + out + " --fps 0",
            "synth " + out + " --count 0",
            "synth " + out + " --seed -1",
            "synth " + out + " --size 0x16",
            "synth " + out + " --stats-from " + quoted(dir / "none.h5"),
            "view " + quoted(dir / "none.h5") + " " + out,
            "view " + quoted(dir.path()) + " " + out,
            "view " + quoted(dir / "file") + " --count 0 " + out,
        };
        if (have_video()) {
            for (const char* bad : {"--fps nan",
                                    "--fps inf",
                                    "--fps -1",
                                    "--fps 1e9",
                                    "--valid-fraction nan",
                                    "--valid-fraction 1",
                                    "--valid-fraction -0.1",
                                    "--max-crop nan",
                                    "--max-crop 2",
                                    "--stride -1",
                                    "--max-clips -2",
                                    "--shapes 16x16",
                                    "--shapes 16x16x4",
                                    "--shapes 16x16x5 --frames 5",
                                    "--area 16",
                                    "--aspects 1:1",
                                    "--crop left",
                                    "--area 64x64 --aspects 16:",
                                    "--captions /none/such.csv",
                                    "--threads -1"}) {
                calls.push_back(encode + bad);
            }
            calls.push_back("encode " + videos + " --out " + quoted(dir / "file"));
            calls.push_back("encode --videos " + quoted(dir / "none") + " " + out);
        }
        for (const std::string& call : calls) {
            CAPTURE(call);
            const auto ran = test::run(vtrain + " data " + call);
            CAPTURE(ran.output);
            CHECK(ran.code == 2);
            CHECK_FALSE(fs::exists(dir / "out"));
        }
        // more than any disk holds: told before the first clip is drawn
        const auto ran = test::run(vtrain + " data synth " + out +
                                   " --count 1000000000 --size 4096x4096 --frames 129");
        CHECK(ran.code == 4);
        CHECK(ran.output.find("GB free") != std::string::npos);
        CHECK_FALSE(fs::exists(dir / "out"));
    }
}

}  // namespace
}  // namespace vt
