// SPDX-License-Identifier: MIT
// vtrain plot: curves of one or several runs' metrics.jsonl as a PNG. Floor 7.
#include <algorithm>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/out_file.h"
#include "core/check.h"
#include "core/log.h"
#include "data/image.h"
#include "train/metrics.h"

namespace vt {

namespace {

struct Args {
    std::vector<fs::path> runs;
    fs::path out;
    std::string key = "loss";
    int64_t smooth = 1;
    bool log_y = false;
};

// Centred running mean over `width` points, fewer at the ends.
Curve smoothed(const Curve& c, int64_t width) {
    Curve out = c;
    const auto n = static_cast<int64_t>(c.y.size());
    for (int64_t i = 0; i < n; ++i) {
        const int64_t reach = std::min({width / 2, i, n - 1 - i});
        double sum = 0;
        for (int64_t j = i - reach; j <= i + reach; ++j) sum += c.y[static_cast<size_t>(j)];
        out.y[static_cast<size_t>(i)] = sum / static_cast<double>(2 * reach + 1);
    }
    return out;
}

int plot(Args& a) {
    expect_file_place(a.out);
    std::vector<Series> series;
    std::vector<std::string> without;
    for (const fs::path& run : a.runs) {
        const fs::path file = fs::is_directory(run) ? run / "metrics.jsonl" : run;
        if (!fs::exists(file)) {
            raise(Fault::kUser, fmt::format("{}: no metrics there", file.string()),
                  "give a run's folder or its metrics.jsonl");
        }
        const std::vector<MetricRow> rows = read_metrics(file);
        const std::string name =
            a.runs.size() > 1 ? fs::absolute(file).parent_path().filename().string() + " " : "";
        const size_t before = series.size();
        const auto add = [&](const char* kind, const Curve& c) {
            if (!c.x.empty()) series.push_back({name + kind, c.x, c.y});
        };
        // "loss" of a row is that of its step alone; the mean since the row before is what learns
        Curve curve = metric_curve(rows, false, a.key == "loss" ? "loss mean" : a.key);
        if (curve.x.empty()) curve = metric_curve(rows, false, a.key);
        add("training", smoothed(curve, a.smooth));
        add("validation", metric_curve(rows, true, a.key));
        if (series.size() == before) without.push_back(run.string());
    }
    for (const std::string& run : without) {
        if (!series.empty()) warn("{}: no row has a finite value of '{}'", run, a.key);
    }
    if (series.empty()) {
        raise(Fault::kUser, fmt::format("--key {}: no row has a finite value of it", a.key),
              "keys are those of metrics.jsonl, e.g. loss, grad_norm, lr, step_ms");
    }
    write_plot(a.out, a.key, "step", a.key, series, {.log_y = a.log_y});
    say("plot: {}", a.out.string());
    return 0;
}

}  // namespace

void add_plot_command(CLI::App& app, Work& work) {
    const auto a = std::make_shared<Args>();
    CLI::App* c = app.add_subcommand("plot", "Draw a metric of runs over their steps as a PNG");
    c->add_option("runs", a->runs, "Folders of runs, or metrics.jsonl files")->required();
    c->add_option("--out", a->out, "PNG to write")->required();
    c->add_option("--key", a->key, "Key of metrics.jsonl, or the name of an extra value")
        ->capture_default_str();
    c->add_option("--smooth", a->smooth, "Points of the running mean of training values")
        ->check(CLI::Range(1, 100000))
        ->capture_default_str();
    c->add_flag("--log-y", a->log_y, "Logarithmic value axis");
    c->callback([a, &work] { work = [a] { return plot(*a); }; });
}

}  // namespace vt
