// SPDX-License-Identifier: MIT
// The machine under the configuration: TOML and --set into rows, mistakes worded, dump and back.
#include <cmath>
#include <fstream>
#include <limits>

#include <doctest/doctest.h>

#include "config/toml.h"
#include "core/rng.h"
#include "tests/paths.h"

namespace vt {

namespace {

// A row of each kind.
struct Sample {
    bool flag = false;
    int64_t count = 3;
    double rate = 0.5;
    std::string mode = "one", name = "n", file;
    std::vector<double> decays;
    std::vector<std::string> globs;
    std::vector<int64_t> sizes;
    std::vector<WeightedPath> train;
};

std::vector<Field> rows(Sample& s) {
    return {
        {.key = "a.flag", .target = &s.flag, .help = "A flag."},
        {.key = "a.count",
         .target = &s.count,
         .help = "A count.",
         .aliases = {"a.number_of_things"},
         .min = 1,
         .max = 100},
        {.key = "a.rate",
         .target = &s.rate,
         .help = "A rate.",
         .min = 0,
         .max = 1,
         .min_exclusive = true,
         .max_exclusive = true},
        {.key = "a.mode", .target = &s.mode, .help = "A mode.", .choices = {"one", "two"}},
        {.key = "b.name", .target = &s.name, .help = "A name."},
        {.key = "b.decays", .target = &s.decays, .help = "Decays.", .min = 0},
        {.key = "b.globs", .target = &s.globs, .help = "Globs.", .is_path = true},
        {.key = "b.sizes", .target = &s.sizes, .help = "Sizes.", .min = 1},
        {.key = "b.train",
         .target = &s.train,
         .help = "Sources.",
         .min = 0,
         .min_exclusive = true,
         .is_path = true},
    };
}

std::map<std::string, Origin> load(Sample& s, const std::string& text,
                                   const std::vector<std::string>& sets = {}) {
    std::vector<Setting> settings = parse_toml(text, "t.toml", "/base");
    for (const std::string& set : sets) settings.push_back(parse_set(set));
    return apply_settings(rows(s), settings);
}

// The message of the kUser error that a text gives.
std::string mistake(const std::string& text, const std::vector<std::string>& sets = {}) {
    Sample s;
    try {
        load(s, text, sets);
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kUser);
        return e.message();
    }
    return "no error";
}

bool has(const std::string& text, const std::string& part) {
    const bool found = text.find(part) != std::string::npos;
    if (!found) MESSAGE("'" << part << "' is not in: " << text);
    return found;
}

}  // namespace

TEST_CASE("config: every kind of value is read, with its origin") {
    Sample s;
    const auto origins = load(s, R"(
[a]
flag = true
count = 0x10
rate = 25e-2
mode = "two"
[b]
name = "späße"
decays = [0.999, 1]
globs = ["x/*.h5", "/abs/../y.h5"]
sizes = [1, 2, 2]
train = [{ path = "p.h5", weight = 2 }, "q.h5"]
)");
    CHECK(s.flag);
    CHECK(s.count == 16);
    CHECK(s.rate == 0.25);
    CHECK(s.mode == "two");
    CHECK(s.name == "späße");
    CHECK(s.decays == std::vector<double>{0.999, 1.0});
    CHECK(s.globs == std::vector<std::string>{"/base/x/*.h5", "/y.h5"});
    CHECK(s.sizes == std::vector<int64_t>{1, 2, 2});
    CHECK(s.train == std::vector<WeightedPath>{{"/base/p.h5", 2.0}, {"/base/q.h5", 1.0}});
    CHECK(origins.at("a.count").text == "t.toml:4");
    CHECK(origins.size() == 9);

    Sample untouched;
    CHECK(load(untouched, "").empty());
    CHECK(load(untouched, "# only a comment\n[a]\n").empty());
    CHECK(untouched.count == 3);
}

