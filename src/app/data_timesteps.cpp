// SPDX-License-Identifier: MIT
// vtrain data timesteps: the noise levels a configuration will train on. Floor 7.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include <CLI/CLI.hpp>

#include "app/data_tools.h"
#include "app/out_file.h"
#include "app/run_config.h"
#include "app/runtime.h"
#include "core/log.h"
#include "train/levels.h"

namespace vt {

namespace {

using ShapeKey = std::array<int64_t, 4>;
constexpr double kQuantiles[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

struct Args {
    std::string config;
    std::vector<std::string> sets, shapes;
    fs::path out;
    int64_t samples = 65536, bins = 20;
    bool json = false;
};

ShapeKey parse_shape(const std::string& text) {
    ShapeKey s{};
    int used = 0;
    constexpr int64_t kMost = 1 << 20;
    const int read =
        std::sscanf(text.c_str(), "%ld,%ld,%ld,%ld%n", &s[0], &s[1], &s[2], &s[3], &used);
    if (read != 4 || static_cast<size_t>(used) != text.size() ||
        std::any_of(s.begin(), s.end(), [](int64_t d) { return d < 1 || d > kMost; })) {
        raise(Fault::kUser, fmt::format("--shape {}: not a latent shape C,T,H,W", text),
              "for example --shape 16,21,60,104");
    }
    return s;
}

// Of the data, or where there is none of the shapes given; says which.
LevelReport look(const Args& a, const RunConfig& config) {
    std::vector<ShapeKey> shapes;
    for (const std::string& s : a.shapes) shapes.push_back(parse_shape(s));
    std::string why;
    if (shapes.empty()) {
        std::unique_ptr<Dataset> data;
        try {
            data = open_training_data(config);
        } catch (const Error& e) {
            const ObjectiveOptions& o = config.objective;
            if (o.shift_by != "none") {
                throw Error(e.fault(), e.message(),
                            fmt::format("objective.shift_by = \"{}\" needs the shapes of the data; "
                                        "name some in its place: --shape C,T,H,W (repeatable)",
                                        o.shift_by),
                            Where::here());
            }
            warn("{}", e.message());
            why = "without data; no shift by shape, so that shapes do not matter";
            shapes = {{1, 1, 1, 1}};
        }
        if (data) {
            if (!a.json) say("draws of the data, in the order of training");
            return draw_levels(config, *data, a.samples, a.bins);
        }
    } else {
        why = fmt::format("of the shapes given, as often each: {}", fmt::join(a.shapes, "  "));
    }
    if (!a.json) say("draws {}", why);
    return draw_levels(config, shapes, a.samples, a.bins);
}

void print_buckets(const RunConfig& config, const LevelReport& r) {
    if (r.buckets.size() < 2 && config.objective.shift_by == "none") return;
    say("by shape (C,T,H,W)");
    size_t width = 0;
    double total = 0;  // of the loss weight
    for (const LevelBucket& b : r.buckets) {
        width = std::max(width, fmt::format("{}", fmt::join(b.shape, ",")).size());
        total += b.seen.mean_weight * static_cast<double>(b.seen.draws);
    }
    say("  {:>{}}   draws %   shift   mean   median   loss weight %", "", width);
    constexpr size_t kMost = 40;
    for (size_t i = 0; i < std::min(r.buckets.size(), kMost); ++i) {
        const LevelBucket& b = r.buckets[i];
        const auto draws = static_cast<double>(b.seen.draws);
        say("  {:>{}}   {:>7.2f}   {:>5.3g}   {:.3f}    {:.3f}   {:>13.2f}",
            fmt::format("{}", fmt::join(b.shape, ",")), width,
            100 * draws / static_cast<double>(r.all.draws), b.shift, b.seen.mean,
            b.density->quantile(0.5), total > 0 ? 100 * b.seen.mean_weight * draws / total : 0.0);
    }
    if (r.buckets.size() > kMost) say("  and {} more", r.buckets.size() - kMost);
}

void print(const RunConfig& config, const LevelReport& r) {
    const ObjectiveOptions& o = config.objective;
    const bool flow = o.kind == "rectified_flow";
    say("{} draws, steps 1 to {} of the run: {}", r.all.draws, r.steps, sampler_text(o));
    say("{}, loss weighting {}, loss per {}",
        flow ? "rectified_flow: x is sigma"
             : fmt::format("ddpm, {} on {}{}: x is t / 1000", o.prediction, o.beta_schedule,
                           o.zero_terminal_snr ? " with zero terminal SNR" : ""),
        o.loss_weighting, o.loss_reduction);
    const size_t bins = r.all.count.size();
    const int64_t most = *std::max_element(r.all.count.begin(), r.all.count.end());
    say("  {:<13}{:<34}{:>8}{:>10}{:>15}", "x", "draws", "%", "density %", "loss weight %");
    for (size_t i = 0; i < bins; ++i) {
        const double share = static_cast<double>(r.all.count[i]) / static_cast<double>(r.all.draws);
        const auto length = static_cast<size_t>(
            std::llround(32.0 * static_cast<double>(r.all.count[i]) / static_cast<double>(most)));
        const auto n = static_cast<double>(bins);
        say("  {:.3f}-{:.3f}  {:<34}{:>8.3f}{:>10.3f}{:>15.3f}", static_cast<double>(i) / n,
            static_cast<double>(i + 1) / n,
            std::string(r.all.count[i] > 0 ? std::max<size_t>(length, 1) : 0, '#'), 100 * share,
            100 * r.all.expected[i], 100 * r.all.weight[i]);
    }
    std::string quantiles;
    for (const double q : kQuantiles) {
        quantiles += fmt::format("  {:g} % {:.4f}", 100 * q, r.quantile(q));
    }
    say("quantiles{}", quantiles);
    say("mean {:.4f}; mean loss weight {:.4g}; half of the loss weight lies on {:.3g} % of the "
        "draws",
        r.all.mean, r.all.mean_weight, 100 * r.half_weight());
    if (r.independent_deviation > 0) {
        say("the mean of a step differs from step to step by {:.4f}, of independent draws by "
            "{:.4f}",
            r.step_deviation, r.independent_deviation);
    }
    print_buckets(config, r);
}

std::string json_of(const RunConfig& config, const LevelReport& r) {
    const auto count = [](const LevelCount& c) {
        return nlohmann::ordered_json{
            {"draws", c.draws}, {"mean", c.mean},         {"mean_weight", c.mean_weight},
            {"count", c.count}, {"expected", c.expected}, {"weight", c.weight}};
    };
    nlohmann::ordered_json out;
    out["kind"] = config.objective.kind;
    out["sampler"] = sampler_text(config.objective);
    out["steps"] = r.steps;
    out["all"] = count(r.all);
    for (const double q : kQuantiles) {
        out["quantiles"][fmt::format("{:g}", q)] = r.quantile(q);
    }
    out["half_weight"] = r.half_weight();
    out["step_deviation"] = r.step_deviation;
    out["independent_deviation"] = r.independent_deviation;
    out["buckets"] = nlohmann::ordered_json::array();
    for (const LevelBucket& b : r.buckets) {
        nlohmann::ordered_json one = count(b.seen);
        one["shape"] = b.shape;
        one["shift"] = b.shift;
        out["buckets"].push_back(std::move(one));
    }
    return out.dump(2);
}

int timesteps(const Args& a) {
    if (!a.out.empty()) expect_file_place(a.out);
    const RunConfig config = load_run_config(a.config, a.sets);
    const LevelReport r = look(a, config);
    if (a.json) {
        say("{}", json_of(config, r));
    } else {
        print(config, r);
    }
    if (a.out.empty()) return 0;
    plot_levels(a.out, config, r);
    if (!a.json) say("plot: {}", a.out.string());
    return 0;
}

}  // namespace

void add_data_timesteps(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand(
        "timesteps",
        "Histogram of the noise levels that a configuration will train on, and of the loss weight "
        "on them: the draws of the run itself, with its data's shapes");
    const auto a = std::make_shared<Args>();
    c->add_option("--config", a->config, "TOML file of the run")->required();
    c->add_option("--set", a->sets, "section.key=value, overrides the file")
        ->allow_extra_args(false);
    c->add_option("--samples", a->samples, "Draws, from the run's first on")
        ->check(CLI::Range(int64_t{1}, int64_t{10000000}))
        ->capture_default_str();
    c->add_option("--bins", a->bins, "Bins of the histogram")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    c->add_option("--shape", a->shapes,
                  "Latent shape C,T,H,W to draw for in place of the data's (repeatable)")
        ->allow_extra_args(false);
    c->add_option("--out", a->out, "PNG to draw it in");
    c->add_flag("--json", a->json, "Print one JSON object");
    c->callback([a, &work] { work = [a] { return timesteps(*a); }; });
}

}  // namespace vt
