// SPDX-License-Identifier: MIT
// Fitting pictures to a size.
// Floor 3.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "data/video.h"

namespace vt {
namespace {

// Weights of one axis: output i is sum_k w[k] * in[begin + k].
struct Tap {
    int64_t begin = 0;
    std::vector<float> w;
};

// in_n pixels to out_n, where the crop window [offset, offset + span) of the input is what shows.
std::vector<Tap> taps(int64_t in_n, int64_t out_n, double offset, double span) {
    std::vector<Tap> all(static_cast<size_t>(out_n));
    const double step = span / static_cast<double>(out_n);
    for (int64_t i = 0; i < out_n; ++i) {
        Tap& t = all[static_cast<size_t>(i)];
        if (step > 1) {  // down: the area under the output pixel
            const double lo = std::max(0.0, offset + static_cast<double>(i) * step);
            const double hi = std::min(static_cast<double>(in_n), lo + step);
            t.begin = std::min(in_n - 1, static_cast<int64_t>(lo));
            for (int64_t j = t.begin; j < in_n && static_cast<double>(j) < hi - 1e-9; ++j) {
                const double a =
                    std::min(hi, static_cast<double>(j + 1)) - std::max(lo, static_cast<double>(j));
                t.w.push_back(static_cast<float>(a));
            }
        } else {  // up: between the two nearest centres
            const double at = std::clamp(offset + (static_cast<double>(i) + 0.5) * step - 0.5, 0.0,
                                         static_cast<double>(in_n - 1));
            t.begin = static_cast<int64_t>(at);
            const auto f = static_cast<float>(at - static_cast<double>(t.begin));
            t.w = {1 - f};
            if (f > 0) t.w.push_back(f);
        }
        float sum = 0;
        for (const float w : t.w) sum += w;
        for (float& w : t.w) w /= sum;
    }
    return all;
}

}  // namespace

std::vector<uint8_t> resize_crop(const uint8_t* rgb, int64_t H, int64_t W, int64_t outH,
                                 int64_t outW, Crop crop) {
    VT_CHECK(H >= 1 && W >= 1 && outH >= 1 && outW >= 1, "{}x{} to {}x{}", H, W, outH, outW);
    std::vector<uint8_t> out(static_cast<size_t>(outH * outW * 3));
    if (H == outH && W == outW) {
        std::memcpy(out.data(), rgb, out.size());
        return out;
    }
    const auto inH = static_cast<double>(H), inW = static_cast<double>(W);
    double span_y = inH, span_x = inW;  // the part of the input that shows
    if (crop != Crop::kSqueeze) {
        const double scale =
            std::min(inH / static_cast<double>(outH), inW / static_cast<double>(outW));
        span_y = scale * static_cast<double>(outH);
        span_x = scale * static_cast<double>(outW);
    }
    const auto ty = taps(H, outH, crop == Crop::kTop ? 0.0 : (inH - span_y) / 2, span_y);
    const auto tx = taps(W, outW, (inW - span_x) / 2, span_x);
    std::vector<float> row(static_cast<size_t>(W * 3));  // one output row, still W wide
    for (int64_t y = 0; y < outH; ++y) {
        const Tap& v = ty[static_cast<size_t>(y)];
        std::fill(row.begin(), row.end(), 0.0F);
        for (size_t k = 0; k < v.w.size(); ++k) {
            const uint8_t* in = rgb + (v.begin + static_cast<int64_t>(k)) * W * 3;
            const float w = v.w[k];
            for (int64_t i = 0; i < W * 3; ++i) {
                row[static_cast<size_t>(i)] += w * static_cast<float>(in[i]);
            }
        }
        for (int64_t x = 0; x < outW; ++x) {
            const Tap& h = tx[static_cast<size_t>(x)];
            std::array<float, 3> sum{};
            for (size_t k = 0; k < h.w.size(); ++k) {
                const float* in = row.data() + (h.begin + static_cast<int64_t>(k)) * 3;
                for (size_t c = 0; c < 3; ++c) sum[c] += h.w[k] * in[c];
            }
            for (size_t c = 0; c < 3; ++c) {
                out[static_cast<size_t>((y * outW + x) * 3) + c] =
                    static_cast<uint8_t>(std::min(sum[c] + 0.5F, 255.0F));
            }
        }
    }
    return out;
}

}  // namespace vt