TEST_CASE("config: other ways to write the same") {
    Sample s;
    load(s, "a.number-of-things = 7\n[[b.train]]\npath = 'x.h5'\n[[b.train]]\npath = 'y.h5'\n");
    CHECK(s.count == 7);
    CHECK(s.train.size() == 2);
    load(s, "b = { globs = 'one.h5', decays = 0.5 }");  // one value for a list of one
    CHECK(s.globs == std::vector<std::string>{"/base/one.h5"});
    CHECK(s.decays == std::vector<double>{0.5});
}

TEST_CASE("config: --set") {
    Sample s;
    const auto origins = load(s, "[a]\ncount = 5\n",
                              {"a.count=6", "a.count = 7", "a.mode=two", "b.name=2024",
                               "a.flag=true", "b.sizes=[1,2,2]", "a.rate=1e-3"});
    CHECK(s.count == 7);  // the last one wins
    CHECK(s.mode == "two");
    CHECK(s.name == "2024");
    CHECK(s.flag);
    CHECK(s.sizes.size() == 3);
    CHECK(s.rate == 1e-3);
    CHECK(origins.at("a.count").text == "--set a.count");

    Sample odd;
    load(odd, "", {"b.name=a=b c", "b.globs=rel.h5", "b.train=['/x', {path='/y',weight=0.5}]"});
    CHECK(odd.name == "a=b c");
    CHECK(odd.globs.at(0) == (std::filesystem::current_path() / "rel.h5").string());
    CHECK(odd.train.at(1).weight == 0.5);
    load(odd, "", {"b.name="});
    CHECK(odd.name.empty());
    load(odd, "[a]\ncount = 5\n", {"a.number_of_things=9"});  // an alias overrides the file too
    CHECK(odd.count == 9);

    CHECK(has(mistake("", {"count"}), "--set count: not of the form"));
    CHECK(has(mistake("", {"=3"}), "not of the form"));
    CHECK(
        has(mistake("", {"a.count=twelve"}), "--set a.count: a.count = \"twelve\" has the wrong"));
    CHECK(has(mistake("", {"a.count="}), "wrong type"));
    CHECK(has(mistake("", {"a.cuont=1"}),
              "--set a.cuont: unknown key 'a.cuont'; the nearest valid "
              "one is 'a.count'"));
    CHECK(has(mistake("", {"b.globs=[x.h5, y.h5]"}), "--set b.globs=[x.h5, y.h5]: "));
    CHECK(has(mistake("", {"a.count=1\n[b]\nname='x'"}), "wrong type"));  // no way to smuggle keys
    CHECK(has(mistake("", {"a.count=1", "a.number_of_things=1"}), "are the same key"));
}

TEST_CASE("config: unknown keys and sections name the nearest valid one") {
    CHECK(has(mistake("[a]\n\ncuont = 1\n"),
              "t.toml:3: unknown key 'a.cuont'; the nearest valid one is 'a.count'"));
    CHECK(has(mistake("[a]\nnumber_of_thing = 1\n"), "nearest valid one is 'a.count'"));
    CHECK(has(mistake("[a]\nglobs = []\n"), "nearest valid one is 'b.globs'"));
    CHECK(has(mistake("rate = 0.1\n"),
              "t.toml:1: unknown key 'rate' outside any section; the "
              "nearest valid one is 'a.rate'"));
    CHECK(has(mistake("[a.count]\nx = 1\n"), "a.count = { x = 1 } has the wrong type"));
    CHECK(has(mistake("a = 3\n"), "[a] is a section, not a key"));
    CHECK(has(mistake("[[a]]\ncount = 1\n"), "[a] is a section, not a key"));
    CHECK(has(mistake("[\"\\u00e9\"]\n\"k\\u00e9y\" = 1\n"), "unknown section [é]"));
    CHECK(has(mistake("[c]\n"), "t.toml:1: unknown section [c]"));

    // one mistake for a whole unknown section, and the others still listed, in order
    const std::string many = mistake("[c]\nx = 1\ny = 2\n[a]\ncount = 0\nflag = 1\n");
    CHECK(has(many, "t.toml:2: unknown section [c] (key 'c.x')"));
    CHECK(many.find("c.y") == std::string::npos);
    CHECK(many.find("t.toml:5") < many.find("t.toml:6"));
    CHECK(many.find("t.toml:2") < many.find("t.toml:5"));
}

