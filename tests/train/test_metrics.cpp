// SPDX-License-Identifier: MIT
// Metric rows: both written forms, reading back, and a file whose steps stay unique.
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include <doctest/doctest.h>

#include "core/check.h"
#include "tests/paths.h"
#include "train/metrics.h"

namespace vt {

namespace {

MetricRow train_row(int64_t step) {
    MetricRow r;
    r.step = step;
    r.train_iters = 400;
    r.consumed_samples = 16 * step;
    r.step_ms = 35.12;
    r.lr = 1e-3;
    r.global_batch_size = 16;
    r.loss = 1.0 / static_cast<double>(step);
    r.grad_norm = 0.3451;
    return r;
}

void write(const fs::path& path, const std::string& text) {
    std::ofstream(path) << text;
}

std::vector<int64_t> steps(const fs::path& path) {
    std::vector<int64_t> out;
    for (const MetricRow& r : read_metrics(path)) out.push_back(r.step);
    return out;
}

}  // namespace

TEST_CASE("metrics: the console line has Megatron's form") {
    MetricRow r = train_row(10);
    CHECK(console_line(r) ==
          " iteration       10/     400 | consumed samples:          160 | elapsed time per "
          "iteration (ms): 35.1 | learning rate: 1.000000E-03 | global batch size:    16 | loss: "
          "1.000000E-01 | grad norm: 0.345 |");
    r.skipped_iters = 2;
    r.nan_iters = 1;
    r.samples_per_s = 455.6;
    r.tokens_per_s = 116633.4;
    r.tflops = 0.0612;
    r.roof_percent = 61.24;
    r.data_wait_percent = 0.031;
    r.memory_gib = 0.25;
    r.seconds_left = 3723.4;
    const std::string line = console_line(r);
    CHECK(
        line.find("| grad norm: 0.345 | number of skipped iterations:   2 | number of nan "
                  "iterations:   1 | samples/s: 455.60 | tokens/s: 116633 | TFLOP/s: 0.0612 | of "
                  "roof: 61.2 % | data wait: 0.03 % | memory: 0.250 GiB | time left: 1:02:03 |") !=
        std::string::npos);

    MetricRow eval;
    eval.eval = true;
    eval.step = 100;
    eval.train_iters = 400;
    eval.loss = 0.5;
    eval.eval_samples = 32;
    eval.extra = {{"loss ema 0.999", 0.25}};
    CHECK(console_line(eval) ==
          " validation at iteration      100/     400 | loss: 5.000000E-01 | loss ema 0.999: "
          "2.500000E-01 | samples: 32 |");
}

TEST_CASE("metrics: the JSON line is valid and reads back exactly") {
    MetricRow r = train_row(3);
    r.seconds_left = std::nan("");
    r.grad_norm = std::numeric_limits<double>::infinity();
    r.extra = {{"loss q0", 0.1}, {"loss q1", -std::numeric_limits<double>::infinity()}};
    const std::string line = json_line(r);
    CHECK(line.find('\n') == std::string::npos);
    const auto json = nlohmann::json::parse(line);  // throws where it is not JSON
    CHECK(json["kind"] == "train");
    CHECK(json["grad_norm"].is_null());
    CHECK(json["nonfinite"] == nlohmann::json({"grad_norm", "seconds_left", "loss q1"}));

    const auto back = parse_metric_row(line);
    REQUIRE(back.has_value());
    CHECK(back->loss == r.loss);  // bit for bit
    CHECK(back->consumed_samples == r.consumed_samples);
    CHECK(std::isnan(*back->grad_norm));
    CHECK_FALSE(back->tflops.has_value());
    CHECK(back->extra.at(0) == r.extra.at(0));
    CHECK(json_line(*back) == line);

    for (const char* bad :
         {"", "{", "[]", "3", "{\"step\":1}", "{\"kind\":\"train\"}", "{\"kind\":\"x\",\"step\":1}",
          "{\"kind\":\"train\",\"step\":\"1\"}", "{\"kind\":\"train\",\"step\":1.5}", "\xff"}) {
        CAPTURE(bad);
        CHECK_FALSE(parse_metric_row(bad).has_value());
    }
    // wrong types of known keys and unknown keys are left out
    const auto odd = parse_metric_row(
        R"({"kind":"eval","step":1,"loss":"x","lr":null,"new":3,"extra":{"a":"b"}})");
    REQUIRE(odd.has_value());
    CHECK_FALSE(odd->loss.has_value());
    CHECK(odd->extra.empty());
}

TEST_CASE("metrics: a resume cuts off later rows and a torn line") {
    const test::TempDir dir;
    const fs::path path = dir / "metrics.jsonl";
    {
        MetricsFile file(path, 0);
        for (const int64_t s : {1, 2, 3, 4}) file.append(train_row(s));
        MetricRow eval = train_row(4);
        eval.eval = true;
        file.append(eval);
    }
    CHECK(steps(path) == std::vector<int64_t>{1, 2, 3, 4, 4});
    std::ofstream(path, std::ios::app) << "{\"kind\":\"train\",\"st";  // a crash in a write
    {
        MetricsFile file(path, 2);
        CHECK(steps(path) == std::vector<int64_t>{1, 2});
        file.append(train_row(3));
        file.append(train_row(4));
        file.cut_after(3);  // a rollback while it runs
        file.append(train_row(4));
    }
    CHECK(steps(path) == std::vector<int64_t>{1, 2, 3, 4});
    std::ofstream(path, std::ios::app) << "torn";
    { MetricsFile file(path, 100); }
    CHECK(steps(path) == std::vector<int64_t>{1, 2, 3, 4});

    // a run that starts anew keeps the old rows aside
    { MetricsFile file(path, 0); }
    CHECK(steps(path).empty());
    CHECK(steps(dir / "metrics.jsonl.old-0").size() == 4);
    write(path, "x");
    { MetricsFile file(path, 0); }
    CHECK(fs::exists(dir / "metrics.jsonl.old-1"));
}

TEST_CASE("metrics: a full disk leaves whole rows") {
    const test::TempDir dir;
    const fs::path path = dir / "metrics.jsonl";
    MetricsFile file(path, 0);
    file.append(train_row(1));
    // The limit on file size fails a write in the middle, as a full disk does.
    struct rlimit old {};
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &old) == 0);
    struct rlimit tight = old;
    tight.rlim_cur = fs::file_size(path) + 20;
    const auto handler = std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &tight) == 0);
    int fault = 0;
    try {
        file.append(train_row(2));
    } catch (const Error& e) {
        fault = e.exit_code();
    }
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &old) == 0);
    std::signal(SIGXFSZ, handler);
    CHECK(fault == 4);
    file.append(train_row(3));
    CHECK(steps(path) == std::vector<int64_t>{1, 3});
}

