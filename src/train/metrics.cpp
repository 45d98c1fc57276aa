// SPDX-License-Identifier: MIT
#include "train/metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <type_traits>
#include <variant>

#include "core/check.h"
#include "train/events.h"

namespace vt {

namespace {

using Json = nlohmann::ordered_json;

std::string duration(double seconds) {
    if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
    const auto s = static_cast<int64_t>(std::llround(seconds));
    return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string whole(const char* format, int64_t v) {
    return fmt::format(fmt::runtime(format), v);
}
std::string real(const char* format, double v) {
    return fmt::format(fmt::runtime(format), v);
}

// The one table: a new metric is a member and a row here.
struct Metric {
    const char* key;  // in JSON
    std::variant<std::optional<int64_t> MetricRow::*, std::optional<double> MetricRow::*> member;
    const char* format;  // on the console, with label and unit; nullptr: a duration
};
constexpr Metric kMetrics[] = {
    {"consumed_samples", &MetricRow::consumed_samples, "consumed samples: {:12d}"},
    {"step_ms", &MetricRow::step_ms, "elapsed time per iteration (ms): {:.1f}"},
    {"lr", &MetricRow::lr, "learning rate: {:.6E}"},
    {"global_batch_size", &MetricRow::global_batch_size, "global batch size: {:5d}"},
    {"loss", &MetricRow::loss, "loss: {:.6E}"},
    {"grad_norm", &MetricRow::grad_norm, "grad norm: {:.3f}"},
    {"skipped_iters", &MetricRow::skipped_iters, "number of skipped iterations: {:3d}"},
    {"nan_iters", &MetricRow::nan_iters, "number of nan iterations: {:3d}"},
    {"bad_samples", &MetricRow::bad_samples, "bad samples: {}"},
    {"samples_per_s", &MetricRow::samples_per_s, "samples/s: {:.2f}"},
    {"tokens_per_s", &MetricRow::tokens_per_s, "tokens/s: {:.0f}"},
    {"tflops", &MetricRow::tflops, "TFLOP/s: {:.4g}"},
    {"roof_percent", &MetricRow::roof_percent, "of roof: {:.1f} %"},
    {"data_wait_percent", &MetricRow::data_wait_percent, "data wait: {:.2f} %"},
    {"memory_gib", &MetricRow::memory_gib, "memory: {:.3f} GiB"},
    {"eval_samples", &MetricRow::eval_samples, "samples: {}"},
    {"seconds_left", &MetricRow::seconds_left, nullptr},
};

void put(Json& out, Json& nonfinite, const std::string& key, double value) {
    if (std::isfinite(value)) {
        out[key] = value;
    } else {
        out[key] = nullptr;
        nonfinite.push_back(key);
    }
}

}  // namespace

std::string console_line(const MetricRow& row) {
    std::string out =
        row.eval ? fmt::format(" validation at iteration {:8d}/{:8d} |", row.step, row.train_iters)
                 : fmt::format(" iteration {:8d}/{:8d} |", row.step, row.train_iters);
    for (const Metric& m : kMetrics) {
        std::visit(
            [&](auto member) {
                const auto& value = row.*member;
                if (!value) return;
                if (m.format == nullptr) {
                    out += " time left: " + duration(static_cast<double>(*value)) + " |";
                } else if constexpr (std::is_integral_v<std::decay_t<decltype(*value)>>) {
                    out += " " + whole(m.format, *value) + " |";
                } else {
                    out += " " + real(m.format, *value) + " |";
                }
            },
            m.member);
        if (m.key == std::string_view("loss")) {
            for (const auto& [name, value] : row.extra) {
                if (name.find('/') != std::string::npos) continue;  // too many for one line
                out += fmt::format(" {}: {:.6E} |", name, value);
            }
        }
    }
    return out;
}

std::string json_line(const MetricRow& row) {
    Json out, nonfinite = Json::array(), extra = Json::object();
    out["kind"] = row.eval ? "eval" : "train";
    out["step"] = row.step;
    out["train_iters"] = row.train_iters;
    for (const Metric& m : kMetrics) {
        std::visit(
            [&](auto member) {
                const auto& value = row.*member;
                if (!value) return;
                if constexpr (std::is_integral_v<std::decay_t<decltype(*value)>>) {
                    out[m.key] = *value;
                } else {
                    put(out, nonfinite, m.key, *value);
                }
            },
            m.member);
    }
    for (const auto& [name, value] : row.extra) put(extra, nonfinite, name, value);
    if (!extra.empty()) out["extra"] = std::move(extra);
    if (!nonfinite.empty()) out["nonfinite"] = std::move(nonfinite);
    // names from outside may hold bytes that are not UTF-8: replaced, never thrown at a trainer
    return out.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<MetricRow> parse_metric_row(std::string_view line) {
    const Json in = Json::parse(line, nullptr, false);
    if (!in.is_object()) return std::nullopt;
    const auto kind = in.find("kind"), step = in.find("step");
    if (kind == in.end() || step == in.end() || !step->is_number_integer()) return std::nullopt;
    if (*kind != "train" && *kind != "eval") return std::nullopt;
    MetricRow row;
    row.eval = *kind == "eval";
    row.step = step->get<int64_t>();
    if (const auto it = in.find("train_iters"); it != in.end() && it->is_number_integer()) {
        row.train_iters = it->get<int64_t>();
    }
    constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
    for (const Metric& m : kMetrics) {
        const auto it = in.find(m.key);
        if (it == in.end()) continue;
        if (const auto* member = std::get_if<std::optional<int64_t> MetricRow::*>(&m.member)) {
            if (it->is_number_integer()) row.*(*member) = it->get<int64_t>();
        } else if (it->is_number() || it->is_null()) {
            row.*std::get<std::optional<double> MetricRow::*>(m.member) =
                it->is_null() ? kNan : it->get<double>();
        }
    }
    if (const auto it = in.find("extra"); it != in.end() && it->is_object()) {
        for (const auto& [name, value] : it->items()) {
            if (!value.is_number() && !value.is_null()) continue;
            row.extra.emplace_back(name, value.is_null() ? kNan : value.get<double>());
        }
    }
    return row;
}

MetricsFile::MetricsFile(fs::path path, int64_t resumed_step) : path_(std::move(path)) {
    VT_CHECK(resumed_step >= 0, "resumed step {}", resumed_step);
    if (resumed_step == 0) set_aside(path_);
    fd_ = open_append(path_);
    cut_after(resumed_step);
}

void MetricsFile::append(const MetricRow& row) {
    append_whole(fd_, json_line(row) + "\n", path_);
}

void MetricsFile::cut_after(int64_t step) {
    const std::string text = read_file(path_);
    std::string kept;
    size_t begin = 0;
    while (begin < text.size()) {
        const size_t end = text.find('\n', begin);
        if (end == std::string::npos) break;  // torn by a crash
        const std::string_view line(text.data() + begin, end - begin);
        const std::optional<MetricRow> row = parse_metric_row(line);
        if (row && row->step <= step) kept += std::string(line) + "\n";
        begin = end + 1;
    }
    if (kept.size() == text.size()) return;
    write_atomic(path_, kept);  // a crash here leaves the old rows or the new, never neither
    fd_ = open_append(path_);
}

std::vector<MetricRow> read_metrics(const fs::path& path) {
    const std::string text = read_file(path);
    std::vector<MetricRow> rows;
    size_t begin = 0;
    while (begin < text.size()) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        const std::string_view line(text.data() + begin, end - begin);
        if (std::optional<MetricRow> row = parse_metric_row(line)) rows.push_back(std::move(*row));
        begin = end + 1;
    }
    return rows;
}

std::vector<std::pair<std::string, double>> metric_values(const MetricRow& row) {
    std::vector<std::pair<std::string, double>> out;
    for (const Metric& m : kMetrics) {
        std::visit(
            [&](auto member) {
                if (const auto& v = row.*member) out.emplace_back(m.key, static_cast<double>(*v));
            },
            m.member);
    }
    out.insert(out.end(), row.extra.begin(), row.extra.end());
    return out;
}

Curve metric_curve(const std::vector<MetricRow>& rows, bool eval, std::string_view key) {
    Curve out;
    for (const MetricRow& row : rows) {
        if (row.eval != eval) continue;
        for (const auto& [name, value] : metric_values(row)) {
            if (name != key || !std::isfinite(value)) continue;
            out.x.push_back(static_cast<double>(row.step));
            out.y.push_back(value);
        }
    }
    return out;
}

}  // namespace vt
