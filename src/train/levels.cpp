// SPDX-License-Identifier: MIT
// Floor 6.
#include "train/levels.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <functional>
#include <map>

#include "core/check.h"
#include "data/image.h"
#include "data/order.h"

namespace vt {

namespace {

using ShapeKey = std::array<int64_t, 4>;

size_t bin_of(double x, size_t bins) {
    return std::min(static_cast<size_t>(x * static_cast<double>(bins)), bins - 1);
}

void count_in(LevelCount& c, const LevelDraw& d) {
    const size_t bin = bin_of(d.x, c.count.size());
    ++c.count[bin];
    c.weight[bin] += d.weight;
    c.mean += d.x;
    c.mean_weight += d.weight;
    ++c.draws;
}

// From sums to means and shares.
void finish(LevelCount& c) {
    if (c.draws == 0) return;
    if (c.mean_weight > 0) {
        for (double& w : c.weight) w /= c.mean_weight;
    }
    c.mean /= static_cast<double>(c.draws);
    c.mean_weight /= static_cast<double>(c.draws);
}

LevelCount empty_count(int64_t bins) {
    const auto n = static_cast<size_t>(bins);
    LevelCount c;
    c.count.assign(n, 0);
    c.expected.assign(n, 0.0);
    c.weight.assign(n, 0.0);
    return c;
}

void find_deviations(LevelReport& r, const std::vector<size_t>& ends) {
    double means = 0, squares = 0, inside = 0, n = 0;
    size_t begin = 0;
    for (const size_t end : ends) {
        double sum = 0, square = 0;
        for (size_t i = begin; i < end; ++i) {
            sum += r.draws[i].x;
            square += r.draws[i].x * r.draws[i].x;
        }
        const auto N = static_cast<double>(end - begin);
        begin = end;
        if (N < 2) continue;
        const double mean = sum / N;
        means += mean;
        squares += mean * mean;
        inside += std::max(0.0, (square - N * mean * mean) / (N - 1)) / N;
        ++n;
    }
    if (n < 2) return;
    r.step_deviation = std::sqrt(std::max(0.0, (squares - means * means / n) / (n - 1)));
    r.independent_deviation = std::sqrt(inside / n);
}

LevelReport draw(const RunConfig& config, const std::function<ShapeKey(uint64_t)>& shape_of,
                 int64_t samples, int64_t bins) {
    VT_CHECK(samples >= 1 && bins >= 1, "{} samples in {} bins", samples, bins);
    const Objective objective(config.objective);
    const auto seed = static_cast<uint64_t>(config.run.seed);
    const std::vector<int64_t>& ramp = config.data.rampup_batch_size;
    const BatchRamp growth =
        ramp.empty() ? BatchRamp{} : BatchRamp{ramp.at(0), ramp.at(1), ramp.at(2)};
    const bool by_element = config.objective.loss_reduction == "element";

    LevelReport r;
    std::map<ShapeKey, LevelBucket> found;
    std::vector<ShapeKey> shapes;  // by draw
    std::vector<size_t> ends;      // of whole steps
    const auto want = static_cast<uint64_t>(samples);
    for (uint64_t first = 0; first < want;) {
        const auto N = static_cast<uint64_t>(growth.batch_at(first, config.data.global_batch_size));
        const StepDraws step{++r.steps, first, N};
        for (uint64_t o = first; o < std::min(first + N, want); ++o) {
            const ShapeKey s = shape_of(o);
            const auto [it, fresh] = found.try_emplace(s);
            const LatentShape latent{s[0], s[1], s[2], s[3]};
            if (fresh) {
                it->second.shape = s;
                it->second.shift = objective.shift(latent);
                it->second.density = objective.density(latent);
                it->second.seen = empty_count(bins);
            }
            LevelDraw d{.ordinal = o};
            d.x = it->second.density->quantile(objective.unit(seed, o, step));
            d.weight =
                objective.at(d.x).weight * (by_element ? static_cast<double>(latent.numel()) : 1.0);
            count_in(it->second.seen, d);
            r.draws.push_back(d);
            shapes.push_back(s);
        }
        first += N;
        if (first <= want) ends.push_back(static_cast<size_t>(first));
    }
    find_deviations(r, ends);

    std::map<ShapeKey, size_t> place;
    r.all = empty_count(bins);
    for (auto& [shape, bucket] : found) {
        place[shape] = r.buckets.size();
        finish(bucket.seen);
        const double share = static_cast<double>(bucket.seen.draws) / static_cast<double>(samples);
        for (size_t i = 0; i < bucket.seen.expected.size(); ++i) {
            const auto n = static_cast<double>(bins), at = static_cast<double>(i);
            const double p = bucket.density->cdf((at + 1) / n) - bucket.density->cdf(at / n);
            bucket.seen.expected[i] = p;
            r.all.expected[i] += share * p;
        }
        r.buckets.push_back(std::move(bucket));
    }
    for (size_t i = 0; i < r.draws.size(); ++i) {
        r.draws[i].bucket = place.at(shapes[i]);
        count_in(r.all, r.draws[i]);
    }
    finish(r.all);
    return r;
}

// The outline of a histogram whose bars have these heights.
Series stairs(std::string name, const std::vector<double>& heights) {
    Series s{.name = std::move(name), .x = {0}, .y = {0}};
    const auto n = static_cast<double>(heights.size());
    for (size_t i = 0; i < heights.size(); ++i) {
        for (const double x : {static_cast<double>(i) / n, static_cast<double>(i + 1) / n}) {
            s.x.push_back(x);
            s.y.push_back(heights[i]);
        }
    }
    s.x.push_back(1);
    s.y.push_back(0);
    return s;
}

Series curve(std::string name, const std::function<double(double)>& pdf) {
    constexpr int kPoints = 500;
    Series s{.name = std::move(name), .x = {}, .y = {}};
    for (int i = 0; i < kPoints; ++i) {
        const double x = (i + 0.5) / kPoints;
        s.x.push_back(x);
        s.y.push_back(pdf(x));
    }
    return s;
}

}  // namespace

double LevelReport::quantile(double u) const {
    VT_CHECK(!draws.empty() && u > 0 && u < 1, "quantile {} of {} draws", u, draws.size());
    std::vector<double> x;
    x.reserve(draws.size());
    for (const LevelDraw& d : draws) x.push_back(d.x);
    const auto at = static_cast<std::ptrdiff_t>(u * static_cast<double>(x.size()));
    std::nth_element(x.begin(), x.begin() + at, x.end());
    return x[static_cast<size_t>(at)];
}

double LevelReport::half_weight() const {
    std::vector<double> w;
    double sum = 0;
    for (const LevelDraw& d : draws) {
        w.push_back(d.weight);
        sum += d.weight;
    }
    std::sort(w.begin(), w.end(), std::greater<>());
    double taken = 0;
    size_t n = 0;
    while (n < w.size() && taken < sum / 2) taken += w[n++];
    return static_cast<double>(n) / static_cast<double>(w.size());
}

double LevelReport::pdf(double x) const {
    double sum = 0;
    for (const LevelBucket& b : buckets) {
        sum += static_cast<double>(b.seen.draws) * b.density->pdf(x);
    }
    return sum / static_cast<double>(all.draws);
}

LevelReport draw_levels(const RunConfig& config, const Dataset& data, int64_t samples,
                        int64_t bins) {
    std::vector<int64_t> memory(BlockOrder::needs_table(data) ? kBlockDraws : 0);
    BlockOrder order(data, static_cast<uint64_t>(config.run.seed),
                     {memory.data(), {static_cast<int64_t>(memory.size())}, DType::kI64});
    const auto shape_of = [&](uint64_t ordinal) {
        const Draw d = order.at(ordinal);
        return data.sample(d.source, d.index).shape;
    };
    return draw(config, shape_of, samples, bins);
}

LevelReport draw_levels(const RunConfig& config, const std::vector<ShapeKey>& shapes,
                        int64_t samples, int64_t bins) {
    VT_CHECK(!shapes.empty(), "no shapes");
    return draw(
        config, [&](uint64_t ordinal) { return shapes[ordinal % shapes.size()]; }, samples, bins);
}

std::string sampler_text(const ObjectiveOptions& o) {
    const auto one = [](const std::string& sampling, double mean, double std, double scale) {
        if (sampling == "logit_normal") {
            return fmt::format("logit_normal (mean {}, std {})", mean, std);
        }
        return sampling == "mode" ? fmt::format("mode (scale {})", scale) : sampling;
    };
    std::string out;
    if (o.timestep_sampling == "mix") {
        double sum = 0;
        for (const TimestepSampler& s : o.timestep_mix) sum += s.weight;
        for (const TimestepSampler& s : o.timestep_mix) {
            out += fmt::format("{}{:.3g} % {}", out.empty() ? "" : " + ", 100 * s.weight / sum,
                               one(s.sampling, s.logit_mean, s.logit_std, s.mode_scale));
        }
    } else {
        out = one(o.timestep_sampling, o.logit_mean, o.logit_std, o.mode_scale);
    }
    if (o.flow_shift != 1) out += fmt::format(", shift {}", o.flow_shift);
    if (o.shift_by != "none") out += fmt::format(", shift by {}", o.shift_by);
    if (o.sigma_range[0] > 0 || o.sigma_range[1] < 1) {
        out += fmt::format(", only [{}, {}]", o.sigma_range[0], o.sigma_range[1]);
    }
    return out + (o.stratified ? ", stratified" : "");
}

void plot_levels(const fs::path& path, const RunConfig& config, const LevelReport& report) {
    constexpr size_t kBins = 50, kMostCurves = 4;
    std::vector<double> drawn(kBins, 0.0), weighed(kBins, 0.0);
    double weight = 0;
    for (const LevelDraw& d : report.draws) {
        drawn[bin_of(d.x, kBins)] += 1;
        weighed[bin_of(d.x, kBins)] += d.weight;
        weight += d.weight;
    }
    const auto bins = static_cast<double>(kBins);
    double highest = 0;
    for (double& y : drawn) {
        y *= bins / static_cast<double>(report.draws.size());
        highest = std::max(highest, y);
    }
    bool cut = false;
    for (double& y : weighed) {
        y *= bins / (weight > 0 ? weight : 1);
        cut = cut || y > 3 * highest;
        y = std::min(y, 3 * highest);  // a weight without bound would flatten all else
    }
    const auto shown_pdf = [&](double y) { return std::min(y, 3 * highest); };
    std::vector<Series> series = {
        stairs(fmt::format("{} draws", report.all.draws), drawn),
        curve("their density", [&](double x) { return shown_pdf(report.pdf(x)); }),
    };
    const bool weighs = config.objective.loss_weighting != "none" ||
                        (config.objective.loss_reduction == "element" && report.buckets.size() > 1);
    if (weighs)
        series.push_back(stairs(cut ? "loss weight (top cut off)" : "loss weight", weighed));

    std::vector<const LevelBucket*> by_shift;  // one for each shift
    for (const LevelBucket& b : report.buckets) {
        if (std::none_of(by_shift.begin(), by_shift.end(),
                         [&](const LevelBucket* o) { return o->shift == b.shift; })) {
            by_shift.push_back(&b);
        }
    }
    std::sort(by_shift.begin(), by_shift.end(),
              [](const LevelBucket* a, const LevelBucket* b) { return a->shift < b->shift; });
    if (by_shift.size() > 1) {
        const size_t shown = std::min(by_shift.size(), kMostCurves);
        for (size_t k = 0; k < shown; ++k) {  // the least and the largest among them
            const LevelBucket& b = *by_shift[k * (by_shift.size() - 1) / (shown - 1)];
            series.push_back(
                curve(fmt::format("{}: shift {:.3g}", fmt::join(b.shape, "x"), b.shift),
                      [&](double x) { return shown_pdf(b.density->pdf(x)); }));
        }
    }
    const bool flow = config.objective.kind == "rectified_flow";
    const std::string what =
        flow ? sampler_text(config.objective)
             : fmt::format("{}, {} prediction", config.objective.kind, config.objective.prediction);
    write_plot(path, "noise levels: " + what,
               flow ? "sigma (1: pure noise)" : "t / 1000 (1: most noise)",
               "density (area under each curve: 1)", series, {.legend = Legend::kAbove});
}

}  // namespace vt
