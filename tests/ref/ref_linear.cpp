// SPDX-License-Identifier: MIT
#include <cmath>
#include <numbers>

#include "tests/ref/values.h"

namespace vt::test::ref {

namespace {

// gelu(x) = x/2 (1 + tanh(u)),  u = sqrt(2/pi) (x + 0.044715 x^3)
double gelu(double x) {
    const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    return 0.5 * x * (1 + std::tanh(u));
}

double gelu_prime(double x) {
    const double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
    const double du = std::sqrt(2 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
    const double t = std::tanh(u);
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * du;
}

}  // namespace

void linear_fwd(const Ctx& /*ctx*/, Tensor y, Tensor pre, CTensor x_, CTensor w_, CTensor b_,
                Epilogue f) {
    const Values x = read(x_), w = read(w_), b = read(b_);
    const int64_t S = x_.shape[0], K = x_.shape[1], N = w_.shape[0];
    for (int64_t s = 0; s < S; ++s) {
        for (int64_t n = 0; n < N; ++n) {
            double sum = 0;
            for (int64_t k = 0; k < K; ++k) sum += x[at(s * K + k)] * w[at(n * K + k)];
            if (!b.empty()) sum += b[at(n)];
            if (f == Epilogue::kGelu) sum = gelu(put(pre, s * N + n, sum));
            put(y, s * N + n, sum);
        }
    }
}

void linear_bwd_input(const Ctx& /*ctx*/, Tensor dx, CTensor dy_, CTensor w_, CTensor pre,
                      Epilogue f, bool accumulate) {
    const Values dy = read(dy_), w = read(w_);
    const int64_t S = dy_.shape[0], N = dy_.shape[1], K = w_.shape[1];
    Values row(at(K));
    for (int64_t s = 0; s < S; ++s) {
        for (double& r : row) r = 0;
        for (int64_t n = 0; n < N; ++n) {
            for (int64_t k = 0; k < K; ++k) row[at(k)] += dy[at(s * N + n)] * w[at(n * K + k)];
        }
        for (int64_t k = 0; k < K; ++k) {
            double sum = row[at(k)];
            if (f == Epilogue::kGelu) sum *= gelu_prime(get(pre, s * K + k));
            put(dx, s * K + k, accumulate ? get(dx, s * K + k) + sum : sum);
        }
    }
}

void linear_bwd_weight(const Ctx& /*ctx*/, Tensor dw, Tensor db, CTensor dy_, CTensor x_) {
    const Values dy = read(dy_), x = read(x_);
    const int64_t S = dy_.shape[0], N = dy_.shape[1], K = x_.shape[1];
    Values sum_w(at(N * K)), sum_b(at(N));
    for (int64_t s = 0; s < S; ++s) {
        for (int64_t n = 0; n < N; ++n) {
            const double g = dy[at(s * N + n)];
            for (int64_t k = 0; k < K; ++k) sum_w[at(n * K + k)] += g * x[at(s * K + k)];
            sum_b[at(n)] += g;
        }
    }
    for (int64_t i = 0; i < N * K; ++i) put(dw, i, get(dw, i) + sum_w[at(i)]);
    if (!db.present()) return;
    for (int64_t n = 0; n < N; ++n) put(db, n, get(db, n) + sum_b[at(n)]);
}

}  // namespace vt::test::ref
