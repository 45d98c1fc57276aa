// SPDX-License-Identifier: MIT
// A table of ops that spoils an output of a chosen op, for tests of what notices it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <type_traits>

#include "ops/ops.h"

namespace vt::test {

struct Plant : Ops {
    explicit Plant(const Ops& wrapped);
    const Ops* target;

    std::string op;                              // the op to spoil
    int output = 0;                              // which of its float outputs
    double value = 0;                            // written into the middle element
    bool armed = false;                          // nothing happens otherwise
    mutable int times = 0;                       // spoils so many calls more
    mutable std::map<std::string, int> calls;    // all calls, by op
    mutable std::map<std::string, int> outputs;  // float outputs of the last call, by op

    std::function<void(const std::string& op)> hook;  // before each call; may be empty

    void arm(const std::string& name, double v, int how_often = 1 << 30) {
        op = name;
        value = v;
        times = how_often;
        armed = true;
    }
};

inline void spoil(const Tensor& t, double v) {
    const int64_t i = t.numel() / 2;
    switch (t.dtype) {
        case DType::kF64:
            t.as<double>()[i] = v;
            break;
        case DType::kF32:
            t.as<float>()[i] = static_cast<float>(v);
            break;
        case DType::kBF16:
            t.as<bf16>()[i] = to_bf16(static_cast<float>(v));
            break;
        default:
            break;
    }
}

template <auto Member, typename Name, typename Signature>
struct Planted;
template <auto Member, typename Name, typename... Args>
struct Planted<Member, Name, void (*)(const Ctx&, Args...)> {
    static void call(const Ctx& ctx, Args... args) {
        const auto& self = static_cast<const Plant&>(*ctx.ops);
        Ctx plain = ctx;
        plain.ops = self.target;
        if (self.hook) self.hook(Name::text());
        (self.target->*Member)(plain, args...);
        ++self.calls[Name::text()];
        const bool mine = self.armed && self.op == Name::text() && self.times > 0;
        int nth = 0;
        const auto visit = [&](const auto& arg) {
            if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, Tensor>) {
                const bool number = arg.dtype == DType::kF64 || arg.dtype == DType::kF32 ||
                                    arg.dtype == DType::kBF16;
                if (!arg.present() || !number) return;
                if (nth++ == self.output && mine) spoil(arg, self.value);
            }
        };
        (visit(args), ...);
        self.outputs[Name::text()] = nth;
        if (mine) --self.times;
    }
};

#define VT_PLANT_NAME(name)                         \
    struct name##_plant {                           \
        static const char* text() { return #name; } \
    };
VT_OPS(VT_PLANT_NAME)
#undef VT_PLANT_NAME

inline Plant::Plant(const Ops& wrapped) : target(&wrapped) {
    backend = wrapped.backend;
    instruction_path = wrapped.instruction_path;
    scratch_bytes = wrapped.scratch_bytes;
#define VT_PLANT(name) name = Planted<&Ops::name, name##_plant, decltype(Ops::name)>::call;
    VT_OPS(VT_PLANT)
#undef VT_PLANT
}

}  // namespace vt::test
