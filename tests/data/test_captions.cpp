// SPDX-License-Identifier: MIT
#include <array>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/captions.h"
#include "data/text.h"
#include "tests/paths.h"

namespace vt {
namespace {

using Words = std::vector<std::string>;

TEST_SUITE("data") {
    TEST_CASE("captions: tables in four forms") {
        const auto t = parse_captions("# comment\na.mp4\tA red  fox\n\nsub/b.mp4\tSecond\r\n",
                                      CaptionFormat::kText, "t");
        CHECK(t.size() == 2);
        CHECK(t.find("/x/y/a.mp4") == Words{"A red fox"});
        CHECK(t.find("/x/sub/b.mp4") == Words{"Second"});
        CHECK(t.find("/x/other/b.mp4").empty());
        const auto c = parse_captions(
            "\xef\xbb\xbfid,Caption,file\r\n1,\"one, \"\"two\"\"\r\nthree\",a\r\n2,plain,b.mp4",
            CaptionFormat::kCsv, "c");
        CHECK(c.find("z/a.mov") == Words{"one, \"two\" three"});
        CHECK(c.find("b.mp4") == Words{"plain"});
        const auto lines = parse_captions("{\"path\": \"a.mp4\", \"text\": \"gr\\u00fcn\"}\n\n",
                                          CaptionFormat::kJsonLines, "l");
        CHECK(lines.find("a.mp4") == Words{"gr\xc3\xbcn"});
        const auto list = parse_captions(
            R"([{"file": "a.mp4", "caption": "x"}, {"name": "b", "prompt": ["y", "z", "y"]}])",
            CaptionFormat::kJson, "j");
        CHECK(list.find("a.mp4") == Words{"x"});
        CHECK(list.find("d/b.webm") == Words{"y", "z"});
        const auto object =
            parse_captions(R"({"a.mp4": "x", "b.mp4": ["y", "z"], "c": {"caption": "w"}})",
                           CaptionFormat::kJson, "o");
        CHECK(object.find("b.mp4") == Words{"y", "z"});
        CHECK(object.find("c.mp4") == Words{"w"});
    }

    TEST_CASE("captions: what spreadsheets and other systems write") {
        // cut by semicolons or tabs; UTF-16 of both orders with a pair; line ends of three kinds
        for (const char* text :
             {"file;caption\na.mp4;one, two\n", "file\tcaption\na.mp4\tone, two\n",
              "file,caption\ra.mp4,\"one, two\"\r"}) {
            CAPTURE(text);
            CHECK(parse_captions(text, CaptionFormat::kCsv, "t").find("a.mp4") ==
                  Words{"one, two"});
        }
        const std::u16string wide = u"a.mp4\tgr\u00fcn \U0001F98A\r\n";
        for (const bool big : {false, true}) {
            std::string bytes = big ? "\xfe\xff" : "\xff\xfe";
            for (const char16_t u : wide) {
                const char high = static_cast<char>(u >> 8), low = static_cast<char>(u & 0xff);
                bytes += big ? high : low;
                bytes += big ? low : high;
            }
            CHECK(parse_captions(bytes, CaptionFormat::kText, "t").find("a.mp4") ==
                  Words{"gr\xc3\xbcn \xf0\x9f\xa6\x8a"});
        }
        // a file named in several rows has several captions, each once
        const auto many =
            parse_captions("file,caption\na,x\nb,y\na,z\na,x\n", CaptionFormat::kCsv, "t");
        CHECK(many.find("a.mp4") == Words{"x", "z"});
        CHECK(many.unused({"d/a.mp4", "c.mp4"}) == Words{"b"});
        // an empty caption is one; null is none
        CHECK(parse_captions("{\"file\":\"a\",\"caption\":\"\"}", CaptionFormat::kJsonLines, "t")
                  .find("a") == Words{""});
        CHECK(parse_captions("{\"file\":\"a\",\"caption\":null}", CaptionFormat::kJsonLines, "t")
                  .find("a")
                  .empty());
    }

    TEST_CASE("captions: what cannot be understood is told by line") {
        using F = CaptionFormat;
        struct Bad {
            F format;
            std::string text, why;
        };
        for (const Bad& b :
             {Bad{F::kText, "ok\tfine\nno tab\n", "line 2"},
              Bad{F::kText, "ok\tfine\n \tno name\n", "line 2: names no file"},
              Bad{F::kText, "ok\tfine\na\tgr\xfcn\n", "line 2: byte 0xfc is not UTF-8"},
              Bad{F::kText, std::string("a\0\t", 3), "line 1: byte 0x00"},
              Bad{F::kText, "a\t\xed\xa0\x80", "byte 0xed"},  // a lone surrogate
              Bad{F::kText, "a\t\xc0\xaf", "byte 0xc0"},      // an overlong slash
              Bad{F::kText, "a\t\xf0\x9f\xa6", "byte 0xf0"},  // cut short
              // UTF-16 by its mark: cut inside a unit, halves of pairs alone, in every form
              Bad{F::kText, "\xff\xfe\xfd", "line 1: the UTF-16 text ends with half"},
              Bad{F::kCsv, "\xff\xfe\xfd", "line 1: the UTF-16 text ends with half"},
              Bad{F::kJson, "\xfe\xff\xfd", "line 1: the UTF-16 text ends with half"},
              Bad{F::kJsonLines, std::string("\xff\xfe{\0\n\0}\0x", 9), "line 2: the UTF-16 text"},
              Bad{F::kText, std::string("\xff\xfe\n\0\x3d\xd8\x61\0", 8), "line 2: UTF-16 0xd83d"},
              Bad{F::kCsv, std::string("\xfe\xff\0\r\xdc\x3d", 6), "line 2: UTF-16 0xdc3d"},
              Bad{F::kText, "\xff\xfe\x3d\xd8", "line 1: UTF-16 0xd83d"},
              Bad{F::kCsv, "", "line 1: the table is empty"},
              Bad{F::kCsv, "name,words\na,b\n", "caption"},
              Bad{F::kCsv, "file,caption\na,b\nc\n", "line 3: 1 cells, the header has 2"},
              Bad{F::kCsv, "file,caption\na,\"b\n", "never closed"},
              Bad{F::kCsv, "file,caption\n,b\n", "line 2: names no file"},
              Bad{F::kJsonLines, "{\"file\": \"a\", \"caption\": \"b\"}\n[1]\n", "line 2"},
              Bad{F::kJsonLines, "{\"file\": \"a\"}\n", "line 1: has no \"caption\""},
              Bad{F::kJsonLines, "{\"caption\": \"a\"}\n", "line 1: has no \"file\""},
              Bad{F::kJsonLines, "{\"file\": \"a\", \"caption\": [1]}\n", "list of strings"},
              Bad{F::kJsonLines, "{\"file\": \"a\", \n", "line 1: is not JSON"},
              Bad{F::kJson, "[{\"file\": \"a\", \"caption\": \"b\"}, 3]", "entry 1"},
              Bad{F::kJson, "3", "array of objects"},
              Bad{F::kJson, std::string(100000, '['), "is not JSON"}}) {
            CAPTURE(b.text.substr(0, 80));
            try {
                (void)parse_captions(b.text, b.format, "table");
                FAIL("accepted");
            } catch (const Error& e) {
                CHECK(e.fault() == Fault::kUser);
                CAPTURE(e.message());
                CHECK(e.message().find("captions table") == 0);
                CHECK(e.message().find(b.why) != std::string::npos);
            }
        }
    }

    TEST_CASE("captions: files, their endings, those beside, and names") {
        const test::TempDir dir;
        write_atomic(dir / "c.tsv", "file\tcaption\na\tx\n");
        CHECK(Captions::load(dir / "c.tsv").find("a.mp4") == Words{"x"});
        write_atomic(dir / "c.xml", "<a/>");
        for (const auto& [name, why] :
             {std::pair{"c.xml", ".jsonl"}, {"absent.csv", "no such file"}}) {
            try {
                (void)Captions::load(dir / name);
                FAIL("accepted");
            } catch (const Error& e) {
                CHECK(e.fault() == Fault::kUser);
                CHECK(e.message().find(why) != std::string::npos);
            }
        }
        write_atomic(dir / "clip.txt", "\xef\xbb\xbf beside\r\n the\tclip \n");
        CHECK(caption_beside(dir / "clip.mp4") == "beside the clip");
        CHECK_FALSE(caption_beside(dir / "none.mp4"));
        write_atomic(dir / "bad.txt", "gr\xfcn");
        CHECK_THROWS_WITH_AS((void)caption_beside(dir / "bad.mp4"), doctest::Contains("not UTF-8"),
                             Error);
        CHECK(caption_of_name("d/red_fox-running.01.mp4") == "red fox running 01");
    }
}

}  // namespace
}  // namespace vt
