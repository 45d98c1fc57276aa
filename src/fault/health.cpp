// SPDX-License-Identifier: MIT
#include "fault/health.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>

#include "core/check.h"

namespace vt {

Verdict judge(double loss, double grad_norm, const StepLimits& limits) {
    if (!std::isfinite(loss) || !std::isfinite(grad_norm)) return Verdict::kNotFinite;
    return loss > limits.loss || grad_norm > limits.grad_norm ? Verdict::kSpike : Verdict::kGood;
}

void sum_over_ranks(Group& world, double& loss, double& squared_norm, void* stream) {
    if (world.size() == 1) return;
    std::array<double, 2> both = {loss, squared_norm};
    world.all_reduce(Tensor(both.data(), {2}, DType::kF64), ReduceOp::kSum, stream).wait();
    loss = both[0];
    squared_norm = both[1];
}

namespace {

// Mean plus z deviations. Very even values have a deviation near zero, and a small change is no
// spike: a tenth of the mean is the least that counts as one.
double limit(const std::vector<double>& values, double z, int64_t min_history) {
    if (z <= 0 || static_cast<int64_t>(values.size()) < min_history) {
        return std::numeric_limits<double>::max();
    }
    const auto n = static_cast<double>(values.size());
    double mean = 0, squares = 0;
    for (const double v : values) mean += v / n;
    for (const double v : values) squares += (v - mean) * (v - mean) / n;
    return mean + z * std::max(std::sqrt(squares), 0.1 * std::abs(mean));
}

void push(std::vector<double>& window, double value, int64_t most) {
    if (static_cast<int64_t>(window.size()) >= most) window.erase(window.begin());
    window.push_back(value);
}

}  // namespace

StepLimits Health::limits() const {
    if (!options_.enabled) return {};
    return {limit(losses_, options_.loss_z, options_.min_history),
            limit(norms_, options_.grad_norm_z, options_.min_history)};
}

void Health::note(int64_t step, Verdict verdict, double loss, double grad_norm) {
    if (verdict == Verdict::kGood) {
        in_a_row_ = 0;
        push(losses_, loss, options_.window);
        push(norms_, grad_norm, options_.window);
        if (step >= failed_at_ + options_.settle_iters) rollbacks_ = 0;
        return;
    }
    if (in_a_row_ == 0) first_bad_ = step;
    ++in_a_row_;
    ++skipped_;
}

std::string Health::encode() const {
    std::string out = fmt::format("1 {} {} {} {} {} {}", in_a_row_, first_bad_, skipped_,
                                  rollbacks_, failed_at_, losses_.size());
    for (const double v : losses_) out += fmt::format(" {}", v);
    for (const double v : norms_) out += fmt::format(" {}", v);
    return out;
}

void Health::decode(const std::string& text) {
    std::string_view rest = text;
    const auto number = [&](auto& value) {
        while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
        const auto got = std::from_chars(rest.data(), rest.data() + rest.size(), value);
        if (got.ec != std::errc()) {
            raise(Fault::kData, fmt::format("the checkpoint's record of the run's health cannot be "
                                            "read at byte {}",
                                            text.size() - rest.size()));
        }
        rest.remove_prefix(static_cast<size_t>(got.ptr - rest.data()));
    };
    int64_t version = 0, values = 0;
    number(version);
    if (version != 1) {
        raise(Fault::kData, fmt::format("the checkpoint's record of the run's health is of version "
                                        "{}, this build reads 1",
                                        version));
    }
    for (int64_t* v : {&in_a_row_, &first_bad_, &skipped_, &rollbacks_, &failed_at_, &values}) {
        number(*v);
    }
    for (std::vector<double>* window : {&losses_, &norms_}) {
        window->clear();
        for (int64_t i = 0; i < values; ++i) {
            double v = 0;
            number(v);
            push(*window, v, options_.window);
        }
    }
}

}  // namespace vt
