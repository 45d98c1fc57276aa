// SPDX-License-Identifier: MIT
// The exponential of attention, on one register: its arguments are at most a rounding above 0.
// Compiled once per instruction set: internal linkage only (see vec.h). Floor 2.
#pragma once

#include "cpu/isa/panel.h"

namespace vt::VT_ISA {
namespace {

// e^x for x <= 88; below -87 it stays at e^-87, which nothing that is summed with 1 can see. NaN
// stays NaN. Polynomial: Cephes expf (S. Moshier, public domain), about 1 ulp.
VT_INLINE NF exponential_native(NF x) {
    x = x < splat_native(-87.0F) ? splat_native(-87.0F) : x;
    const NF magic = splat_native(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
    const NF t = multiply_add(x, splat_native(1.44269504F), magic);
    const NF n = t - magic;
    NF r = multiply_add(n, splat_native(-0.693359375F), x);
    r = multiply_add(n, splat_native(2.12194440e-4F), r);
    NF p = splat_native(1.9875691500e-4F);
    p = multiply_add(p, r, splat_native(1.3981999507e-3F));
    p = multiply_add(p, r, splat_native(8.3334519073e-3F));
    p = multiply_add(p, r, splat_native(4.1665795894e-2F));
    p = multiply_add(p, r, splat_native(1.6666665459e-1F));
    p = multiply_add(p, r, splat_native(5.0000001201e-1F));
    p = multiply_add(p, r * r, r) + splat_native(1.0F);
    // the low bits of t are n: shifted into the exponent's place they multiply by 2^n
    return reinterpret_cast<NF>(reinterpret_cast<NU>(p) + (reinterpret_cast<NU>(t) << 23));
}

}  // namespace
}  // namespace vt::VT_ISA