TEST_CASE("config: wrong types, ranges and choices say what is allowed") {
    CHECK(mistake("[a]\ncount = 1.0\n") ==
          "t.toml:2: a.count = 1.0 has the wrong type; allowed: integer >= 1 and <= 100");
    CHECK(has(mistake("[a]\ncount = '5'\n"), "a.count = \"5\" has the wrong type"));
    CHECK(has(mistake("[a]\ncount = true\n"), "a.count = true has the wrong type"));
    CHECK(has(mistake("[a]\ncount = 101\n"), "a.count = 101 is out of range"));
    CHECK(has(mistake("[a]\ncount = 9223372036854775807\n"), "is out of range"));
    CHECK(has(mistake("[a]\ncount = 1979-05-27\n"), "a date or time has the wrong type"));
    CHECK(has(mistake("[a]\nflag = 1\n"), "allowed: true or false"));
    CHECK(has(mistake("[a]\nrate = 0.0\n"), "allowed: number > 0 and < 1"));
    CHECK(has(mistake("[a]\nrate = 1.0\n"), "is out of range"));
    CHECK(has(mistake("[a]\nrate = nan\n"), "a.rate = nan is not a finite number"));
    CHECK(has(mistake("[a]\nrate = -inf\n"), "is not a finite number"));
    CHECK(has(mistake("[a]\nmode = 'three'\n"),
              "a.mode = \"three\" is not one of the choices; allowed: one, two"));
    CHECK(has(mistake("[b]\nname = 3\n"), "wrong type"));
    CHECK(has(mistake("[b]\nname = \"a\\u0000b\"\n"), "zero byte"));
    CHECK(
        has(mistake("[b]\ndecays = [0.5, 'x']\n"), "the element \"x\", which has the wrong type"));
    CHECK(has(mistake("[b]\ndecays = [0.5, -1]\n"), "the element -1, which is out of range"));
    CHECK(has(mistake("[b]\nsizes = [[1]]\n"), "the element [1], which has the wrong type"));
    CHECK(has(mistake("[b]\nglobs = [1, 2]\n"), "the element 1, which has the wrong type"));
    CHECK(has(mistake("[b]\nglobs = ['']\n"), "which is empty"));
    CHECK(has(mistake("[b]\ntrain = [{ weight = 1.0 }]\n"), "has no path"));
    CHECK(
        has(mistake("[b]\ntrain = [{ path = 'x', weight = 0 }]\n"), "weight that is out of range"));
    CHECK(has(mistake("[b]\ntrain = [{ path = 'x', wieght = 1 }]\n"), "unknown key 'wieght'"));
    CHECK(has(mistake("[b]\ntrain = [{ path = 3 }]\n"), "no text as path"));
    CHECK(has(mistake("[b]\ntrain = 3\n"), "wrong type"));
    CHECK(has(mistake("[a]\ncount = 1\nnumber_of_things = 2\n"),
              "t.toml:3: 'a.number_of_things' and 'a.count' are the same key"));
    // a value longer than a line is cut, between characters
    CHECK(mistake("[a]\ncount = '" + std::string(500, 'x') + "'\n").size() < 200);
}

