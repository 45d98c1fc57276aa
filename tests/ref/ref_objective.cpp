// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ref/values.h"

namespace vt::test::ref {

// The one op whose f32 arithmetic is part of the definition: every backend gives these bits.
void flow_noise(const Ctx& /*ctx*/, Tensor xt, Tensor target, CTensor x0, CTensor mix, CTensor ids,
                uint64_t seed, Purpose purpose) {
    const int64_t B = x0.shape[0], n = B == 0 ? 0 : x0.numel() / B;
    for (int64_t b = 0; b < B; ++b) {
        const auto id = static_cast<uint64_t>(ids.as<int64_t>()[b]);
        for (int64_t i = 0; i < n; ++i) {
            const auto element = static_cast<uint64_t>(i);
            const float e = random_normal4(seed, purpose, id, element / 4).at(element % 4);
            if (xt.dtype == DType::kF64) {
                const double x = get(x0, b * n + i), z = static_cast<double>(e);
                put(xt, b * n + i, get(mix, 4 * b) * x + get(mix, 4 * b + 1) * z);
                put(target, b * n + i, get(mix, 4 * b + 2) * x + get(mix, 4 * b + 3) * z);
            } else {
                const float* k = mix.as<float>() + 4 * b;
                const auto x = static_cast<float>(get(x0, b * n + i));
                xt.as<float>()[b * n + i] = std::fma(k[1], e, k[0] * x);
                target.as<float>()[b * n + i] = std::fma(k[3], e, k[2] * x);
            }
        }
    }
}

void flow_loss(const Ctx& /*ctx*/, Tensor dv, Tensor sse, CTensor v, CTensor target, CTensor coef) {
    const int64_t B = v.shape[0], n = B == 0 ? 0 : v.numel() / B;
    for (int64_t b = 0; b < B; ++b) {
        long double sum = 0;  // the result is f64: add in more
        for (int64_t i = b * n; i < (b + 1) * n; ++i) {
            const double r = get(v, i) - get(target, i);
            sum += static_cast<long double>(r) * static_cast<long double>(r);
            if (dv.present()) put(dv, i, 2 * get(coef, b) * r);
        }
        put(sse, b, static_cast<double>(sum));
    }
}

}  // namespace vt::test::ref
