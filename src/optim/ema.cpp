// SPDX-License-Identifier: MIT
// What each average of the weights does at a step. Floor 4.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "core/check.h"
#include "optim/options.h"

namespace vt {

std::vector<EmaOptions> all_emas(const OptimOptions& o) {
    std::vector<EmaOptions> out;
    for (const double decay : o.ema_decay) {
        EmaOptions e;
        e.decay = decay;
        out.push_back(e);
    }
    out.insert(out.end(), o.ema.begin(), o.ema.end());
    return out;
}

std::string ema_name(const EmaOptions& e) {
    std::string out = fmt::format("{}", e.decay);
    if (e.warmup == "power") out += fmt::format(" power {} {}", e.inv_gamma, e.power);
    if (e.warmup == "diffusers") out += " diffusers";
    if (e.min_decay != 0) out += fmt::format(" min {}", e.min_decay);
    if (e.update_after_step != 0) out += fmt::format(" after {}", e.update_after_step);
    if (e.every != 1) out += fmt::format(" every {}", e.every);
    return out;
}

double ema_decay_at(const EmaOptions& e, int64_t step) {
    VT_CHECK(step >= 1 && e.every >= 1, "step {}, every {}", step, e.every);
    if (step % e.every != 0) return 1;
    if (step <= e.update_after_step) return 0;
    const bool switched = e.switch_step > 0 && step >= e.switch_step;
    const double decay = switched ? e.switch_decay.value_or(e.decay) : e.decay;
    if (e.warmup == "none") return decay;
    const int64_t before = step / e.every - e.update_after_step / e.every - 1;
    if (before <= 0) return 0;
    const auto s = static_cast<double>(before);
    const double rising =
        e.warmup == "diffusers" ? (1 + s) / (10 + s) : 1 - std::pow(1 + s / e.inv_gamma, -e.power);
    return std::clamp(rising, e.min_decay, decay);
}

}  // namespace vt
