// SPDX-License-Identifier: MIT
// Between latents and token rows, and the timestep's sinusoids.
// Floor 1. Legend: ops/ops.h.
#pragma once

#include "ops/ctx.h"

namespace vt {

struct Patch {
    int64_t t = 1, h = 2, w = 2;
    [[nodiscard]] int64_t volume() const { return t * h * w; }
    bool operator==(const Patch&) const = default;
};

// Order of the features inside a token row.
enum class PatchOrder : uint8_t {
    kChannelFirst,  // (c, dt, dh, dw), dw fastest: a conv weight flattened (Wan's input)
    kChannelLast,   // (dt, dh, dw, c), c fastest (Wan's output)
};

/// rows[b*Lb + (t*gh + h)*gw + w, feature] = x[b, c, t*pt+dt, h*ph+dh, w*pw+dw].
/// rows out (B*gt*gh*gw, C*pt*ph*pw) f32 or operand dtype    x in (B,C,T,H,W) f32 or operand dtype
/// T, H, W must be multiples of the patch (kBug). The adjoint of unpatchify with the same order.
/// bytes size(x) n + size(rows) n
void patchify(const Ctx& ctx, Tensor rows, CTensor x, Patch patch, PatchOrder order);
/// The inverse. x out (B,C,T,H,W), rows in.
void unpatchify(const Ctx& ctx, Tensor x, CTensor rows, Patch patch, PatchOrder order);

/// out[i,:] = [cos(t_i f_0..), sin(t_i f_0..)], f_j = exp(-ln(10000) j / (n/2)), cosines first.
/// out out (B,n) f32, n even    t in (B) f32, 0..1000, never rounded through bf16
/// angles in float64, rounded once to f32 (f64 in f64)
void sinusoid(const Ctx& ctx, Tensor out, CTensor t);

}  // namespace vt
