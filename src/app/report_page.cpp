// SPDX-License-Identifier: MIT
// From a run's files to the JSON that the page draws.
// Floor 7.
#include "app/report_page.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "train/events.h"
#include "train/metrics.h"

namespace vt {

namespace {

using Json = nlohmann::ordered_json;

struct Points {
    std::vector<double> x, y;
};

// Seven digits are more than a screen shows, and make the file half as large.
double short_number(double v) {
    return std::strtod(fmt::format("{:.7g}", v).c_str(), nullptr);
}

Json json_of(const Points& p, int64_t points) {
    Json x = Json::array(), y = Json::array();
    for (const size_t i : thinned(p.y, points)) {
        x.push_back(static_cast<int64_t>(p.x[i]));
        y.push_back(std::isfinite(p.y[i]) ? Json(short_number(p.y[i])) : Json(nullptr));
    }
    return {{"x", std::move(x)}, {"y", std::move(y)}};
}

std::string text_of(const fs::path& path) {
    return fs::is_regular_file(path) ? read_file(path) : "";
}

// Fills series, last_step and train_iters; returns the number of lines that are no rows.
int64_t add_rows(Json& run, const fs::path& file, const ReportOptions& options) {
    const std::string text = read_file(file);
    std::vector<MetricRow> rows;
    int64_t bad = 0;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        if (auto row = parse_metric_row(std::string_view(text).substr(begin, end - begin))) {
            rows.push_back(std::move(*row));
        } else {
            ++bad;
        }
        begin = end + 1;
    }
    std::stable_sort(rows.begin(), rows.end(),
                     [](const MetricRow& a, const MetricRow& b) { return a.step < b.step; });
    std::map<std::string, Points> series[2];
    for (const MetricRow& row : rows) {
        for (const auto& [key, value] : metric_values(row)) {
            Points& p = series[row.eval ? 1 : 0][key];
            p.x.push_back(static_cast<double>(row.step));
            p.y.push_back(value);
        }
        run["last_step"] = row.step;
        run["train_iters"] = row.train_iters;
    }
    for (const int k : {0, 1}) {
        for (const auto& [key, points] : series[k]) {
            run["series"][k == 0 ? "train" : "eval"][key] = json_of(points, options.points);
        }
    }
    return bad;
}

// Events, what the newest process ran on, and the time all processes took together.
void add_events(Json& run, const fs::path& folder) {
    double seconds = 0, begin = 0, last = 0;
    for (const RunEvent& e : read_events(folder / "events.jsonl")) {
        run["events"].push_back(
            {{"kind", name_of(e.kind)}, {"step", e.step}, {"wall", e.wall}, {"text", e.text}});
        if (e.kind == EventKind::kStart || e.kind == EventKind::kResume) {
            seconds += last - begin;
            begin = e.wall;
            Json facts = Json::array();
            for (const auto& [key, value] : e.facts) facts.push_back({key, value});
            if (!facts.empty()) run["environment"] = std::move(facts);
        }
        last = e.wall;
    }
    run["seconds"] = std::max(0.0, seconds + last - begin);
}

std::string data_uri(const fs::path& file) {
    const std::string ext = file.extension().string();
    const char* type = ext == ".mp4" ? "video/mp4" : "image/png";
    return fmt::format("data:{};base64,{}", type, base64(read_file(file)));
}

struct StepFiles {
    int64_t step = 0;
    fs::path folder, sheet;
    std::vector<fs::path> items;
    [[nodiscard]] int64_t bytes() const {
        int64_t sum = 0;
        std::error_code error;
        for (const fs::path& p : items) sum += static_cast<int64_t>(fs::file_size(p, error));
        if (items.empty()) sum += static_cast<int64_t>(fs::file_size(sheet, error));
        return sum;
    }
};

std::vector<StepFiles> sample_steps(const fs::path& folder) {
    std::vector<StepFiles> out;
    if (!fs::is_directory(folder)) return out;
    for (const auto& entry : fs::directory_iterator(folder)) {
        long long step = 0;
        const std::string name = entry.path().filename().string();
        if (!entry.is_directory() || std::sscanf(name.c_str(), "step-%lld", &step) != 1) continue;
        StepFiles s{.step = step, .folder = entry.path(), .sheet = {}, .items = {}};
        for (const auto& file : fs::directory_iterator(entry.path())) {
            const std::string ext = file.path().extension().string();
            const std::string stem = file.path().stem().string();
            if (stem == "samples" && ext == ".png") s.sheet = file.path();
            if (stem.rfind("sample-", 0) == 0 && (ext == ".mp4" || ext == ".png")) {
                s.items.push_back(file.path());
            }
        }
        std::sort(s.items.begin(), s.items.end());
        if (!s.items.empty() || !s.sheet.empty()) out.push_back(std::move(s));
    }
    std::sort(out.begin(), out.end(),
              [](const StepFiles& a, const StepFiles& b) { return a.step < b.step; });
    return out;
}

// `count` of the steps, evenly spread, the first and the last among them (one: the last).
std::vector<StepFiles> spread(const std::vector<StepFiles>& all, int64_t count) {
    const auto n = static_cast<int64_t>(all.size());
    if (n <= count) return all;
    std::vector<StepFiles> out;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t at = count == 1 ? n - 1 : i * (n - 1) / (count - 1);
        out.push_back(all[static_cast<size_t>(at)]);
    }
    return out;
}

