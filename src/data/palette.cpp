// SPDX-License-Identifier: MIT
#include "data/palette.h"

#include <algorithm>
#include <map>

#include "core/check.h"

namespace vt {
namespace {

using Color = std::array<uint8_t, 3>;
constexpr size_t kBins = size_t{1} << 15;

size_t bin_of(int r, int g, int b) {
    return static_cast<size_t>(r >> 3) << 10 | static_cast<size_t>(g >> 3) << 5 |
           static_cast<size_t>(b >> 3);
}

// A set of bins with the pixels in them, cut in two at the median of its longest side.
struct Box {
    std::vector<uint32_t> bins;
    int64_t pixels = 0;
    size_t axis = 0;
    int spread = 0;
};

struct Histogram {
    std::vector<int64_t> count = std::vector<int64_t>(kBins);
    std::array<std::vector<int64_t>, 3> sum{
        std::vector<int64_t>(kBins), std::vector<int64_t>(kBins), std::vector<int64_t>(kBins)};
    [[nodiscard]] int mean(uint32_t bin, size_t c) const {
        return static_cast<int>(sum.at(c)[bin] / count[bin]);
    }
};

void measure(Box& box, const Histogram& h) {
    box.pixels = 0;
    for (const uint32_t b : box.bins) box.pixels += h.count[b];
    box.spread = -1;
    for (size_t c = 0; c < 3; ++c) {
        int low = 255, high = 0;
        for (const uint32_t b : box.bins) {
            low = std::min(low, h.mean(b, c));
            high = std::max(high, h.mean(b, c));
        }
        if (high - low > box.spread) {
            box.spread = high - low;
            box.axis = c;
        }
    }
}

std::vector<Color> median_cut(const Histogram& h, size_t colours) {
    std::vector<Box> boxes(1);
    for (uint32_t b = 0; b < kBins; ++b) {
        if (h.count[b] > 0) boxes[0].bins.push_back(b);
    }
    measure(boxes[0], h);
    while (boxes.size() < colours) {
        // the box whose colours are worst served: most pixels times widest side
        const auto worst = std::max_element(boxes.begin(), boxes.end(), [](auto& a, auto& b) {
            return a.pixels * a.spread < b.pixels * b.spread;
        });
        if (worst->bins.size() < 2 || worst->spread == 0) break;
        const size_t axis = worst->axis;
        std::sort(worst->bins.begin(), worst->bins.end(), [&](uint32_t a, uint32_t b) {
            const int x = h.mean(a, axis), y = h.mean(b, axis);
            return x != y ? x < y : a < b;
        });
        size_t cut = 0;
        int64_t below = 0;
        while (cut + 1 < worst->bins.size() && 2 * below < worst->pixels) {
            below += h.count[worst->bins[cut++]];
        }
        Box upper;
        upper.bins.assign(worst->bins.begin() + static_cast<std::ptrdiff_t>(cut),
                          worst->bins.end());
        worst->bins.resize(cut);
        measure(*worst, h);
        measure(upper, h);
        boxes.push_back(std::move(upper));
    }
    std::vector<Color> palette;
    for (const Box& box : boxes) {
        Color color{};
        for (size_t c = 0; c < 3; ++c) {
            int64_t sum = 0;
            for (const uint32_t b : box.bins) sum += h.sum.at(c)[b];
            color.at(c) = static_cast<uint8_t>((sum + box.pixels / 2) / box.pixels);
        }
        palette.push_back(color);
    }
    return palette;
}

// The palette's nearest colour to the middle of each bin.
std::vector<uint8_t> nearest_of(const std::vector<Color>& palette) {
    std::vector<uint8_t> out(kBins);
    for (size_t bin = 0; bin < kBins; ++bin) {
        const std::array<int, 3> mid{static_cast<int>(bin >> 10) * 8 + 4,
                                     static_cast<int>(bin >> 5 & 31) * 8 + 4,
                                     static_cast<int>(bin & 31) * 8 + 4};
        int best = INT32_MAX;
        for (size_t i = 0; i < palette.size(); ++i) {
            int d = 0;
            for (size_t c = 0; c < 3; ++c) {
                const int e = mid.at(c) - palette[i].at(c);
                d += e * e;
            }
            if (d < best) {
                best = d;
                out[bin] = static_cast<uint8_t>(i);
            }
        }
    }
    return out;
}

// Floyd-Steinberg, left to right; errors in sixteenths.
void diffuse(const uint8_t* rgb, int64_t H, int64_t W, const std::vector<Color>& palette,
             const std::vector<uint8_t>& nearest, uint8_t* out) {
    std::vector<std::array<int, 3>> now(static_cast<size_t>(W + 2)), next(now.size());
    for (int64_t y = 0; y < H; ++y) {
        std::fill(next.begin(), next.end(), std::array<int, 3>{});
        for (int64_t x = 0; x < W; ++x, rgb += 3, ++out) {
            const auto at = static_cast<size_t>(x + 1);
            std::array<int, 3> want{};
            for (size_t c = 0; c < 3; ++c) {
                want.at(c) = std::clamp(rgb[c] + (now[at].at(c) + 8) / 16, 0, 255);
            }
            *out = nearest[bin_of(want[0], want[1], want[2])];
            for (size_t c = 0; c < 3; ++c) {
                const int e = want.at(c) - palette[*out].at(c);
                now[at + 1].at(c) += 7 * e;
                next[at - 1].at(c) += 3 * e;
                next[at].at(c) += 5 * e;
                next[at + 1].at(c) += e;
            }
        }
        std::swap(now, next);
    }
}

}  // namespace

Paletted make_paletted(const Clip& clip, int colours) {
    VT_CHECK(colours >= 1 && colours <= 256, "{} colours", colours);
    const size_t pixels = clip.rgb.size() / 3;
    Paletted out;
    out.index.resize(pixels);
    std::map<uint32_t, uint8_t> exact;
    Histogram h;
    for (size_t i = 0; i < pixels; ++i) {
        const uint8_t* p = clip.rgb.data() + 3 * i;
        const size_t bin = bin_of(p[0], p[1], p[2]);
        ++h.count[bin];
        for (size_t c = 0; c < 3; ++c) h.sum.at(c)[bin] += p[c];
        if (exact.size() > static_cast<size_t>(colours)) continue;
        exact.emplace(static_cast<uint32_t>(p[0] << 16 | p[1] << 8 | p[2]), uint8_t{0});
    }
    if (exact.size() <= static_cast<size_t>(colours)) {
        for (auto& [color, place] : exact) {
            place = static_cast<uint8_t>(out.palette.size());
            out.palette.push_back({static_cast<uint8_t>(color >> 16),
                                   static_cast<uint8_t>(color >> 8), static_cast<uint8_t>(color)});
        }
        for (size_t i = 0; i < pixels; ++i) {
            const uint8_t* p = clip.rgb.data() + 3 * i;
            out.index[i] = exact.at(static_cast<uint32_t>(p[0] << 16 | p[1] << 8 | p[2]));
        }
        return out;
    }
    out.palette = median_cut(h, static_cast<size_t>(colours));
    const auto nearest = nearest_of(out.palette);
    for (int64_t t = 0; t < clip.T; ++t) {
        diffuse(clip.rgb.data() + t * clip.H * clip.W * 3, clip.H, clip.W, out.palette, nearest,
                out.index.data() + t * clip.H * clip.W);
    }
    return out;
}

}  // namespace vt
