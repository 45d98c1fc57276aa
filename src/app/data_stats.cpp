// SPDX-License-Identifier: MIT
// vtrain data stats: histograms and doubts. Floor 7.
#include <algorithm>
#include <cmath>
#include <memory>

#include <CLI/CLI.hpp>

#include "app/data_options.h"
#include "app/data_tools.h"
#include "core/check.h"
#include "core/log.h"
#include "data/stats.h"

namespace vt {

namespace {

struct Args {
    std::vector<std::string> train, valid, maps;
    FactsArgs facts;
    int64_t samples = 256;
    bool all = false, json = false;
};

struct Bar {
    std::string name;
    int64_t count = 0;
    std::string said{};  // behind the bar, in place of the count
};

void print_bars(const std::string& title, const std::vector<Bar>& bars) {
    if (bars.empty()) return;
    say("{}", title);
    int64_t most = 1;
    size_t width = 0;
    for (const Bar& b : bars) {
        most = std::max(most, b.count);
        width = std::max(width, b.name.size());
    }
    for (const Bar& b : bars) {
        const auto length = static_cast<size_t>(
            std::llround(40.0 * static_cast<double>(b.count) / static_cast<double>(most)));
        say("  {:>{}}  {:<40} {}", b.name, width,
            std::string(b.count > 0 ? std::max<size_t>(length, 1) : 0, '#'),
            b.said.empty() ? std::to_string(b.count) : b.said);
    }
}

// At most `most` bars of equal width over whole numbers.
std::vector<Bar> binned(const std::map<int64_t, int64_t>& counts, int64_t most) {
    std::vector<Bar> out;
    if (counts.empty()) return out;
    const int64_t low = counts.begin()->first, high = counts.rbegin()->first;
    const int64_t width = div_up(high - low + 1, most);
    for (int64_t at = low; at <= high; at += width) {
        Bar b{.name = width == 1 ? std::to_string(at) : fmt::format("{}-{}", at, at + width - 1)};
        for (auto it = counts.lower_bound(at); it != counts.end() && it->first < at + width; ++it) {
            b.count += it->second;
        }
        out.push_back(std::move(b));
    }
    return out;
}

void print_values(const ValueCounts& v) {
    const int64_t all = std::max<int64_t>(v.finite(), 1);
    const auto share = [&](int64_t n) {
        return fmt::format("{:.3f} %", 100 * static_cast<double>(n) / static_cast<double>(all));
    };
    const auto edge = [](int i) {
        return ValueCounts::kLow + static_cast<double>(i) / ValueCounts::kPerUnit;
    };
    std::vector<Bar> bars{{fmt::format("below {:.1f}", edge(0)), v.below, share(v.below)}};
    for (int i = 0; i < ValueCounts::kBins; ++i) {
        const int64_t n = v.bins[static_cast<size_t>(i)];
        bars.push_back({fmt::format("{:.1f} to {:.1f}", edge(i), edge(i + 1)), n, share(n)});
    }
    bars.push_back(
        {fmt::format("{:.1f} and above", edge(ValueCounts::kBins)), v.above, share(v.above)});
    print_bars(fmt::format("{} latent values of all channels, as stored", v.finite()), bars);
    say("  exactly 0: {} ({}); infinite or NaN, in bad samples: {}", v.zeros, share(v.zeros),
        v.not_finite);
}

std::string cut(std::string text) {
    if (text.size() <= 100) return text;
    size_t end = 97;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
    return text.substr(0, end) + "...";
}

void print(const DataStats& s) {
    say("{} samples in {} shards ({} empty, {} bad)", s.samples, s.files, s.empty_files,
        s.bad_files.size());
    std::vector<Bar> shapes, seconds;
    for (const auto& [shape, n] : s.shapes) {
        shapes.push_back({fmt::format("{},{},{},{}", shape[0], shape[1], shape[2], shape[3]), n});
    }
    for (const auto& [length, n] : s.seconds) seconds.push_back({fmt::format("{:.2f}", length), n});
    print_bars("shapes (C,T,H,W)", shapes);
    print_bars("seconds of a clip", seconds);
    print_bars(fmt::format("text rows of a sample (text_len {})", s.text_len),
               binned(s.text_rows, 16));
    if (s.read > 0) {
        say("latent values, {} samples read", s.read);
        say("  channel      mean       std       min       max");
        for (size_t c = 0; c < s.channels.size(); ++c) {
            const ChannelStats& v = s.channels[c];
            say("  {:>7} {:>9.4f} {:>9.4f} {:>9.3f} {:>9.3f}", c, v.mean, v.std, v.min, v.max);
        }
    }
    if (s.read > 0 || s.values.not_finite > 0) print_values(s.values);
    say("captions: {} distinct, {} empty", s.distinct_captions, s.empty_captions);
    if (s.most_repeated > 1) {
        say("  {} times: \"{}\"", s.most_repeated, cut(s.most_repeated_caption));
    }
    if (!s.longest_caption.empty()) {
        say("  longest, {} bytes: \"{}\"", s.longest_caption.size(), cut(s.longest_caption));
    }
    for (const std::string& bad : s.bad_files) say("BAD SHARD: {}", bad);
    for (const std::string& bad : s.bad_samples) say("BAD SAMPLE: {}", bad);
    for (const std::string& w : s.warnings) say("WARNING: {}", w);
    if (s.warnings.empty()) say("nothing contradicts what the shards say of themselves");
}

int stats(const Args& a) {
    std::vector<std::string> train, valid = a.valid;
    for (const std::string& name : a.train) {
        // OUT of `data import` or `data encode` has its validation part in a folder of its own
        const fs::path part = fs::path(name) / "valid";
        train.push_back(name);
        if (a.valid.empty() && fs::is_directory(part)) valid.push_back(part.string());
    }
    StatsOptions o;
    o.samples = a.all ? 0 : a.samples;
    o.index.foreign.names = parse_names(a.maps, data_set_names(), "--map");
    o.index.foreign.facts = a.facts.given();
    const DataStats s = data_stats(shards_of(train), shards_of(valid), o);
    if (a.json) {
        say("{}", stats_json(s));
    } else {
        print(s);
    }
    return s.bad_files.empty() && s.bad_samples.empty() ? 0 : static_cast<int>(Fault::kData);
}

}  // namespace

void add_data_stats(CLI::App& data, Work& work) {
    CLI::App* c = data.add_subcommand(
        "stats",
        "Histograms of shapes, durations, text and latent values; repeated captions and ids; "
        "whatever contradicts the facts. Exit 3 where something is bad");
    const auto a = std::make_shared<Args>();
    c->add_option("files", a->train, "Shards, or folders of them (FOLDER/valid is validation)")
        ->required();
    c->add_option("--valid", a->valid, "Validation shards, whose ids and captions are compared");
    c->add_option("--samples", a->samples, "Samples whose values are read, spread over all")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    c->add_flag("--all", a->all, "Read every sample");
    c->add_flag("--json", a->json, "Print one JSON object");
    c->add_option("--map", a->maps, "Names of data sets in files of another format: OURS=THEIRS");
    add_facts_options(*c, a->facts);
    c->callback([a, &work] { work = [a] { return stats(*a); }; });
}

}  // namespace vt
