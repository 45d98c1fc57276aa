// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ref/values.h"

namespace vt::test::ref {

namespace {

// Calls body(i, r) for every element i of x (B,C,T,H,W) with its place r in the token rows.
template <typename Body>
void for_each_pair(const Shape& x, Patch patch, PatchOrder order, const Body& body) {
    const int64_t C = x[1], T = x[2], H = x[3], W = x[4], features = C * patch.volume();
    const int64_t gt = T / patch.t, gh = H / patch.h, gw = W / patch.w;
    int64_t i = 0;
    for (int64_t b = 0; b < x[0]; ++b) {
        for (int64_t c = 0; c < C; ++c) {
            for (int64_t t = 0; t < T; ++t) {
                for (int64_t h = 0; h < H; ++h) {
                    for (int64_t w = 0; w < W; ++w, ++i) {
                        const int64_t row =
                            ((b * gt + t / patch.t) * gh + h / patch.h) * gw + w / patch.w;
                        const int64_t in_patch =
                            ((t % patch.t) * patch.h + h % patch.h) * patch.w + w % patch.w;
                        const int64_t feature = order == PatchOrder::kChannelFirst
                                                    ? c * patch.volume() + in_patch
                                                    : in_patch * C + c;
                        body(i, row * features + feature);
                    }
                }
            }
        }
    }
}

}  // namespace

void patchify(const Ctx& /*ctx*/, Tensor rows, CTensor x, Patch patch, PatchOrder order) {
    for_each_pair(x.shape, patch, order, [&](int64_t i, int64_t r) { put(rows, r, get(x, i)); });
}

void unpatchify(const Ctx& /*ctx*/, Tensor x, CTensor rows, Patch patch, PatchOrder order) {
    for_each_pair(x.shape, patch, order, [&](int64_t i, int64_t r) { put(x, i, get(rows, r)); });
}

void sinusoid(const Ctx& /*ctx*/, Tensor out, CTensor t) {
    const int64_t half = out.shape[1] / 2;
    for (int64_t b = 0; b < out.shape[0]; ++b) {
        for (int64_t j = 0; j < half; ++j) {
            const double f =
                std::exp(-std::log(10000.0) * static_cast<double>(j) / static_cast<double>(half));
            put(out, b * 2 * half + j, std::cos(get(t, b) * f));
            put(out, b * 2 * half + half + j, std::sin(get(t, b) * f));
        }
    }
}

}  // namespace vt::test::ref
