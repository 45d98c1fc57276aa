// SPDX-License-Identifier: MIT
// events.jsonl: every kind reads back, a torn line spoils nothing, the file only grows.
#include <csignal>
#include <fstream>
#include <sys/resource.h>
#include <thread>

#include <doctest/doctest.h>

#include "tests/paths.h"
#include "train/events.h"

namespace vt {

TEST_CASE("events: every kind reads back") {
    for (int k = 0; k < kNumEventKinds; ++k) {
        const RunEvent e{static_cast<EventKind>(k),
                         int64_t{1} << 40,
                         1790000000.125,
                         "a \"text\"\nof two lines",
                         {{"build", "x"}, {"a", "y"}}};
        const std::string line = event_line(e);
        CHECK(line.find('\n') == std::string::npos);
        const auto back = parse_event(line);
        REQUIRE(back.has_value());
        CHECK(back->kind == e.kind);
        CHECK(back->step == e.step);
        CHECK(back->wall == e.wall);
        CHECK(back->text == e.text);
        CHECK(back->facts == e.facts);
    }
    for (const char* bad : {"", "{", "[]", "{\"event\":\"skip\"}", "{\"event\":1,\"step\":1}",
                            "{\"step\":3}", "{\"event\":\"skip\",\"step\":1.5}"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_event(bad).has_value());
    }
    CHECK(parse_event(R"({"event":"of a later version","step":1})")->kind == EventKind::kWarning);
    // bytes that are not UTF-8 are replaced, not thrown
    CHECK(parse_event(event_line({EventKind::kSkip, 1, 0, "\xff", {}}))->text == "\xef\xbf\xbd");
}

TEST_CASE("events: the file only grows, whatever a crash left") {
    const test::TempDir dir;
    const fs::path path = dir / "events.jsonl";
    CHECK(read_events(path).empty());
    {
        RunEvents events(path, false);
        events.add(EventKind::kStart, 0, "first");
        std::vector<std::thread> threads;
        for (int t = 0; t < 4; ++t) {
            threads.emplace_back([&] {
                for (int i = 1; i <= 25; ++i) events.add(EventKind::kBadSample, i, "sample");
            });
        }
        for (std::thread& t : threads) t.join();
    }
    CHECK(read_events(path).size() == 101);
    std::ofstream(path, std::ios::app) << "{\"event\":\"sk";
    {
        RunEvents events(path, false);
        events.add(EventKind::kResume, 20, "again");
    }
    const auto all = read_events(path);
    REQUIRE(all.size() == 102);
    CHECK(all.back().kind == EventKind::kResume);
    CHECK(all.back().wall > 1.6e9);

    { RunEvents events(path, true); }
    CHECK(read_events(path).empty());
    CHECK(read_events(dir / "events.jsonl.old-0").size() == 102);
}

TEST_CASE("events: a full disk does not end the run") {
    const test::TempDir dir;
    RunEvents events(dir / "events.jsonl", false);
    struct rlimit old {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    struct rlimit tight = old;
    tight.rlim_cur = 3;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
    events.add(EventKind::kSave, 1, "lost");
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
    events.add(EventKind::kSave, 2, "kept");
    const auto all = read_events(dir / "events.jsonl");
    REQUIRE(all.size() == 1);
    CHECK(all[0].text == "kept");
}

}  // namespace vt
