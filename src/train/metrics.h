// SPDX-License-Identifier: MIT
// What a step or a validation measured, as one row: a console line in Megatron's form and a line of
// metrics.jsonl are both made from the one table of metrics in metrics.cpp. Floor 6.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/file.h"

namespace vt {

// Losses are over all ranks. Rates and shares are over the steps since the row before.
struct MetricRow {
    bool eval = false;  // a validation, else training steps
    int64_t step = 0;   // the last step in it, from 1
    int64_t train_iters = 0;
    std::optional<int64_t> consumed_samples;
    std::optional<double> step_ms;  // wall time of a step
    std::optional<double> lr;
    std::optional<int64_t> global_batch_size;
    std::optional<double> loss;
    std::optional<double> grad_norm;
    std::optional<int64_t> skipped_iters;  // steps since the row before whose update was skipped
    std::optional<int64_t> nan_iters;      // of these, those with a loss or gradient not finite
    std::optional<int64_t> bad_samples;    // replaced since step 0
    std::optional<double> samples_per_s;
    std::optional<double> tokens_per_s;
    std::optional<double> tflops;             // 1e12 flop/s, all ranks
    std::optional<double> roof_percent;       // of the measured peak of the machine
    std::optional<double> data_wait_percent;  // of wall time
    std::optional<double> memory_gib;         // largest resident size of a rank
    std::optional<double> seconds_left;
    std::optional<int64_t> eval_samples;
    // more of the same kind: {"loss ema 0.999", 0.12}; names without '"' or control characters.
    // Those with a slash ("loss/t_0.2-0.3") are not on the console line.
    std::vector<std::pair<std::string, double>> extra;
};

/// " iteration       10/     400 | consumed samples:          160 | ... |", values that are set
/// only.
[[nodiscard]] std::string console_line(const MetricRow& row);

/// One JSON object, no newline: {"kind":"train","step":10,...}, values that are set only. A value
/// that is not finite is null, and its key is in the list "nonfinite".
[[nodiscard]] std::string json_line(const MetricRow& row);

/// Every value of the row that is set, by its JSON key, then the extra ones.
[[nodiscard]] std::vector<std::pair<std::string, double>> metric_values(const MetricRow& row);

/// The row of a json_line; nullopt if it is none (the torn last line after a crash). Nulls of
/// "nonfinite" read back as NaN. Keys it does not know are left out.
[[nodiscard]] std::optional<MetricRow> parse_metric_row(std::string_view line);

// metrics.jsonl of a run. Each row is one append, so a crash tears at most the last line; nothing
// is synced, a checkpoint is what a resume trusts.
class MetricsFile {
  public:
    /// Opens or creates `path` and cuts off what is later than `resumed_step`, so that steps stay
    /// unique. With 0 (a run that starts anew) an old file is renamed to metrics.jsonl.old-K.
    MetricsFile(fs::path path, int64_t resumed_step);
    /// kSystem if it cannot be written; the file then ends with the row before.
    void append(const MetricRow& row);
    /// Removes rows of later steps (and a torn line): a rollback, or a resume.
    void cut_after(int64_t step);

  private:
    fs::path path_;
    Fd fd_;
};

/// All whole rows of a metrics.jsonl in file order; kSystem if it cannot be read.
[[nodiscard]] std::vector<MetricRow> read_metrics(const fs::path& path);

// A curve to plot: steps and values, not finite ones left out.
struct Curve {
    std::vector<double> x, y;
};
/// `key` is a key of the JSON form ("loss", "grad_norm", "lr") or the name of an extra value.
[[nodiscard]] Curve metric_curve(const std::vector<MetricRow>& rows, bool eval,
                                 std::string_view key);

}  // namespace vt