TEST_CASE("metrics: curves") {
    std::vector<MetricRow> rows = {train_row(1), train_row(2), train_row(3)};
    rows[1].loss = std::nan("");
    rows[2].eval = true;
    rows[0].extra = {{"loss ema", 7.0}};
    const Curve loss = metric_curve(rows, false, "loss");
    CHECK(loss.x == std::vector<double>{1});
    CHECK(loss.y == std::vector<double>{1});
    CHECK(metric_curve(rows, true, "consumed_samples").y == std::vector<double>{48});
    CHECK(metric_curve(rows, false, "loss ema").y == std::vector<double>{7});
    CHECK(metric_curve(rows, false, "nothing").x.empty());
}

TEST_CASE("metrics: vtrain plot draws a run's folder") {
    const test::TempDir dir;
    {
        MetricsFile file(dir / "metrics.jsonl", 0);
        for (int64_t s = 1; s <= 20; ++s) file.append(train_row(s));
    }
    const std::string program = test::program().string() + " plot " + dir.path().string();
    CHECK(test::run(program + " --smooth 5 --log-y --out " + (dir / "a.png").string()).code == 0);
    CHECK(read_file(dir / "a.png").substr(1, 3) == "PNG");
    // a run that lacks the key is named, the others are drawn
    {
        MetricsFile file(dir / "other.jsonl", 0);
        MetricRow row = train_row(1);
        row.extra = {{"own", 1.0}};
        file.append(row);
    }
    const auto mixed = test::run(program + " " + (dir / "other.jsonl").string() +
                                 " --key own --out " + (dir / "c.png").string());
    CHECK(mixed.code == 0);
    CHECK(mixed.output.find(dir.path().string() + ": no row has a finite value of 'own'") !=
          std::string::npos);
    CHECK(test::run(program + " --key gone --out " + (dir / "b.png").string()).code == 2);
    CHECK(test::run(program + "/gone --out " + (dir / "b.png").string()).code == 2);
    CHECK_FALSE(fs::exists(dir / "b.png"));
}

}  // namespace vt
