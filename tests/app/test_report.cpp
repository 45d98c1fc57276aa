// SPDX-License-Identifier: MIT
// `vtrain report`: what goes into the page, and the page in a real browser.
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include "app/report_page.h"
#include "core/check.h"
#include "core/rng.h"
#include "data/image.h"
#include "tests/paths.h"
#include "train/events.h"
#include "train/metrics.h"

namespace vt {

namespace {

void write_text(const fs::path& path, const std::string& text) {
    fs::create_directories(path.parent_path());
    std::ofstream(path) << text;
}

double wobble(uint64_t run, int64_t step) {
    return 0.1 * double{random_normal(run, Purpose::kTest, 1, static_cast<uint64_t>(step))};
}

// A run of `steps` logged steps with everything a page shows.
void make_run(const fs::path& out, uint64_t seed, int64_t steps, double level) {
    std::string rows, events;
    for (int64_t s = 1; s <= steps; ++s) {
        MetricRow r;
        r.step = s;
        r.train_iters = steps;
        const double x = static_cast<double>(s) / static_cast<double>(steps);
        const double loss = level * (0.2 + std::exp(-6 * x)) * std::exp(wobble(seed, s));
        r.loss = s == steps / 3 ? std::nan("") : loss;
        r.lr = 1e-3 * std::min(1.0, 20 * x) * (1 + std::cos(M_PI * x)) / 2;
        r.grad_norm = 0.4 * std::exp(wobble(seed + 7, s));
        r.consumed_samples = 16 * s;
        r.step_ms = 120 + 100 * wobble(seed + 9, s);
        r.samples_per_s = 16e3 / *r.step_ms;
        r.tokens_per_s = 256 * *r.samples_per_s;
        r.roof_percent = 61 + 30 * wobble(seed + 11, s);
        r.data_wait_percent = 0.02;
        r.memory_gib = 1.5;
        r.bad_samples = s > steps / 2 ? 1 : 0;
        r.extra = {{"loss mean", loss},
                   {"consumed/data/clips", 12.0 * static_cast<double>(s)},
                   {"consumed/data/images", 4.0 * static_cast<double>(s)},
                   {"loss/data/clips", 0.9 * loss},
                   {"loss/data/images", 1.3 * loss},
                   {"loss/bucket/16x1x32x32", 1.3 * loss},
                   {"loss/bucket/16x5x32x32", 0.9 * loss},
                   {"a value of its own", x}};
        for (int b = 0; b < 10; ++b) {
            r.extra.emplace_back(fmt::format("loss/t_{:.1f}-{:.1f}", b / 10.0, (b + 1) / 10.0),
                                 loss * (0.6 + 0.09 * b));
        }
        rows += json_line(r) + "\n";
        if (s % std::max<int64_t>(1, steps / 10) == 0) {
            MetricRow e;
            e.eval = true;
            e.step = s;
            e.train_iters = steps;
            e.loss = 1.05 * loss;
            e.extra = {{"loss q0", 0.7 * loss}, {"loss q1", 1.4 * loss}, {"loss ema 0.999", loss}};
            rows += json_line(e) + "\n";
        }
    }
    rows += R"({"kind":"train","st)";  // torn by a crash
    const auto add = [&](EventKind kind, int64_t step, const std::string& text) {
        RunEvent e{kind, step, 1.79e9 + 10.0 * static_cast<double>(step), text, {}};
        if (kind == EventKind::kStart) e.facts = {{"build", "Release"}, {"processor", "<a & b>"}};
        events += event_line(e) + "\n";
    };
    add(EventKind::kStart, 0, "");
    add(EventKind::kSave, steps / 4, "step");
    add(EventKind::kSkip, steps / 3, "loss nan is not finite</script><b>");
    add(EventKind::kResume, steps / 2, "");
    add(EventKind::kRollback, steps / 2, "from a spike");
    add(EventKind::kEnd, steps, "done");
    write_text(out / "metrics.jsonl", rows);
    write_text(out / "events.jsonl", events);
    write_text(out / "config.toml", fmt::format("[run]\nseed = {}\n\n[optim]\nlr = 1e-3\n", seed));
    for (const int64_t step : {steps / 2, steps}) {
        const fs::path dir = out / "samples" / fmt::format("step-{:08}", step);
        fs::create_directories(dir);
        for (int i = 0; i < 2; ++i) {
            std::vector<uint8_t> rgb(32 * 32 * 3);
            for (size_t j = 0; j < rgb.size(); ++j) rgb[j] = static_cast<uint8_t>(j * (seed + 1));
            write_png(dir / fmt::format("sample-{:06}.png", i), rgb.data(), 32, 32);
        }
        write_text(dir / "samples.json",
                   R"({"samples":[{"index":0,"caption":"a <red> circle"},{"index":1}]})");
    }
}

nlohmann::json data_of(const std::string& page) {
    const std::string open = "id=\"data\">";
    const size_t begin = page.find(open) + open.size(), end = page.find("</script>", begin);
    return nlohmann::json::parse(page.substr(begin, end - begin));
}

}  // namespace

TEST_CASE("report: base64 is RFC 4648's") {
    const char* plain[] = {"", "f", "fo", "foo", "foob", "fooba", "foobar"};
    const char* coded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 0; i < std::size(plain); ++i) CHECK(base64(plain[i]) == coded[i]);
    CHECK(base64("\xff\xfe\xfd") == "//79");
}