void add_samples(Json& run, const fs::path& folder, const ReportOptions& options, int64_t budget) {
    const std::vector<StepFiles> all = sample_steps(folder / "samples");
    std::vector<StepFiles> chosen;
    for (int64_t count = options.columns; count >= 1; --count) {
        chosen = spread(all, count);
        int64_t bytes = 0;
        for (const StepFiles& s : chosen) bytes += s.bytes();
        if (bytes <= budget) break;
        chosen.clear();
    }
    if (chosen.size() < all.size()) {
        run["samples_note"] =
            fmt::format("{} of {} steps with samples are shown; the rest is in {}", chosen.size(),
                        all.size(), (folder / "samples").string());
    }
    for (size_t i = 0; i < chosen.size(); ++i) {
        const StepFiles& s = chosen[i];
        std::map<int64_t, std::string> captions;
        const Json said = Json::parse(text_of(s.folder / "samples.json"), nullptr, false);
        if (said.is_object() && said.contains("samples") && said["samples"].is_array()) {
            for (const Json& one : said["samples"]) {
                if (!one.is_object() || !one.contains("index")) continue;
                if (!one["index"].is_number_integer()) continue;
                captions[one["index"].get<int64_t>()] = one.value("caption", "");
            }
        }
        Json step = {{"step", s.step}, {"items", Json::array()}};
        for (const fs::path& file : s.items) {
            long long index = -1;
            (void)std::sscanf(file.stem().string().c_str(), "sample-%lld", &index);
            step["items"].push_back({{"id", file.stem().string()},
                                     {"caption", captions[index]},
                                     {"src", data_uri(file)}});
        }
        // the newest sheet has every frame and caption; all of them only where there is no video
        if (!s.sheet.empty() && (s.items.empty() || i + 1 == chosen.size())) {
            step["sheet"] = data_uri(s.sheet);
        }
        run["samples"].push_back(std::move(step));
    }
}

Json run_of(const fs::path& path, const std::string& name, const ReportOptions& options,
            int64_t media) {
    Json run = {{"name", name},
                {"path", fs::absolute(path).lexically_normal().string()},
                {"last_step", 0},
                {"train_iters", 0},
                {"seconds", 0},
                {"notes", Json::array()},
                {"series", {{"train", Json::object()}, {"eval", Json::object()}}},
                {"events", Json::array()},
                {"environment", Json::array()},
                {"samples", Json::array()},
                {"samples_note", ""}};
    const bool folder = fs::is_directory(path);
    const fs::path file = folder ? path / "metrics.jsonl" : path;
    if (fs::exists(file)) {
        if (const int64_t bad = add_rows(run, file, options); bad > 0) {
            run["notes"].push_back(
                fmt::format("{} line{} of metrics.jsonl could not be read and {} left out", bad,
                            bad == 1 ? "" : "s", bad == 1 ? "is" : "are"));
        }
    }
    if (run["series"]["train"].empty() && run["series"]["eval"].empty()) {
        run["notes"].push_back("Nothing has been logged yet.");
    }
    const fs::path home = folder ? path : path.parent_path();
    run["config"] = text_of(home / "config.toml");
    add_events(run, home);
    add_samples(run, home, options, media);
    return run;
}

