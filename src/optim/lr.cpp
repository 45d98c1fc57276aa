// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>

#include "optim/options.h"

namespace vt {

double learning_rate(const OptimOptions& o, int64_t step, int64_t train_iters) {
    VT_CHECK(step >= 1, "step {}", step);
    if (step <= o.lr_warmup_iters) {
        return o.lr * static_cast<double>(step) / static_cast<double>(o.lr_warmup_iters);
    }
    if (o.lr_decay_style == "constant") return o.lr;
    VT_CHECK(o.lr_decay_style == "cosine", "lr_decay_style '{}'", o.lr_decay_style);
    const int64_t end = o.lr_decay_iters > 0 ? o.lr_decay_iters : train_iters;
    const int64_t span = std::max<int64_t>(1, end - o.lr_warmup_iters);
    const double done =
        std::min(1.0, static_cast<double>(step - o.lr_warmup_iters) / static_cast<double>(span));
    return o.min_lr + (o.lr - o.min_lr) * 0.5 * (1 + std::cos(M_PI * done));
}

}  // namespace vt
