// SPDX-License-Identifier: MIT
#include "model/timesteps.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace vt {

// Abramowitz and Stegun 26.2.23 (4.5e-4), then three Halley steps on erfc, each of which triples
// the digits.
double normal_quantile(double u) {
    VT_CHECK(u > 0 && u < 1, "quantile {}", u);
    const double p = u < 0.5 ? u : 1 - u;  // lower tail; 1 - u is exact for u >= 0.5
    const double t = std::sqrt(-2 * std::log(p));
    double x = (2.515517 + t * (0.802853 + t * 0.010328)) /
                   (1 + t * (1.432788 + t * (0.189269 + t * 0.001308))) -
               t;
    for (int i = 0; i < 3; ++i) {
        const double error = 0.5 * std::erfc(-x / M_SQRT2) - p;
        const double step = error * std::sqrt(2 * M_PI) * std::exp(x * x / 2);
        x -= step / (1 + x * step / 2);
    }
    return u < 0.5 ? x : -x;
}

double normal_cdf(double x) {
    return 0.5 * std::erfc(-x / M_SQRT2);
}

double shift_sigma(double sigma, double shift) {
    return shift * sigma / (1 + (shift - 1) * sigma);
}

namespace {

// The x in [low, high] at which the rising function f crosses `target`: false position that halves
// the weight of an end that stays (Dowell and Jarratt 1971), with a bisection whenever that has not
// halved the bracket, so that it ends after some 2 x 53 calls at worst.
template <typename F>
double solve_rising(const F& f, double target, double low, double high) {
    double f_low = f(low) - target, f_high = f(high) - target;
    if (f_low >= 0) return low;
    if (f_high <= 0) return high;
    int stayed = 0;
    for (int i = 0; i < 200; ++i) {
        const double width = high - low;
        const double ulp = 0x1p-52 * std::max(std::fabs(low), std::fabs(high));
        if (width <= 2 * ulp) break;
        const bool bisect = i % 3 == 2;
        double x = bisect ? low + width / 2 : low - f_low * width / (f_high - f_low);
        x = std::clamp(x, low + ulp / 2, high - ulp / 2);
        const double y = f(x) - target;
        if (y == 0) return x;
        if (y < 0) {
            low = x;
            f_low = y;
            if (!bisect && stayed == 1) f_high /= 2;
            stayed = 1;
        } else {
            high = x;
            f_high = y;
            if (!bisect && stayed == -1) f_low /= 2;
            stayed = -1;
        }
    }
    return low + (high - low) / 2;
}

class Uniform final : public LevelDensity {
  public:
    double pdf(double /*x*/) const override { return 1; }
    double cdf(double x) const override { return x; }
    double quantile(double u) const override { return u; }
};

class LogitNormal final : public LevelDensity {
  public:
    LogitNormal(double mean, double std) : mean_(mean), std_(std) {}
    double pdf(double x) const override {
        const double z = score(x);
        return std::exp(-z * z / 2) / (std_ * std::sqrt(2 * M_PI) * x * (1 - x));
    }
    double cdf(double x) const override {
        if (x <= 0) return 0;
        return x >= 1 ? 1 : normal_cdf(score(x));
    }
    double quantile(double u) const override {
        return 1 / (1 + std::exp(-(mean_ + std_ * normal_quantile(u))));
    }

  private:
    [[nodiscard]] double score(double x) const { return (std::log(x / (1 - x)) - mean_) / std_; }
    double mean_, std_;
};

// With u replaced by 1 - u, which is as uniform, the map rises:
//   x(u) = u - a (sin^2(pi u / 2) - u),  x' = 1 + a - (a pi / 2) sin(pi u)
class Mode final : public LevelDensity {
  public:
    explicit Mode(double scale) : a_(scale) {}
    double pdf(double x) const override {
        return 1 / (1 + a_ - a_ * M_PI / 2 * std::sin(M_PI * cdf(x)));
    }
    double cdf(double x) const override {
        return solve_rising([this](double u) { return quantile(u); }, x, 0, 1);
    }
    double quantile(double u) const override {
        const double s = std::sin(M_PI * u / 2);
        return u - a_ * (s * s - u);
    }