void replace(std::string& page, std::string_view mark, std::string_view with) {
    const size_t at = page.find(mark);
    VT_CHECK(at != std::string::npos, "the page has no {}", mark);
    page.replace(at, mark.size(), with);
}

}  // namespace

std::vector<size_t> thinned(const std::vector<double>& y, int64_t points) {
    std::vector<size_t> keep;
    const size_t n = y.size(), pieces = static_cast<size_t>(std::max<int64_t>(1, points / 4));
    if (n <= static_cast<size_t>(points)) {
        for (size_t i = 0; i < n; ++i) keep.push_back(i);
        return keep;
    }
    for (size_t p = 0; p < pieces; ++p) {
        const size_t begin = p * n / pieces, end = (p + 1) * n / pieces;
        size_t low = begin, high = begin, odd = begin;
        for (size_t i = begin; i < end; ++i) {
            if (!(y[i] >= y[low])) low = std::isfinite(y[i]) ? i : low;
            if (!(y[i] <= y[high])) high = std::isfinite(y[i]) ? i : high;
            if (std::isfinite(y[odd]) && !std::isfinite(y[i])) odd = i;
        }
        std::vector<size_t> some = {begin, low, high, odd, end - 1};
        std::sort(some.begin(), some.end());
        some.erase(std::unique(some.begin(), some.end()), some.end());
        keep.insert(keep.end(), some.begin(), some.end());
    }
    return keep;
}

std::string base64(std::string_view bytes) {
    static constexpr char kDigits[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    out.reserve((bytes.size() + 2) / 3 * 4);
    for (size_t i = 0; i < bytes.size(); i += 3) {
        uint32_t group = 0;
        for (size_t j = 0; j < 3; ++j) {
            const uint32_t byte =
                i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0U;
            group = group << 8 | byte;
        }
        const size_t digits = std::min<size_t>(3, bytes.size() - i) + 1;
        for (size_t j = 0; j < 4; ++j) {
            out += j < digits ? kDigits[group >> (18 - 6 * j) & 63] : '=';
        }
    }
    return out;
}

std::string report_page(const std::vector<fs::path>& runs, const ReportOptions& options) {
    VT_CHECK(!runs.empty(), "a report of no run");
    Json data = {{"made_by", "vtrain " VTRAIN_VERSION " (" VTRAIN_BUILD ")"},
                 {"runs", Json::array()}};
    std::map<std::string, int> names;
    for (const fs::path& path : runs) {
        if (!fs::exists(path)) {
            raise(Fault::kUser, fmt::format("{}: no run there", path.string()),
                  "give a run's folder or its metrics.jsonl");
        }
        // an empty folder is a run that has just begun
        if (fs::is_directory(path) && !fs::is_empty(path) && !fs::exists(path / "metrics.jsonl") &&
            !fs::exists(path / "config.toml") && !fs::exists(path / "events.jsonl")) {
            raise(Fault::kUser,
                  fmt::format("{} is no run: it has neither metrics.jsonl, events.jsonl nor "
                              "config.toml",
                              path.string()),
                  "give a run's folder (run.out) or its metrics.jsonl");
        }
        const fs::path whole = fs::absolute(path).lexically_normal();
        const fs::path home = fs::is_directory(path) ? whole : whole.parent_path();
        std::string name = (home.has_filename() ? home : home.parent_path()).filename().string();
        if (const int k = ++names[name]; k > 1) name += fmt::format(" ({})", k);
        data["runs"].push_back(
            run_of(path, name, options, options.media_bytes / static_cast<int64_t>(runs.size())));
    }
    // names from outside may hold bytes that are not UTF-8; "<" could end the script element
    std::string json = data.dump(-1, ' ', false, Json::error_handler_t::replace);
    for (size_t at = 0; (at = json.find('<', at)) != std::string::npos;) {
        json.replace(at, 1, "\\u003c");
    }
    const PageParts& parts = page_parts();
    std::string page(parts.html);
    replace(page, "{{css}}", parts.css);
    replace(page, "{{charts}}", parts.charts);
    replace(page, "{{page}}", parts.script);
    replace(page, "{{data}}", json);
    return page;
}

}  // namespace vt
