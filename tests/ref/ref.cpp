// SPDX-License-Identifier: MIT
#include "tests/ref/ref.h"

#include <cmath>

#include "tests/ref/values.h"

namespace vt::test {

namespace ref {

double get(const CTensor& t, int64_t i) {
    switch (t.dtype) {
        case DType::kF64:
            return t.as<double>()[i];
        case DType::kF32:
            return t.as<float>()[i];
        case DType::kBF16:
            return to_float(t.as<bf16>()[i]);
        default:
            raise(Fault::kBug, fmt::format("ref: {} read as a float", name_of(t.dtype)));
    }
}

namespace {

// double to bf16 with one rounding. Going through the nearest float would round twice, so the
// float in between is rounded to odd: toward zero, last bit set if anything was cut off.
bf16 round_once(double x) {
    float f = static_cast<float>(x);
    if (!std::isfinite(f)) return to_bf16(f);
    if (static_cast<double>(f) != x) {
        if (std::fabs(static_cast<double>(f)) > std::fabs(x)) f = std::nextafter(f, 0.0F);
        f = std::bit_cast<float>(std::bit_cast<uint32_t>(f) | 1U);
    }
    return to_bf16(f);
}

}  // namespace

double put(const Tensor& t, int64_t i, double x) {
    switch (t.dtype) {
        case DType::kF64:
            t.as<double>()[i] = x;
            break;
        case DType::kF32:
            t.as<float>()[i] = static_cast<float>(x);
            break;
        case DType::kBF16:
            t.as<bf16>()[i] = round_once(x);
            break;
        default:
            raise(Fault::kBug, fmt::format("ref: float written as {}", name_of(t.dtype)));
    }
    return get(t, i);
}

Values read(const CTensor& t) {
    Values values(at(t.numel()));
    for (int64_t i = 0; i < t.numel(); ++i) values[at(i)] = get(t, i);
    return values;
}

void write(const Tensor& t, const Values& values) {
    VT_CHECK(values.size() == at(t.numel()), "{} values for {}", values.size(), t.shape.str());
    for (int64_t i = 0; i < t.numel(); ++i) put(t, i, values[at(i)]);
}

}  // namespace ref

const Ops& ref_ops() {
    static const Ops ops = [] {
        Ops o;
        o.backend = "ref";
        o.instruction_path = "f64 loops";
        o.scratch_bytes = [](const ScratchNeed& /*unused*/) -> int64_t { return 0; };
#define VT_REF_SLOT(name) o.name = ref::name;
        VT_OPS(VT_REF_SLOT)
#undef VT_REF_SLOT
        return o;
    }();
    return ops;
}

}  // namespace vt::test
