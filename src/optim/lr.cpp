// SPDX-License-Identifier: MIT
// Learning rate of a step. Floor 4.
#include <algorithm>
#include <cmath>

#include "core/check.h"
#include "optim/options.h"

namespace vt {

namespace {

// The curve's marks in its own unit, steps or samples.
struct Marks {
    int64_t now, warmup, end, wsd;
};

Marks marks(const OptimOptions& o, const Progress& at, int64_t train_iters) {
    if (lr_counts_samples(o)) {
        return {static_cast<int64_t>(at.samples), o.lr_warmup_samples, o.lr_decay_samples,
                o.lr_wsd_decay_samples};
    }
    return {at.step, o.lr_warmup_iters, o.lr_decay_iters > 0 ? o.lr_decay_iters : train_iters,
            o.lr_wsd_decay_iters};
}

double cosine(double done) {
    return 0.5 * (1 + std::cos(M_PI * done));
}

// Factor on lr - min_lr over the last part of warmup-stable-decay, done in [0, 1]. Shapes as
// Megatron-LM's; minus_sqrt from Haegele et al. 2024, arXiv:2405.18392.
double wsd_factor(const std::string& style, double done) {
    if (style == "linear") return 1 - done;
    if (style == "cosine") return cosine(done);
    if (style == "exponential") return 2 * std::pow(0.5, done) - 1;
    VT_CHECK(style == "minus_sqrt", "lr_wsd_decay_style '{}'", style);
    return 1 - std::sqrt(done);
}

// Warm restarts (Loshchilov and Hutter 2017, arXiv:1608.03983): cycles whose lengths are 1, f, f^2
// ... parts of the span, each a cosine from its peak to 0. Where one ends the next begins at its
// peak; only the last reaches 0. Counted in parts times span, so that whole lengths meet exactly.
double restarts_factor(const OptimOptions& o, double done, double span) {
    double parts = 0, length = 1;
    for (int64_t i = 0; i < o.lr_cycles; ++i, length *= o.lr_cycle_length) parts += length;
    const double at = done * parts;
    double begin = 0, peak = 1;
    length = span;
    for (int64_t i = 0; i + 1 < o.lr_cycles && at >= begin + length; ++i) {
        begin += length;
        length *= o.lr_cycle_length;
        peak *= o.lr_cycle_peak;
    }
    return peak * cosine(std::min(1.0, (at - begin) / length));
}

}  // namespace

bool lr_counts_samples(const OptimOptions& o) {
    return o.lr_warmup_samples > 0 || o.lr_decay_samples > 0 || o.lr_wsd_decay_samples > 0;
}

double learning_rate(const OptimOptions& o, const Progress& at, int64_t train_iters) {
    VT_CHECK(at.step >= 1, "step {}", at.step);
    const Marks m = marks(o, at, train_iters);
    if (m.now <= m.warmup) {
        const auto now = static_cast<double>(m.now), whole = static_cast<double>(m.warmup);
        if (o.lr_warmup_init == 0) return o.lr * now / whole;
        return o.lr_warmup_init + (o.lr - o.lr_warmup_init) * (now / whole);
    }
    const std::string& style = o.lr_decay_style;
    if (style == "constant") return o.lr;
    if (style == "inverse_sqrt") {
        const double share = static_cast<double>(m.warmup) / static_cast<double>(m.now);
        return std::max(o.min_lr, o.lr * std::sqrt(share));
    }
    const int64_t begin = style == "wsd" ? m.end - m.wsd : m.warmup;
    const auto span = static_cast<double>(std::max<int64_t>(1, m.end - begin));
    const double steps = std::clamp(static_cast<double>(m.now - begin), 0.0, span);
    const double done = steps / span, range = o.lr - o.min_lr;
    if (style == "cosine") return o.min_lr + range * 0.5 * (1 + std::cos(M_PI * done));
    if (style == "linear") return o.min_lr + range * (1 - done);
    if (style == "wsd") return o.min_lr + range * wsd_factor(o.lr_wsd_decay_style, done);
    VT_CHECK(style == "cosine_restarts", "lr_decay_style '{}'", style);
    return o.min_lr + range * restarts_factor(o, steps, span);
}

}  // namespace vt
