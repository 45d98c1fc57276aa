// SPDX-License-Identifier: MIT
#include "tests/ops/cases.h"

namespace vt::test {

Fill normal(double deviation, double mean) {
    return {Fill::kNormal, mean, deviation, {}};
}
Fill uniform(double low, double high) {
    return {Fill::kUniform, low, high, {}};
}
Fill index_below(int64_t n) {
    return {Fill::kIndex, static_cast<double>(n), 0, {}};
}
Fill values(std::vector<double> v) {
    return {Fill::kValues, 0, 0, std::move(v)};
}

Bound exact(std::string why) {
    return {std::move(why), {}};
}

Bound within(std::string why, DType stored, std::vector<Term> terms) {
    // one u for the reference's rounding and one for the backend's, which may fall on either side;
    // neighbours are the full 2u apart just above a power of two, the rest keeps that below 90 %
    if (stored == DType::kBF16) terms.push_back({2.25, kUBF16, Mag::kRef});
    if (stored == DType::kF32) terms.push_back({2.25, kU32, Mag::kRef});
    return {std::move(why), std::move(terms)};
}

Seg make_seg(const std::vector<int64_t>& lengths) {
    Seg seg;
    seg.begin.push_back(0);
    for (size_t i = 0; i < lengths.size(); ++i) {
        seg.begin.push_back(seg.begin.back() + lengths[i]);
        seg.mod_row.push_back(static_cast<int64_t>(lengths.size() - 1 - i));
    }
    return seg;
}

int Case::in(std::string arg, Shape s, DType t, Fill fill) {
    args.push_back({std::move(arg), Role::kIn, s, t, std::move(fill), {}, -1});
    return static_cast<int>(args.size()) - 1;
}

int Case::out(std::string arg, Shape s, DType t, Bound bound) {
    args.push_back({std::move(arg), Role::kOut, s, t, {}, std::move(bound), -1});
    return static_cast<int>(args.size()) - 1;
}

int Case::acc(std::string arg, Shape s, DType t, Bound bound, Fill fill) {
    args.push_back({std::move(arg), Role::kAcc, s, t, std::move(fill), std::move(bound), -1});
    return static_cast<int>(args.size()) - 1;
}

std::string Case::name() const {
    return fmt::format("{} {} {}", op, shape, name_of(dtype));
}

const std::vector<Case>& all_cases() {
    static const std::vector<Case> cases = [] {
        std::vector<Case> all;
        add_linear_cases(all);
        add_attention_cases(all);
        add_norm_cases(all);
        add_pointwise_cases(all);
        add_embed_cases(all);
        add_objective_cases(all);
        add_optimize_cases(all);
        return all;
    }();
    return cases;
}

}  // namespace vt::test
