// SPDX-License-Identifier: MIT
// Floor 3. See data/score.h.
#include "data/score.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "core/check.h"
#include "data/moving_shapes.h"

namespace vt {
namespace {

// Foreground of one frame: how much of each pixel the shape covers, its centre, its sum and its sum
// of squares.
struct Mask {
    std::vector<double> cover;  // (H,W), 0 to 1
    double mass = 0, squares = 0, x = 0, y = 0;
};

// A pixel is between background and colour: its brightest channel says how far. `full` is what that
// channel is inside the shape.
Mask mask_of(const uint8_t* rgb, int64_t H, int64_t W, double full) {
    constexpr double kGround = (kGroundLow + kGroundHigh) / 2;
    Mask m;
    m.cover.resize(static_cast<size_t>(H * W));
    for (int64_t i = 0; i < H * W; ++i) {
        const double top = std::max({rgb[3 * i], rgb[3 * i + 1], rgb[3 * i + 2]});
        double a = std::clamp((top - kGround) / std::max(full - kGround, 1.0), 0.0, 1.0);
        if (top <= kGroundHigh + 4) a = 0;  // may be background; 4: what a codec blurs
        m.cover[static_cast<size_t>(i)] = a;
        m.mass += a;
        m.squares += a * a;
        m.x += a * (static_cast<double>(i % W) + 0.5);
        m.y += a * (static_cast<double>(i / W) + 0.5);
    }
    if (m.mass > 0) {
        m.x /= m.mass;
        m.y /= m.mass;
    }
    return m;
}

// The brightest channel inside the shape: a high quantile over the pixels that stand out.
double full_level(const Clip& clip) {
    std::array<int64_t, 256> count{};
    int64_t n = 0;
    for (size_t i = 0; i + 2 < clip.rgb.size(); i += 3) {
        const uint8_t top = std::max({clip.rgb[i], clip.rgb[i + 1], clip.rgb[i + 2]});
        if (top <= kGroundHigh + 4) continue;
        ++count.at(top);
        ++n;
    }
    int64_t left = n / 4;  // three quarters of a small shape may be edge
    for (size_t v = 255; v > 0; --v) {
        left -= count.at(v);
        if (left < 0) return static_cast<double>(v);
    }
    return 255;
}

size_t nearest_color(const Clip& clip, const std::vector<Mask>& masks) {
    std::array<double, 3> sum{};
    double weight = 0;
    const auto pixels = static_cast<size_t>(clip.H * clip.W);
    for (size_t t = 0; t < masks.size(); ++t) {
        for (size_t i = 0; i < pixels; ++i) {
            // edges are mixed with the background: what is covered most counts
            const double w = std::pow(masks[t].cover[i], 4);
            weight += w;
            for (size_t c = 0; c < 3; ++c) {
                sum.at(c) += w * static_cast<double>(clip.rgb[3 * (t * pixels + i) + c]);
            }
        }
    }
    size_t best = 0;
    double least = 1e300;
    for (size_t k = 0; k < kShapeColors.size(); ++k) {
        double d = 0;
        for (size_t c = 0; c < 3; ++c) {
            const double diff = sum.at(c) / std::max(weight, 1e-9) - kShapeColors.at(k).rgb.at(c);
            d += diff * diff;
        }
        if (d < least) {
            least = d;
            best = k;
        }
    }
    return best;
}

// Area of each shape of radius 1.
std::array<double, kShapeNames.size()> shape_areas() {
    std::array<double, kShapeNames.size()> area{};
    constexpr int kGrid = 200;
    for (size_t k = 0; k < area.size(); ++k) {
        int64_t inside = 0;
        for (int j = 0; j < kGrid; ++j) {
            for (int i = 0; i < kGrid; ++i) {
                const double x = (i + 0.5) * 2 / kGrid - 1, y = (j + 0.5) * 2 / kGrid - 1;
                inside += shape_distance(k, x, y) < 0 ? 1 : 0;
            }
        }
        area.at(k) = 4.0 * static_cast<double>(inside) / (kGrid * kGrid);
    }
    return area;
}

// Sum of squared differences between a mask and a drawn shape.
double misfit(const Mask& m, int64_t H, int64_t W, size_t shape, double cx, double cy, double r) {
    double sum = m.squares;  // outside the shape's box nothing is drawn
    const auto clip = [](double v, int64_t n) {
        return std::clamp<int64_t>(static_cast<int64_t>(std::floor(v)), 0, n);
    };
    for (int64_t y = clip(cy - r - 1, H); y < clip(cy + r + 2, H); ++y) {
        for (int64_t x = clip(cx - r - 1, W); x < clip(cx + r + 2, W); ++x) {
            const double dx = static_cast<double>(x) + 0.5 - cx;
            const double dy = static_cast<double>(y) + 0.5 - cy;
            const double have = m.cover[static_cast<size_t>(y * W + x)];
            const double drawn =
                std::clamp(0.5 - shape_distance(shape, dx / r, dy / r) * r, 0.0, 1.0);
            sum += (have - drawn) * (have - drawn) - have * have;
        }
    }
    return sum;
}

// The least of misfit() near the centre and size that the mask's moments give: descent on a grid of
// three numbers that is halved twice.
double best_misfit(const Mask& m, int64_t H, int64_t W, size_t shape, double area) {
    double x = m.x, y = m.y, r = std::sqrt(m.mass / area);
    double least = misfit(m, H, W, shape, x, y, r);
    for (const double step : {0.4, 0.2, 0.1}) {
        for (bool moved = true; moved;) {
            moved = false;
            const double dr = step * 0.5;
            const std::array<std::array<double, 3>, 6> tries{{{x - step, y, r},
                                                              {x + step, y, r},
                                                              {x, y - step, r},
                                                              {x, y + step, r},
                                                              {x, y, std::max(r - dr, 0.5)},
                                                              {x, y, r + dr}}};
            for (const auto& t : tries) {
                const double now = misfit(m, H, W, shape, t[0], t[1], t[2]);
                if (now < least * (1 - 1e-9)) {
                    least = now;
                    x = t[0];
                    y = t[1];
                    r = t[2];
                    moved = true;
                }
            }
        }
    }
    return least;
}

}  // namespace

std::optional<ShapeLabel> shape_label(std::string_view caption) {
    for (size_t c = 0; c < kShapeColors.size(); ++c) {
        for (size_t s = 0; s < kShapeNames.size(); ++s) {
            const char* article = kShapeColors.at(c).name[0] == 'o' ? "an" : "a";
            const std::string still =
                fmt::format("{} {} {}", article, kShapeColors.at(c).name, kShapeNames.at(s));
            if (caption == still) return ShapeLabel{c, s, std::nullopt};
            for (size_t w = 0; w < kShapeWays.size(); ++w) {
                if (caption == still + " moving " + kShapeWays.at(w).name) {
                    return ShapeLabel{c, s, w};
                }
            }
        }
    }
    return std::nullopt;
}

ShapeSeen see_shape(const Clip& clip) {
    VT_CHECK(clip.T >= 1 && clip.H >= 1 && clip.W >= 1 &&
                 static_cast<int64_t>(clip.rgb.size()) == clip.T * clip.H * clip.W * 3,
             "a clip of {}x{}x{} with {} bytes", clip.T, clip.H, clip.W, clip.rgb.size());
    const double full = full_level(clip);
    std::vector<Mask> masks;
    ShapeSeen seen;
    for (int64_t t = 0; t < clip.T; ++t) {
        masks.push_back(mask_of(clip.rgb.data() + t * clip.H * clip.W * 3, clip.H, clip.W, full));
        seen.coverage +=
            masks.back().mass / static_cast<double>(clip.T) / static_cast<double>(clip.H * clip.W);
    }
    seen.label.color = nearest_color(clip, masks);

    if (clip.T > 1) {
        // slope of the centre over time, by least squares: no single frame decides
        double sx = 0, sy = 0;
        for (int64_t t = 0; t < clip.T; ++t) {
            const Mask& m = masks[static_cast<size_t>(t)];
            if (m.mass <= 0) continue;
            const double at = static_cast<double>(t) - 0.5 * static_cast<double>(clip.T - 1);
            sx += at * (m.x - 0.5 * static_cast<double>(clip.W));
            sy += at * (m.y - 0.5 * static_cast<double>(clip.H));
        }
        size_t best = 0;
        for (size_t w = 1; w < kShapeWays.size(); ++w) {
            const auto along = [&](size_t k) {
                return sx * kShapeWays.at(k).dx + sy * kShapeWays.at(k).dy;
            };
            if (along(w) > along(best)) best = w;
        }
        seen.label.way = best;
    }

    static const auto areas = shape_areas();
    const int64_t frames = std::min<int64_t>(clip.T, 5);
    double least = 1e300, squares = 0;
    for (size_t s = 0; s < kShapeNames.size(); ++s) {
        double sum = 0;
        squares = 0;
        for (int64_t i = 0; i < frames; ++i) {
            const int64_t t = frames == 1 ? 0 : i * (clip.T - 1) / (frames - 1);
            const Mask& m = masks[static_cast<size_t>(t)];
            if (m.mass < 1) continue;
            sum += best_misfit(m, clip.H, clip.W, s, areas.at(s));
            squares += m.squares;
        }
        if (sum < least) {
            least = sum;
            seen.label.shape = s;
        }
    }
    seen.misfit = squares > 0 ? least / squares : 1;
    return seen;
}

void ShapeScore::add(const ShapeLabel& asked, const ShapeSeen& seen) {
    // where nothing stands out nothing is right, whatever the numbers above made of it
    const bool there = seen.coverage > 1e-3;
    const bool c = there && seen.label.color == asked.color;
    const bool s = there && seen.label.shape == asked.shape;
    const bool w = there && (!asked.way || seen.label.way == asked.way);
    ++clips;
    color += c ? 1 : 0;
    shape += s ? 1 : 0;
    way += w ? 1 : 0;
    all += c && s && w ? 1 : 0;
}

std::string ShapeScore::str() const {
    const auto percent = [&](int64_t n) {
        return clips == 0 ? 0.0 : 100.0 * static_cast<double>(n) / static_cast<double>(clips);
    };
    return fmt::format(
        "{} clips: colour right {:.0f} % (chance {:.1f}), shape {:.0f} % (chance {:.1f}), way "
        "{:.0f} % (chance {:.1f}), all three {:.0f} % (chance {:.1f})",
        clips, percent(color), 100.0 / kShapeColors.size(), percent(shape),
        100.0 / kShapeNames.size(), percent(way), 100.0 / kShapeWays.size(), percent(all),
        100.0 / (kShapeColors.size() * kShapeNames.size() * kShapeWays.size()));
}

}  // namespace vt