TEST_CASE("report: a curve is thinned without losing an extreme") {
    std::vector<double> y(100000);
    for (size_t i = 0; i < y.size(); ++i) y[i] = std::sin(static_cast<double>(i) / 900);
    y[4321] = 50;
    y[77777] = -50;
    y[60001] = std::nan("");
    const std::vector<size_t> keep = thinned(y, 1000);
    CHECK(keep.size() <= 1300);
    CHECK(std::is_sorted(keep.begin(), keep.end()));
    for (const size_t i : {size_t{0}, size_t{4321}, size_t{77777}, size_t{60001}, y.size() - 1}) {
        CAPTURE(i);
        CHECK(std::find(keep.begin(), keep.end(), i) != keep.end());
    }
    CHECK(thinned({3, 1, 2}, 1000) == std::vector<size_t>{0, 1, 2});
    CHECK(thinned({}, 10).empty());
    CHECK_FALSE(thinned(std::vector<double>(500, std::nan("")), 100).empty());
}

TEST_CASE("report: the page holds everything, and nothing from elsewhere") {
    const test::TempDir dir;
    make_run(dir / "a", 1, 3000, 1);
    fs::create_directories(dir / "empty");
    const std::string page = report_page({dir / "a", dir / "empty", dir / "a"}, {.points = 400});
    for (const char* outside : {"http://", "https://", "src=\"/", "@import", "url("}) {
        CAPTURE(outside);
        CHECK(page.find(outside) == std::string::npos);
    }
    const nlohmann::json data = data_of(page);  // "<" in texts has not ended the script element
    REQUIRE(data["runs"].size() == 3);
    const auto& run = data["runs"][0];
    CHECK(run["name"] == "a");
    CHECK(data["runs"][2]["name"] == "a (2)");
    CHECK(run["last_step"] == 3000);
    const auto& loss = run["series"]["train"]["loss"];
    CHECK(loss["x"].size() == loss["y"].size());
    CHECK(loss["x"].size() <= 520);
    CHECK(std::count(loss["y"].begin(), loss["y"].end(), nullptr) == 1);  // the NaN is a gap
    CHECK(run["series"]["eval"]["loss"]["x"].size() == 10);
    CHECK(run["notes"].size() == 1);  // the torn line
    CHECK(run["events"].size() == 6);
    // of two processes: up to the last event before the second began, and from there on
    CHECK(run["seconds"].get<double>() == 10000 + 15000);
    REQUIRE(run["environment"].size() == 2);
    CHECK(run["environment"][1][1] == "<a & b>");
    REQUIRE(run["samples"].size() == 2);
    CHECK(run["samples"][0]["step"] == 1500);
    CHECK(run["samples"][1]["items"][0]["caption"] == "a <red> circle");
    CHECK(run["samples"][1]["items"][0]["src"].get<std::string>().rfind("data:image/png;base64,",
                                                                        0) == 0);
    CHECK(data["runs"][1]["series"]["train"].empty());
    CHECK(data["runs"][1]["notes"].size() == 1);
    // too large for what is allowed: fewer steps, then none, and the page says so
    const auto small = data_of(report_page({dir / "a"}, {.media_bytes = 10}))["runs"][0];
    CHECK(small["samples"].empty());
    CHECK(small["samples_note"] != "");
    CHECK_THROWS_AS((void)report_page({dir / "gone"}), Error);
}

TEST_CASE("report: a browser draws every chart without an error") {
    if (test::run("command -v chromium").code != 0) {
        MESSAGE("skipped: no chromium here (scripts/setup.sh --dev installs it)");
        return;
    }
    const test::TempDir dir;
    make_run(dir / "first", 1, 400, 1);
    make_run(dir / "second", 2, 300, 0.8);
    fs::create_directories(dir / "empty");
    const fs::path page = dir / "report.html";
    const auto made = test::run(fmt::format("{} report {} {} {} --out {}", test::program().string(),
                                            (dir / "first").string(), (dir / "second").string(),
                                            (dir / "empty").string(), page.string()));
    CAPTURE(made.output);
    REQUIRE(made.code == 0);
    const auto look = [&](const std::string& what) {
        return test::run(fmt::format(
            "timeout 100 chromium --headless --no-sandbox --disable-gpu --disable-dev-shm-usage "
            "--user-data-dir={} --virtual-time-budget=4000 --window-size=1500,5200 "
            "--enable-logging=stderr {} 'file://{}#theme=dark&log&smooth=0.6' 2>&1",
            (dir / "profile").string(), what, page.string()));
    };
    const auto dom = look("--dump-dom");
    CHECK(dom.code == 0);
    // set when the last chart is drawn: 14 kinds with data here, and one for the unknown value
    CHECK(dom.output.find("data-ready=\"17\"") != std::string::npos);
    CHECK(dom.output.find("data-error=") == std::string::npos);
    CHECK(dom.output.find("Uncaught") == std::string::npos);
    CHECK(dom.output.find("What differs") != std::string::npos);
    CHECK(dom.output.find("rollback") != std::string::npos);
    const fs::path shot = dir / "report.png";
    CHECK(look(fmt::format("--screenshot={}", shot.string())).code == 0);
    REQUIRE(fs::exists(shot));
    CHECK(read_file(shot).substr(1, 3) == "PNG");
    CHECK(fs::file_size(shot) > 100000);  // an empty page of this size takes far less
    // for people: VTRAIN_TEST_KEEP=FOLDER keeps page and picture
    if (const char* keep = std::getenv("VTRAIN_TEST_KEEP"); keep != nullptr) {
        fs::copy(page, fs::path(keep) / "report.html", fs::copy_options::overwrite_existing);
        fs::copy(shot, fs::path(keep) / "report.png", fs::copy_options::overwrite_existing);
    }
}

}  // namespace vt
