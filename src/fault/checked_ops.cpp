// SPDX-License-Identifier: MIT
#include "fault/checked_ops.h"

#include <cmath>
#include <tuple>
#include <type_traits>

namespace vt {

namespace {

bool finite(double v) {
    return std::isfinite(v);
}
bool finite(float v) {
    return std::isfinite(v);
}
bool finite(bf16 v) {
    return std::isfinite(to_float(v));
}

template <typename T>
int64_t scan(const T* p, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        if (!finite(p[i])) return i;
    }
    return -1;
}

}  // namespace

int64_t first_not_finite(CTensor t) {
    if (!t.present() || t.data == nullptr) return -1;
    switch (t.dtype) {
        case DType::kF64:
            return scan(t.as<double>(), t.numel());
        case DType::kF32:
            return scan(t.as<float>(), t.numel());
        case DType::kBF16:
            return scan(t.as<bf16>(), t.numel());
        default:
            return -1;
    }
}

double element_of(CTensor t, int64_t index) {
    switch (t.dtype) {
        case DType::kF64:
            return t.as<double>()[index];
        case DType::kF32:
            return static_cast<double>(t.as<float>()[index]);
        case DType::kBF16:
            return static_cast<double>(to_float(t.as<bf16>()[index]));
        default:
            return 0;
    }
}

std::string value_text(double v) {
    return std::isnan(v) ? "nan" : fmt::format("{:.4g}", v);
}

int64_t NotFinite::row() const {
    const int64_t rows = tensor.shape.rank == 0 ? 1 : tensor.shape[0];
    return rows == 0 ? 0 : element / (tensor.numel() / rows);
}

namespace {

// A slot that calls target's slot `Member` and looks at what it wrote.
template <auto Member, typename Name, typename Signature>
struct Checked;
template <auto Member, typename Name, typename... Args>
struct Checked<Member, Name, void (*)(const Ctx&, Args...)> {
    static void call(const Ctx& ctx, Args... args) {
        const auto& self = static_cast<const CheckedOps&>(*ctx.ops);
        if (self.found) return;
        Ctx plain = ctx;
        plain.ops = self.target;
        (self.target->*Member)(plain, args...);

        int outputs = 0;
        const auto check = [&](const auto& arg) {
            if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) {
                if (!arg.present()) return;
                const int output = outputs++;
                const int64_t at = self.found ? -1 : first_not_finite(arg);
                if (at < 0) return;
                self.found = NotFinite{.op = Name::text(),
                                       .at = ctx.at,
                                       .output = output,
                                       .outputs = 0,
                                       .tensor = arg,
                                       .element = at,
                                       .value = element_of(arg, at),
                                       .bad_inputs = {}};
            }
        };
        (check(args), ...);
        if (!self.found) return;
        self.found->outputs = outputs;
        // in place: an input that is the output says nothing
        const auto blame = [&](const auto& arg) {
            if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, CTensor>) {
                if (arg.data == self.found->tensor.data || first_not_finite(arg) < 0) return;
                self.found->bad_inputs.push_back(arg);
            }
        };
        (blame(args), ...);
    }
};

#define VT_OP_NAME(name)                            \
    struct name##_name {                            \
        static const char* text() { return #name; } \
    };
VT_OPS(VT_OP_NAME)
#undef VT_OP_NAME

}  // namespace

CheckedOps::CheckedOps(const Ops& wrapped) : target(&wrapped) {
    backend = wrapped.backend;
    instruction_path = wrapped.instruction_path;
    scratch_bytes = wrapped.scratch_bytes;
#define VT_OP_CHECKED(name) name = Checked<&Ops::name, name##_name, decltype(Ops::name)>::call;
    VT_OPS(VT_OP_CHECKED)
#undef VT_OP_CHECKED
}

}  // namespace vt