TEST_CASE("config: numbers that fit nowhere are out of range, as they were written") {
    const std::string huge = "99999999999999999999";  // over 2^63
    CHECK(mistake("[a]\ncount = " + huge + "\n") ==
          "t.toml:2: a.count = 99999999999999999999 is out of range; allowed: integer >= 1 and <= "
          "100");
    CHECK(
        has(mistake("[a]\ncount = -" + huge), "t.toml:2: a.count = -99999999999999999999 is out"));
    CHECK(
        has(mistake("a.count = 0xFFFF_FFFF_FFFF_FFFF_F"), "a.count = 0xFFFF_FFFF_FFFF_FFFF_F is "));
    CHECK(has(mistake("a.count = 0o7777777777777777777777777"), "7777 is out of range"));
    CHECK(has(mistake("a.count = " + std::string(300, '9')), "999... is out of range"));
    CHECK(has(mistake("[a]\ncount = 1e30\n"),
              "a.count = 1e+30 is out of range; allowed: integer >= 1 and <= 100"));
    CHECK(has(mistake("[a]\ncount = -1e30\n"), "a.count = -1e+30 is out of range"));
    CHECK(has(mistake("[a]\ncount = inf\n"), "a.count = inf is not a finite number"));
    CHECK(has(mistake("[a]\ncount = nan\n"), "a.count = nan is not a finite number"));
    CHECK(has(mistake("[a]\ncount = 2.5\n"), "a.count = 2.5 has the wrong type"));
    // where the row itself has no upper end, the format's own is named
    CHECK(mistake("[b]\nsizes = [1, " + huge + ", 3]\n") ==
          "t.toml:2: b.sizes = [1, 99999999999999999999, 3] has the element 99999999999999999999, "
          "which is out of range; allowed: list of integers >= 1 and <= 9223372036854775807");
    CHECK(has(mistake("b.sizes = [1, 1e30]"), "the element 1e+30, which is out of range"));
    CHECK(has(mistake("[b]\ndecays = [0.5, 1e999]"), "the element 1e999, which is out of range"));
    CHECK(has(mistake("[a]\nrate = " + huge), "a.rate = 99999999999999999999 is out of range"));
    CHECK(has(mistake("[a]\nflag = " + huge), "a.flag = 99999999999999999999 has the wrong type"));
    CHECK(has(mistake("[b]\nname = " + huge), "b.name = 99999999999999999999 has the wrong type"));
    CHECK(has(mistake("[b]\ntrain = [{ path = 'x', weight = -" + huge + " }]"),
              "weight that is out of range"));
    // the same on the command line
    CHECK(has(mistake("", {"a.count=" + huge}),
              "--set a.count: a.count = 99999999999999999999 is out of range; allowed: integer"));
    CHECK(has(mistake("", {"a.count=1e30"}), "--set a.count: a.count = 1e+30 is out of range"));
    CHECK(has(mistake("", {"a.count=-1"}), "a.count = -1 is out of range"));
    CHECK(has(mistake("", {"b.sizes=[1, " + huge + "]"}), "which is out of range"));
    CHECK(has(mistake("", {"b.decays=[0.5, true]"}), "the element true, which has the wrong type"));
    CHECK(has(mistake("", {"a.rate=1979-05-27"}), "a date or time has the wrong type"));

    // what a number can be is not refused: a large one for a real, its digits for a text
    Sample s;
    load(s, "[b]\ndecays = [1, " + huge + "]\n", {"b.name=" + huge});
    CHECK(s.decays == std::vector<double>{1, 1e20});
    CHECK(s.name == huge);
    // every mistake is found, in order, and other errors keep their places
    const std::string both = mistake("a.count = " + huge + "\na.flag = 1\nb.sizes = " + huge + "0");
    CHECK(both.find("t.toml:1: a.count") < both.find("t.toml:2: a.flag"));
    CHECK(both.find("t.toml:2: a.flag") < both.find("t.toml:3: b.sizes"));
    CHECK(has(mistake("a.count = " + huge + "\nb.name = two\n"), "t.toml:2:"));
    CHECK(has(mistake("a.count = " + huge + "x\n"), "t.toml:1:"));
    std::string many = "b.sizes = [";
    for (int i = 0; i < 5000; ++i) many += huge + ", ";
    CHECK(has(mistake(many + "]"), "t.toml:1:"));  // in no time
}

