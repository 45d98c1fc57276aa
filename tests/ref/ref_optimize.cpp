// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ref/values.h"

namespace vt::test::ref {

void adamw(const Ctx& /*ctx*/, Tensor p, Tensor m, Tensor v, Tensor low, CTensor g, CTensor scalars,
           const AdamW& hyper) {
    if (get(scalars, kStepSkip) != 0) return;
    const double lr = get(scalars, kStepLr) * hyper.lr_scale, clip = get(scalars, kStepClip);
    const double bias1 = get(scalars, kStepBias1), bias2 = get(scalars, kStepBias2);
    for (int64_t i = 0; i < p.numel(); ++i) {
        const double gi = clip * get(g, i);
        const double mi = hyper.beta1 * get(m, i) + (1 - hyper.beta1) * gi;
        const double vi = hyper.beta2 * get(v, i) + (1 - hyper.beta2) * gi * gi;
        double pi = get(p, i) * (1 - lr * hyper.weight_decay);
        pi -= lr * (mi / bias1) / (std::sqrt(vi / bias2) + hyper.eps);
        put(m, i, mi);
        put(v, i, vi);
        pi = put(p, i, pi);
        if (low.present()) put(low, i, pi);  // bf16 of the stored p, not of the exact one
    }
}

void sumsq(const Ctx& /*ctx*/, Tensor sum, CTensor x) {
    // the result is f64, so the definition adds in more: in f64, 70,000 elements in a row lose 500u
    long double total = 0;
    for (int64_t i = 0; i < x.numel(); ++i) {
        total += static_cast<long double>(get(x, i)) * static_cast<long double>(get(x, i));
    }
    put(sum, 0, static_cast<double>(static_cast<long double>(get(sum, 0)) + total));
}

void ema_update(const Ctx& /*ctx*/, Tensor e, CTensor p, CTensor decay, CTensor scalars) {
    if (get(scalars, kStepSkip) != 0) return;
    const double d = get(decay, 0);
    for (int64_t i = 0; i < e.numel(); ++i) {
        if (d == 0) put(e, i, get(p, i));
        if (d == 0 || d == 1) continue;
        put(e, i, get(e, i) - (1 - d) * (get(e, i) - get(p, i)));
    }
}

}  // namespace vt::test::ref
