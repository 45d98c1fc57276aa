// SPDX-License-Identifier: MIT
// What a run tells of itself: log rows, validation, samples. Floor 6.
#include <fmt/format.h>

#include "core/log.h"
#include "fault/signal.h"
#include "prof/machine.h"
#include "train/interval.h"
#include "train/trainer.h"

namespace vt {

void Trainer::report(const MetricRow& row) {
    print_line(console_line(row));
    metrics_->append(row);
    events_->append(row);
}

void Trainer::log_step(int64_t step, const StepResult& r) {
    Interval& c = *interval_;
    ++c.steps;
    c.samples += r.samples;
    c.tokens += r.tokens;
    c.flop += r.model_flop;
    if (r.verdict == Verdict::kGood) {
        c.loss += r.loss;
        for (const SampleLoss& s : r.each) breakdown_.add(s);
    }
    if (r.verdict != Verdict::kGood) ++c.skipped;
    if (r.verdict == Verdict::kNotFinite) ++c.not_finite;
    const int64_t last = config_.run.train_iters;
    if (step % config_.log.log_interval != 0 && step != last && step != start_step_ + 1) return;

    const double seconds = seconds_now() - c.begin - c.outside;
    const double per_step = seconds / static_cast<double>(c.steps);
    MetricRow row;
    row.step = step;
    row.train_iters = last;
    row.consumed_samples = static_cast<int64_t>(cursor_);
    row.step_ms = 1e3 * per_step;
    row.lr = r.lr;
    row.global_batch_size = r.samples;
    row.loss = r.loss;
    row.grad_norm = r.grad_norm;
    row.skipped_iters = c.skipped;
    row.nan_iters = c.not_finite;
    row.bad_samples = c.bad;
    row.samples_per_s = static_cast<double>(c.samples) / seconds;
    row.tokens_per_s = static_cast<double>(c.tokens) / seconds;
    row.tflops = c.flop / seconds / 1e12;
    row.roof_percent = 100 * c.flop / seconds / c.roof;
    row.data_wait_percent = 100 * c.wait / seconds;
    row.memory_gib = static_cast<double>(process_memory().resident) / (1 << 30);
    row.seconds_left = per_step * static_cast<double>(last - step);
    if (const int64_t good = c.steps - c.skipped; good > 0) {
        row.extra.emplace_back("loss mean", c.loss / static_cast<double>(good));
    }
    breakdown_.report(row.extra);
    consumed_.report(cursor_ - order_origin_, row.extra);  // of the present data set

    report(row);
    c.restart();
    breakdown_.restart();
}

void Trainer::evaluate(int64_t step) {
    if (!validator_ || stopping()) return;
    const auto stop = [this] { return stopping(); };
    MetricRow row;
    row.eval = true;
    row.step = step;
    row.train_iters = config_.run.train_iters;
    const std::optional<EvalResult> plain = validator_->run(ctx_, store_->weights(), stop);
    if (!plain) return;
    row.eval_samples = validator_->samples();
    row.loss = plain->loss;
    for (size_t q = 0; q < plain->by_quantile.size(); ++q) {
        row.extra.emplace_back(fmt::format("loss q{}", q), plain->by_quantile[q]);
    }
    for (int64_t k = 0; k < optim_->num_ema(); ++k) {
        const Weights shown = store_->show(ctx_, optim_->ema(k));
        const std::optional<EvalResult> e = validator_->run(ctx_, shown, stop);
        store_->refresh_operands(ctx_);
        if (!e) return;
        row.extra.emplace_back(
            fmt::format("loss ema {}", ema_name(optim_->emas()[static_cast<size_t>(k)])), e->loss);
    }
    report(row);
}

// The number of the average that draws the samples, -1 for the weights themselves.
int64_t Trainer::sample_ema() const {
    const std::string& which = config_.log.sample_weights;
    if (which == "raw" || (which == "auto" && optim_->num_ema() == 0)) return -1;
    if (which == "auto") return 0;
    for (int64_t k = 0; k < optim_->num_ema(); ++k) {
        if (which == fmt::format("ema{}", k)) return k;
    }
    raise(Fault::kUser,
          fmt::format("log.sample_weights = \"{}\": [optim] has {} averages", which,
                      optim_->num_ema()),
          "auto, raw, or ema0, ema1, ... in the order of optim.ema_decay, then optim.ema");
}

void Trainer::draw_samples(int64_t step) {
    const int64_t k = sample_ema();
    const Weights w = k >= 0 ? store_->show(ctx_, optim_->ema(k)) : store_->weights();
    const auto stop = [this] { return stopping(); };
    const std::optional<fs::path> dir = sampler_->run(ctx_, w, step, stop);
    if (k >= 0) store_->refresh_operands(ctx_);
    if (!dir) return;
    if (const fs::path sheet = *dir / "samples.png"; fs::exists(sheet)) {
        const std::string png = read_file(sheet);
        const auto big_endian = [&](size_t at) {  // a PNG begins with its sizes
            int64_t v = 0;
            for (size_t i = at; i < at + 4; ++i) v = v << 8 | static_cast<unsigned char>(png.at(i));
            return v;
        };
        events_->append_image("samples", step, png, big_endian(20), big_endian(16));
    }
    record_->add(EventKind::kSample, step,
                 fs::path(*dir).lexically_relative(config_.run.out).string());
    say(" samples of step {} ({}): {}", step, k >= 0 ? fmt::format("EMA {}", k) : "weights",
        dir->string());
}

}  // namespace vt