TEST_CASE("config: text that is not TOML gives line and column") {
    CHECK(has(mistake("[a]\ncount = \n"), "t.toml:2:"));
    CHECK(has(mistake("[a]\nmode = two\n"), "t.toml:2:"));
    CHECK(has(mistake("[a]\ncount = 1\ncount = 2\n"), "t.toml:3:"));
    CHECK(has(mistake("[a\n"), "t.toml:1:"));
    // trips an assertion inside toml++ 3.3
    CHECK(
        has(mistake("[a]\ncount = 1\n[ = 4\nmode = 'one'\n"), "t.toml:3:1: this line is not TOML"));
    CHECK(has(mistake("[ = 4"), "t.toml:1:1: this line is not TOML"));
    CHECK(has(mistake("x = \"\xff\xfe\"\n"), "t.toml:1:"));
    CHECK(has(mistake("a = " + std::string(100000, '[')), "t.toml:1:"));  // depth is bounded
    // right behind a value these are undefined behaviour of toml++ 3.3
    CHECK(has(mistake("[a]\ncount = 5\xc3\xbc\n"),
              "t.toml:2:10: a letter outside ASCII outside of quotes"));
    CHECK(has(mistake("a.count = 1979-05-27'\xc3\xbc'\xc3\xbc\n"), "t.toml:1:24: a letter"));
    CHECK(has(mistake("# \xc3\xbc\n\xc3\xbc = 1\n"), "t.toml:2:1: a letter"));
    CHECK(has(mistake("x = \"\xc3\xbc\n\xc3\xbc = 1\n"), "t.toml:2:1: a letter"));
    CHECK(has(mistake(std::string("a = 1\0b", 7)), "t.toml:1:"));
}

TEST_CASE("config: files that cannot be read are the user's") {
    const test::TempDir dir;
    const auto fault_of = [](const std::filesystem::path& p) {
        try {
            (void)parse_toml_file(p);
        } catch (const Error& e) {
            CHECK(has(e.message(), p.string()));
            return static_cast<int>(e.fault());
        }
        return 0;
    };
    CHECK(fault_of(dir / "absent.toml") == 2);
    CHECK(fault_of(dir.path()) == 2);
    CHECK(fault_of("/dev/zero") == 2);
    std::ofstream(dir / "empty.toml").flush();
    CHECK(parse_toml_file(dir / "empty.toml").empty());
}

TEST_CASE("config: dump reads back to the same values") {
    Sample s;
    s.flag = true;
    s.name = "quote \" back \\ tab \t line \n bell \a ünï";
    s.decays = {0.1, 1e-300, 5e-324, 1e22, 123456789.0, std::nextafter(1.0, 2.0)};
    // and doubles of any exponent
    for (uint64_t i = 0; i < 200; ++i) {
        const auto r = philox::block(1, Purpose::kTest, 7, i);
        const double mantissa = 1.0 + r[0] * 0x1p-32 + r[1] * 0x1p-53;
        s.decays.push_back(std::ldexp(mantissa, static_cast<int>(r[2] % 2000) - 1000));
    }
    s.globs = {"/a b/*.h5"};
    s.train = {{"/x.h5", 0.3}, {"/y,z.h5", 2}};
    const std::string text = dump_toml(rows(s));
    Sample back;
    const auto origins = load(back, text);
    CHECK(origins.size() == rows(back).size());
    CHECK(back.flag == s.flag);
    CHECK(back.name == s.name);
    CHECK(back.decays == s.decays);
    CHECK(back.globs == s.globs);
    CHECK(back.train == s.train);
    CHECK(dump_toml(rows(back)) == text);
}

TEST_CASE("config: edit distance") {
    CHECK(edit_distance("", "") == 0);
    CHECK(edit_distance("abc", "") == 3);
    CHECK(edit_distance("lr", "rl") == 1);
    CHECK(edit_distance("kitten", "sitting") == 3);
    CHECK(edit_distance("learning_rate", "learning-rate") == 1);
}

}  // namespace vt
