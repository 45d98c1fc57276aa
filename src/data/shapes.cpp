// SPDX-License-Identifier: MIT
#include "data/shapes.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "core/check.h"

namespace vt {
namespace {

constexpr int64_t kMaxSide = 16384, kMaxFrames = 65536;

std::vector<std::string_view> split(std::string_view text, char by) {
    std::vector<std::string_view> out;
    for (size_t at = 0;;) {
        const size_t end = std::min(text.find(by, at), text.size());
        out.push_back(text.substr(at, end - at));
        if (end == text.size()) return out;
        at = end + 1;
    }
}

template <typename T>
bool number(std::string_view text, T* to) {
    const auto r = std::from_chars(text.data(), text.data() + text.size(), *to);
    return r.ec == std::errc{} && r.ptr == text.data() + text.size();
}

double log_ratio(int64_t H, int64_t W) {
    return std::log(static_cast<double>(W) / static_cast<double>(H));
}

}  // namespace

std::string name_of(const ClipShape& s) {
    return fmt::format("{}x{}x{}", s.H, s.W, s.T);
}

std::vector<ClipShape> parse_shapes(std::string_view text, std::string_view option) {
    std::vector<ClipShape> out;
    for (const std::string_view part : split(text, ',')) {
        const auto sides = split(part, 'x');
        ClipShape s;
        if (sides.size() != 3 || !number(sides[0], &s.H) || !number(sides[1], &s.W) ||
            !number(sides[2], &s.T) || s.H < 1 || s.W < 1 || s.T < 1 || s.H > kMaxSide ||
            s.W > kMaxSide || s.T > kMaxFrames) {
            raise(Fault::kUser,
                  fmt::format("{} {}: '{}' is not height x width x frames (sides to {}, frames to "
                              "{})",
                              option, text, part, kMaxSide, kMaxFrames),
                  "e.g. 256x448x17,448x256x17,320x320x1");
        }
        if (std::find(out.begin(), out.end(), s) != out.end()) {
            raise(Fault::kUser, fmt::format("{} {}: {} is there twice", option, text, part));
        }
        out.push_back(s);
    }
    return out;
}

std::vector<double> parse_aspects(std::string_view text) {
    std::vector<double> out;
    for (const std::string_view part : split(text, ',')) {
        const auto sides = split(part, ':');
        double w = 0, h = 1;
        const bool good = sides.size() <= 2 && number(sides[0], &w) &&
                          (sides.size() == 1 || number(sides[1], &h)) && w > 0 && h > 0;
        if (!good || !(w / h >= 0.1 && w / h <= 10)) {
            raise(Fault::kUser,
                  fmt::format("--aspects {}: '{}' is not width:height between 1:10 and 10:1", text,
                              part),
                  "e.g. 16:9,1:1,9:16");
        }
        out.push_back(w / h);
    }
    return out;
}

std::vector<ClipShape> make_shapes(const ShapeGrid& grid) {
    VT_CHECK(grid.area >= 1 && grid.cell >= 1 && !grid.aspects.empty() && !grid.frames.empty(),
             "area {}, cell {}, {} aspects, {} durations", grid.area, grid.cell,
             grid.aspects.size(), grid.frames.size());
    const auto area = static_cast<double>(grid.area), cell = static_cast<double>(grid.cell);
    std::vector<ClipShape> out;
    for (const double aspect : grid.aspects) {
        // the four roundings of the exact sides; area and aspect count alike, as logarithms
        const double h = std::sqrt(area / aspect) / cell, w = h * aspect;
        ClipShape best;
        double least = INFINITY;
        for (const double y : {std::floor(h), std::ceil(h)}) {
            for (const double x : {std::floor(w), std::ceil(w)}) {
                const double bh = std::max(1.0, y) * cell, bw = std::max(1.0, x) * cell;
                const double cost =
                    std::fabs(std::log(bh * bw / area)) + std::fabs(std::log(bw / bh / aspect));
                if (cost < least - 1e-12) {
                    least = cost;
                    best.H = static_cast<int64_t>(bh);
                    best.W = static_cast<int64_t>(bw);
                }
            }
        }
        for (const int64_t frames : grid.frames) {
            best.T = frames;
            if (std::find(out.begin(), out.end(), best) == out.end()) out.push_back(best);
        }
    }
    return out;
}

std::optional<ClipShape> choose_shape(const std::vector<ClipShape>& shapes, int64_t frames,
                                      int64_t H, int64_t W, bool enlarge) {
    constexpr double kSame = 0.05;  // differences of rounding, not of kind
    const auto fits = [&](const ClipShape& s) { return s.H <= H && s.W <= W; };
    const auto off = [&](const ClipShape& s) {
        return std::fabs(log_ratio(s.H, s.W) - log_ratio(H, W));
    };
    double nearest = INFINITY;
    for (const ClipShape& s : shapes) {
        if (s.T == frames && (enlarge || fits(s))) nearest = std::min(nearest, off(s));
    }
    std::optional<ClipShape> best;
    for (const ClipShape& s : shapes) {
        if (s.T != frames || (!enlarge && !fits(s)) || off(s) > nearest + kSame) continue;
        const bool larger = !best || s.H * s.W > best->H * best->W;
        const bool better = best && fits(*best) ? fits(s) && larger : fits(s) || !larger;
        if (!best || better) best = s;
    }
    return best;
}

double crop_share(const ClipShape& shape, int64_t H, int64_t W) {
    return 1 - std::exp(-std::fabs(log_ratio(shape.H, shape.W) - log_ratio(H, W)));
}

}  // namespace vt