  private:
    double a_;
};

class Mixed final : public LevelDensity {
  public:
    explicit Mixed(std::vector<std::pair<double, LevelDensityPtr>> parts)
        : parts_(std::move(parts)) {
        VT_CHECK(!parts_.empty(), "a mixture of nothing");
        double sum = 0;
        for (const auto& [weight, part] : parts_) sum += weight;
        for (auto& [weight, part] : parts_) weight /= sum;
    }
    double pdf(double x) const override {
        return over_parts([x](const LevelDensity& d) { return d.pdf(x); });
    }
    double cdf(double x) const override {
        return over_parts([x](const LevelDensity& d) { return d.cdf(x); });
    }
    double quantile(double u) const override {
        double low = 1, high = 0;
        for (const auto& [weight, part] : parts_) {
            const double q = part->quantile(u);
            low = std::min(low, q);
            high = std::max(high, q);
        }
        return solve_rising([this](double x) { return cdf(x); }, u, low, high);
    }

  private:
    template <typename F>
    double over_parts(const F& f) const {
        double sum = 0;
        for (const auto& [weight, part] : parts_) sum += weight * f(*part);
        return sum;
    }
    std::vector<std::pair<double, LevelDensityPtr>> parts_;
};

class Shifted final : public LevelDensity {
  public:
    Shifted(LevelDensityPtr base, double shift) : base_(std::move(base)), shift_(shift) {}
    double pdf(double x) const override {
        // d/dx of x / (S - (S-1) x), the map back
        const double d = shift_ - (shift_ - 1) * x;
        return base_->pdf(back(x)) * shift_ / (d * d);
    }
    double cdf(double x) const override { return base_->cdf(back(x)); }
    double quantile(double u) const override { return shift_sigma(base_->quantile(u), shift_); }

  private:
    [[nodiscard]] double back(double x) const { return x / (shift_ - (shift_ - 1) * x); }
    LevelDensityPtr base_;
    double shift_;
};

class Conditioned final : public LevelDensity {
  public:
    Conditioned(LevelDensityPtr base, double low, double high)
        : base_(std::move(base)),
          low_(low),
          high_(high),
          begin_(base_->cdf(low)),
          mass_(base_->cdf(high) - begin_) {
        // of 53 bits of a draw at least 23 must fall inside
        if (!(mass_ > 0x1p-30)) {
            raise(Fault::kUser,
                  fmt::format("objective.sigma_range = [{}, {}] holds {:.2g} of the draws", low,
                              high, mass_),
                  "widen it, or choose a sampler with weight there");
        }
    }
    double pdf(double x) const override {
        return x < low_ || x > high_ ? 0 : base_->pdf(x) / mass_;
    }
    double cdf(double x) const override {
        if (x <= low_) return 0;
        return x >= high_ ? 1 : std::min(1.0, (base_->cdf(x) - begin_) / mass_);
    }
    double quantile(double u) const override {
        const double at = std::clamp(begin_ + u * mass_, 0x1p-54, 1 - 0x1p-53);
        return std::clamp(base_->quantile(at), low_, high_);
    }

  private:
    LevelDensityPtr base_;
    double low_, high_, begin_, mass_;
};

}  // namespace

LevelDensityPtr uniform_level() {
    return std::make_shared<Uniform>();
}
LevelDensityPtr logit_normal_level(double mean, double std) {
    return std::make_shared<LogitNormal>(mean, std);
}
LevelDensityPtr mode_level(double scale) {
    return std::make_shared<Mode>(scale);
}
LevelDensityPtr mixed_level(std::vector<std::pair<double, LevelDensityPtr>> weight_and_part) {
    return std::make_shared<Mixed>(std::move(weight_and_part));
}
LevelDensityPtr shifted_level(LevelDensityPtr base, double shift) {
    return std::make_shared<Shifted>(std::move(base), shift);
}
LevelDensityPtr conditioned_level(LevelDensityPtr base, double low, double high) {
    return std::make_shared<Conditioned>(std::move(base), low, high);
}

}  // namespace vt
