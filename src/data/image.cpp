// SPDX-License-Identifier: MIT
// The canvas.
// Floor 3.
#include "data/image.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "data/font.h"

namespace vt {
namespace {

constexpr double kAdvance = 6;  // font columns per character, one of them empty

uint8_t mix(uint8_t under, uint8_t over, double alpha) {
    return static_cast<uint8_t>(
        std::lround(static_cast<double>(under) + alpha * (static_cast<double>(over) - under)));
}

}  // namespace

Canvas::Canvas(int64_t height, int64_t width, Rgb background)
    : H_(height), W_(width), rgb_(static_cast<size_t>(height * width * 3)) {
    VT_CHECK(height >= 1 && width >= 1, "canvas of {}x{}", height, width);
    for (size_t i = 0; i < rgb_.size(); ++i) rgb_[i] = background.at(i % 3);
}

void Canvas::fill(double x0, double y0, double x1, double y1, Rgb color) {
    const auto overlap = [](double lo, double hi, double at) {
        return std::clamp(std::min(hi, at + 1) - std::max(lo, at), 0.0, 1.0);
    };
    for (int64_t y = std::max(int64_t{0}, static_cast<int64_t>(y0));
         y < std::min(H_, static_cast<int64_t>(std::ceil(y1))); ++y) {
        for (int64_t x = std::max(int64_t{0}, static_cast<int64_t>(x0));
             x < std::min(W_, static_cast<int64_t>(std::ceil(x1))); ++x) {
            const double a =
                overlap(x0, x1, static_cast<double>(x)) * overlap(y0, y1, static_cast<double>(y));
            uint8_t* p = rgb_.data() + (y * W_ + x) * 3;
            for (size_t c = 0; c < 3; ++c) p[c] = mix(p[c], color.at(c), a);
        }
    }
}

// Coverage of a pixel: how far its centre lies inside the nearest capsule, over one pixel.
void Canvas::draw(const std::vector<Segment>& segments, double width, Rgb color, double opacity) {
    if (segments.empty()) return;
    const double r = width / 2;
    cover_.resize(static_cast<size_t>(H_ * W_), 0.0F);
    int64_t bx0 = W_, by0 = H_, bx1 = 0, by1 = 0;
    const auto clampi = [](double v, int64_t hi) {
        return static_cast<int64_t>(std::clamp(v, 0.0, static_cast<double>(hi)));
    };
    for (const Segment& s : segments) {
        const int64_t x0 = clampi(std::floor(std::min(s.a.x, s.b.x) - r - 1), W_);
        const int64_t x1 = clampi(std::ceil(std::max(s.a.x, s.b.x) + r + 1), W_);
        const int64_t y0 = clampi(std::floor(std::min(s.a.y, s.b.y) - r - 1), H_);
        const int64_t y1 = clampi(std::ceil(std::max(s.a.y, s.b.y) + r + 1), H_);
        bx0 = std::min(bx0, x0);
        bx1 = std::max(bx1, x1);
        by0 = std::min(by0, y0);
        by1 = std::max(by1, y1);
        const double dx = s.b.x - s.a.x, dy = s.b.y - s.a.y, len2 = dx * dx + dy * dy;
        for (int64_t y = y0; y < y1; ++y) {
            for (int64_t x = x0; x < x1; ++x) {
                const double px = static_cast<double>(x) + 0.5 - s.a.x;
                const double py = static_cast<double>(y) + 0.5 - s.a.y;
                const double t = len2 > 0 ? std::clamp((px * dx + py * dy) / len2, 0.0, 1.0) : 0.0;
                const double ex = px - t * dx, ey = py - t * dy;
                // a stroke thinner than a pixel is a paler pixel-wide one
                const double a =
                    std::clamp(r + 0.5 - std::sqrt(ex * ex + ey * ey), 0.0, std::min(1.0, width));
                float& c = cover_[static_cast<size_t>(y * W_ + x)];
                c = std::max(c, static_cast<float>(a));
            }
        }
    }
    for (int64_t y = by0; y < by1; ++y) {
        for (int64_t x = bx0; x < bx1; ++x) {
            float& a = cover_[static_cast<size_t>(y * W_ + x)];
            if (a > 0) {
                uint8_t* p = rgb_.data() + (y * W_ + x) * 3;
                for (size_t c = 0; c < 3; ++c) {
                    p[c] = mix(p[c], color.at(c), static_cast<double>(a) * opacity);
                }
            }
            a = 0;
        }
    }
}

void Canvas::stroke(const std::vector<Point>& points, double width, Rgb color, double opacity) {
    std::vector<Segment> segments;
    for (size_t i = 0; i + 1 < points.size(); ++i) segments.push_back({points[i], points[i + 1]});
    if (points.size() == 1) segments.push_back({points[0], points[0]});
    draw(segments, width, color, opacity);
}

void Canvas::blit(const uint8_t* rgb, int64_t h, int64_t w, int64_t x, int64_t y, int64_t zoom) {
    for (int64_t v = 0; v < h * zoom; ++v) {
        for (int64_t u = 0; u < w * zoom; ++u) {
            if (x + u < 0 || x + u >= W_ || y + v < 0 || y + v >= H_) continue;
            std::memcpy(rgb_.data() + ((y + v) * W_ + x + u) * 3,
                        rgb + ((v / zoom) * w + u / zoom) * 3, 3);
        }
    }
}

// The letter forms are drawn as pens would: lit neighbours are joined by strokes; a diagonal only
// where no straight way round exists, so that corners stay corners and slopes become slopes.
void Canvas::glyphs(double x, double y, std::string_view s, double size, Rgb color, bool up) {
    const double pitch = size / 6.0;  // capitals span rows 0 to 6
    const double pen = std::max(1.0, pitch * 0.95);
    std::vector<Segment> segments;
    for (size_t i = 0; i < s.size(); ++i) {
        const auto code = static_cast<unsigned char>(s[i]);
        const auto& form = kFont5x7.at(code >= 32 && code < 127 ? code - 32U : 31U);
        const auto lit = [&](int c, int r) {
            return c >= 0 && c < 5 && r >= 0 && r < 8 &&
                   ((form.at(static_cast<size_t>(c)) >> r) & 1) != 0;
        };
        const auto at = [&](int c, int r) {
            const double u = (static_cast<double>(i) * kAdvance + c + 0.5) * pitch, v = r * pitch;
            return up ? Point{x + v, y - u} : Point{x + u, y + v};
        };
        for (int c = 0; c < 5; ++c) {
            for (int r = 0; r < 8; ++r) {
                if (!lit(c, r)) continue;
                bool joined = false;
                const auto join = [&](int dc, int dr) {
                    segments.push_back({at(c, r), at(c + dc, r + dr)});
                    joined = true;
                };
                if (lit(c + 1, r)) join(1, 0);
                if (lit(c, r + 1)) join(0, 1);
                if (lit(c + 1, r + 1) && !lit(c + 1, r) && !lit(c, r + 1)) join(1, 1);
                if (lit(c + 1, r - 1) && !lit(c + 1, r) && !lit(c, r - 1)) join(1, -1);
                if (!joined) segments.push_back({at(c, r), at(c, r)});
            }
        }
    }
    draw(segments, pen, color, 1);
}

void Canvas::text(double x, double y, std::string_view s, double size, Rgb color) {
    glyphs(x, y, s, size, color, false);
}

void Canvas::text_up(double x, double y, std::string_view s, double size, Rgb color) {
    glyphs(x, y, s, size, color, true);
}

double Canvas::text_width(std::string_view s, double size) {
    return s.empty() ? 0.0 : (static_cast<double>(s.size()) * kAdvance - 1) * size / 6.0;
}

}  // namespace vt
