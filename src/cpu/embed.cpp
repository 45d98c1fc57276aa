// SPDX-License-Identifier: MIT
// ops/embed.h on the CPU. Latents are a thousandth of what a step moves: plain loops.
#include <cmath>

#include "cpu/rows.h"

namespace vt::rows {
namespace {

void convert(float& y, float x) {
    y = x;
}
void convert(float& y, bf16 x) {
    y = to_float(x);
}
void convert(bf16& y, float x) {
    y = to_bf16(x);
}
void convert(bf16& y, bf16 x) {
    y = x;
}

// Walks a sample's elements and the rows they belong to; body(latent index, row index) with both
// indices flat. One task is one (sample, t, h) line of rows.
template <typename Body>
void each_patch_element(const Ctx& ctx, const Shape& x, Patch patch, PatchOrder order,
                        const Body& body) {
    const int64_t B = x[0], C = x[1], T = x[2], H = x[3], W = x[4];
    const int64_t gt = div_exact(T, patch.t), gh = div_exact(H, patch.h);
    const int64_t gw = div_exact(W, patch.w), features = C * patch.volume();
    const bool channel_first = order == PatchOrder::kChannelFirst;
    const int64_t of_c = channel_first ? patch.volume() : 1;
    const int64_t of_w = channel_first ? 1 : C;
    ctx.pool->parallel_for(B * gt * gh, [&](int64_t line, int /*thread*/) {
        const int64_t h0 = line % gh * patch.h, t0 = line / gh % gt * patch.t;
        const int64_t b = line / (gh * gt);
        for (int64_t c = 0; c < C; ++c) {
            for (int64_t dt = 0; dt < patch.t; ++dt) {
                for (int64_t dh = 0; dh < patch.h; ++dh) {
                    const int64_t latent = (((b * C + c) * T + t0 + dt) * H + h0 + dh) * W;
                    const int64_t feature = c * of_c + (dt * patch.h + dh) * patch.w * of_w;
                    int64_t row = line * gw * features + feature;
                    for (int64_t w = 0; w < gw; ++w, row += features) {
                        for (int64_t dw = 0; dw < patch.w; ++dw) {
                            body(latent + w * patch.w + dw, row + dw * of_w);
                        }
                    }
                }
            }
        }
    });
}

// kToRows: y holds the rows, x the latents; else the other way round.
template <bool kToRows, typename Y, typename X>
void move(const Ctx& ctx, Tensor y, CTensor x, Patch patch, PatchOrder order) {
    Y* to = y.as<Y>();
    const X* from = x.as<X>();
    each_patch_element(ctx, kToRows ? x.shape : y.shape, patch, order,
                       [&](int64_t latent, int64_t row) {
                           convert(to[kToRows ? row : latent], from[kToRows ? latent : row]);
                       });
}

template <bool kToRows>
void move_any(const Ctx& ctx, Tensor y, CTensor x, Patch patch, PatchOrder order, const char* op) {
    const bool y32 = type_of(y.dtype, op) == kernel::kF32;
    const bool x32 = type_of(x.dtype, op) == kernel::kF32;
    if (y32 && x32) return move<kToRows, float, float>(ctx, y, x, patch, order);
    if (y32) return move<kToRows, float, bf16>(ctx, y, x, patch, order);
    if (x32) return move<kToRows, bf16, float>(ctx, y, x, patch, order);
    move<kToRows, bf16, bf16>(ctx, y, x, patch, order);
}

}  // namespace

void patchify(const Ctx& ctx, Tensor rows, CTensor x, Patch patch, PatchOrder order) {
    move_any<true>(ctx, rows, x, patch, order, "patchify");
}

void unpatchify(const Ctx& ctx, Tensor x, CTensor rows, Patch patch, PatchOrder order) {
    move_any<false>(ctx, x, rows, patch, order, "unpatchify");
}

void sinusoid(const Ctx& ctx, Tensor out, CTensor t) {
    const int64_t half = out.shape[1] / 2;
    ctx.pool->parallel_for(out.shape[0], [&](int64_t b, int /*thread*/) {
        const double time = static_cast<double>(t.as<float>()[b]);
        float* row = out.as<float>() + b * 2 * half;
        for (int64_t j = 0; j < half; ++j) {
            const double f =
                std::exp(-std::log(10000.0) * static_cast<double>(j) / static_cast<double>(half));
            row[j] = static_cast<float>(std::cos(time * f));
            row[half + j] = static_cast<float>(std::sin(time * f));
        }
    });
}

}  // namespace vt::rows
