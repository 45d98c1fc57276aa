// SPDX-License-Identifier: MIT
// Floor 5.
#include "sample/guidance.h"

#include <charconv>

#include "core/check.h"

namespace vt {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& why) {
    raise(Fault::kUser, fmt::format("guidance \"{}\": {}", text, why),
          "one of 5 (every step), 7:3 (first to last step), 7,6,5 (each step), 0.2-0.8:5 (only "
          "between these shares of the way from data to noise)");
}

double number(std::string_view text, std::string_view part, double largest) {
    double v = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), v);
    if (error != std::errc() || end != part.data() + part.size() || !(v >= 0 && v <= largest)) {
        refuse(text, fmt::format("'{}' is not a number from 0 to {}", part, largest));
    }
    return v;
}

constexpr double kLargest = 1000;

}  // namespace

std::vector<float> guidance_weights(std::string_view text, const Solver& solver) {
    const int64_t N = solver.steps();
    std::vector<float> out;
    const size_t colon = text.find(':'), dash = text.find('-');
    if (text.find(',') != std::string_view::npos) {
        for (size_t begin = 0; begin <= text.size();) {
            const size_t end = std::min(text.find(',', begin), text.size());
            out.push_back(
                static_cast<float>(number(text, text.substr(begin, end - begin), kLargest)));
            begin = end + 1;
        }
        if (static_cast<int64_t>(out.size()) != N) {
            refuse(text, fmt::format("{} numbers for {} steps", out.size(), N));
        }
    } else if (colon == std::string_view::npos) {
        out.assign(static_cast<size_t>(N), static_cast<float>(number(text, text, kLargest)));
    } else if (dash != std::string_view::npos && dash < colon) {
        const double lo = number(text, text.substr(0, dash), 1);
        const double hi = number(text, text.substr(dash + 1, colon - dash - 1), 1);
        const double w = number(text, text.substr(colon + 1), kLargest);
        if (lo > hi) refuse(text, "the interval is empty");
        for (int64_t k = 0; k < N; ++k) {
            const double at = double{solver.tau(k)} / 1000;
            out.push_back(at >= lo && at <= hi ? static_cast<float>(w) : 1.0F);
        }
    } else {
        const double first = number(text, text.substr(0, colon), kLargest);
        const double last = number(text, text.substr(colon + 1), kLargest);
        for (int64_t k = 0; k < N; ++k) {
            const double way = N > 1 ? static_cast<double>(k) / static_cast<double>(N - 1) : 0;
            out.push_back(static_cast<float>(first + way * (last - first)));
        }
    }
    return out;
}

}  // namespace vt
