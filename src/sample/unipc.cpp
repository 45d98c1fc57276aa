// SPDX-License-Identifier: MIT
// UniPC (Zhao et al. 2023, arXiv:2302.04867), the predictor and corrector B2(h) of order 2 on
// predicted data, as diffusers' UniPCMultistepScheduler does it for flows: alpha = 1 - sigma,
// lambda = ln(alpha / sigma), x0 predicted as m = x - sigma v.
//
// At step i the model has been evaluated at the predicted x_i, giving m_i. The corrector, of the
// order p that predicted x_i, replaces it (m_i is not evaluated again):
//   h = lambda_i - lambda_{i-1},  E = expm1(-h),  a = 1 - sigma_i
//   x_i = (sigma_i / sigma_{i-1}) x_{i-1} - a E (m_{i-1} + c), where c is
//   p = 1:  (m_i - m_{i-1}) / 2
//   p = 2:  rho_0 (m_{i-2} - m_{i-1}) / r + rho_1 (m_i - m_{i-1}),  r = (lambda_{i-2} -
//   lambda_{i-1}) / h
// with rho from rho_0 + rho_1 = b_1, r rho_0 + rho_1 = b_2. Then the predictor goes to i + 1 with
// order min(2, i + 1, N - i): the same with c = 0, or c = (m_{i-1} - m_i) / (2 r) at order 2.
// Floor 5.
#include "sample/unipc.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"

namespace vt {
namespace {

// Kept between steps: m_{i-1}, m_{i-2} and the corrected x_{i-1}.
constexpr int64_t kHistory = 3;

// One update is x' = x * last + m0 * here + m1 * before + m2 * next, with the three predictions
// nearest in time.
struct Weights {
    double last = 0, here = 0, before = 0, next = 0;
};

class UniPc final : public Solver {
  public:
    explicit UniPc(UniPcSchedule schedule) : schedule_(std::move(schedule)) {
        for (int64_t i = 0; i < steps(); ++i) {
            corrector_.push_back(i > 0 ? correct(i, order(i - 1)) : Weights{});
            predictor_.push_back(predict(i, order(i)));
        }
    }
    [[nodiscard]] int64_t steps() const override {
        return static_cast<int64_t>(schedule_.taus.size());
    }
    [[nodiscard]] float tau(int64_t k) const override {
        return schedule_.taus.at(static_cast<size_t>(k));
    }
    [[nodiscard]] float sigma(int64_t k) const override {
        return schedule_.sigmas.at(static_cast<size_t>(k));
    }
    [[nodiscard]] int64_t history() const override { return kHistory; }

    void step(int64_t k, float* x, const float* out, int64_t n, float* history,
              const float* /*noise*/) const override {
        float *m1 = history, *m2 = history + n, *last = history + 2 * n;
        if (k == 0) std::fill(history, history + kHistory * n, 0.0F);  // weight 0, but not NaN
        const Weights c = corrector_.at(static_cast<size_t>(k));
        const Weights p = predictor_.at(static_cast<size_t>(k));
        const double s = sigma(k);
        for (int64_t j = 0; j < n; ++j) {
            const double m0 = x[j] - s * out[j];
            double now = x[j];
            if (k > 0) {
                now = c.last * last[j] + c.here * m1[j] + c.before * m2[j] + c.next * m0;
            }
            x[j] = static_cast<float>(p.last * now + p.here * m0 + p.before * m1[j]);
            last[j] = static_cast<float>(now);
            m2[j] = m1[j];
            m1[j] = static_cast<float>(m0);
        }
    }

  private:
    [[nodiscard]] int64_t order(int64_t i) const {
        return std::min({int64_t{2}, i + 1, steps() - i});
    }
    [[nodiscard]] double lambda(int64_t i) const {
        const double s = sigma(i);
        return std::log1p(-s) - std::log(s);  // +inf at 0
    }
    // From i to i + 1, without the correction c.
    [[nodiscard]] Weights base(int64_t i) const {
        const double E = std::expm1(lambda(i) - lambda(i + 1));
        const double a = 1.0 - sigma(i + 1);
        return {.last = double{sigma(i + 1)} / sigma(i), .here = -a * E, .before = 0, .next = 0};
    }
    [[nodiscard]] Weights predict(int64_t i, int64_t p) const {
        Weights w = base(i);
        if (p == 1) return w;
        const double r = (lambda(i - 1) - lambda(i)) / (lambda(i + 1) - lambda(i));
        const double unit = w.here;  // -a E: what c is weighed with
        w.before = unit * 0.5 / r;
        w.here -= unit * 0.5 / r;
        return w;
    }
    [[nodiscard]] Weights correct(int64_t i, int64_t p) const {
        Weights w = base(i - 1);
        const double unit = w.here;
        if (p == 1) {
            w.next = unit * 0.5;
            w.here -= unit * 0.5;
            return w;
        }
        const double h = lambda(i) - lambda(i - 1), E = std::expm1(-h);
        const double r = (lambda(i - 2) - lambda(i - 1)) / h;
        const double k1 = E / -h - 1, k2 = k1 / -h - 0.5;
        const double b1 = k1 / E, b2 = 2 * k2 / E;
        const double rho0 = (b2 - b1) / (r - 1), rho1 = b1 - rho0;
        w.next = unit * rho1;
        w.before = unit * rho0 / r;
        w.here -= w.next + w.before;
        return w;
    }

    UniPcSchedule schedule_;
    std::vector<Weights> corrector_, predictor_;
};

}  // namespace

std::unique_ptr<Solver> make_unipc(UniPcSchedule schedule) {
    VT_CHECK(schedule.sigmas.size() == schedule.taus.size() + 1, "{} sigmas, {} timesteps",
             schedule.sigmas.size(), schedule.taus.size());
    return std::make_unique<UniPc>(std::move(schedule));
}

}  // namespace vt
