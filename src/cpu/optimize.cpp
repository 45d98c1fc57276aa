// SPDX-License-Identifier: MIT
// ops/optimize.h on the CPU.
#include <algorithm>
#include <cmath>

#include "cpu/rows.h"

namespace vt::rows {

void adamw(const Table& k, const Ctx& ctx, Tensor p, Tensor m, Tensor v, Tensor low, CTensor g,
           CTensor scalars, const AdamW& hyper) {
    const float* now = scalars.as<float>();
    if (now[kStepSkip] != 0) return;
    // what is the same for all elements is worked out in double and rounded once
    const double lr = static_cast<double>(now[kStepLr]) * hyper.lr_scale;
    kernel::Adam a{};
    a.p = p.as<float>();
    a.m = m.as<float>();
    a.v = v.as<float>();
    // a bf16 is its bits: same size, same alignment
    a.low = low.present() ? reinterpret_cast<uint16_t*>(low.as<bf16>()) : nullptr;
    a.g = g.as<float>();
    a.clip = now[kStepClip];
    a.keep_p = static_cast<float>(1.0 - lr * hyper.weight_decay);
    a.b1 = static_cast<float>(hyper.beta1);
    a.one_b1 = static_cast<float>(1.0 - hyper.beta1);
    a.b2 = static_cast<float>(hyper.beta2);
    a.one_b2 = static_cast<float>(1.0 - hyper.beta2);
    a.step = static_cast<float>(lr / static_cast<double>(now[kStepBias1]));
    a.root = static_cast<float>(1.0 / std::sqrt(static_cast<double>(now[kStepBias2])));
    a.eps = static_cast<float>(hyper.eps);
    each_elements(ctx, p.numel(), [&](int64_t begin, int64_t end) { k.adamw(a, begin, end); });
}

void sumsq(const Table& k, const Ctx& ctx, Tensor sum, CTensor x) {
    const int64_t n = x.numel();
    std::array<double, 4 * kSlots> sums;
    const int64_t step =
        std::max(kTask, round_up(div_up(n, static_cast<int64_t>(sums.size())), 16));
    const int64_t pieces = div_up(n, step);
    const float* data = x.as<float>();
    ctx.pool->parallel_for(pieces, [&](int64_t i, int /*thread*/) {
        sums[static_cast<size_t>(i)] = k.sumsq(data, i * step, std::min(n, (i + 1) * step));
    });
    double total = 0;
    for (int64_t i = 0; i < pieces; ++i) total += sums[static_cast<size_t>(i)];
    sum.as<double>()[0] += total;
}

void ema_update(const Table& k, const Ctx& ctx, Tensor e, CTensor p, CTensor decay,
                CTensor scalars) {
    if (scalars.as<float>()[kStepSkip] != 0) return;
    const float rate = 1.0F - decay.as<float>()[0];
    if (rate == 0) return;
    each_elements(ctx, e.numel(), [&](int64_t begin, int64_t end) {
        if (rate == 1) {  // e - (e - p) would round
            std::copy(p.as<float>() + begin, p.as<float>() + end, e.as<float>() + begin);
            return;
        }
        k.ema(e.as<float>(), p.as<float>(), rate, begin, end);
    });
}

}  // namespace vt::rows
