// SPDX-License-Identifier: MIT
// Moving shapes, drawn from signed distances (after Inigo Quilez, "2D distance functions").
// Floor 3.
#include "data/synth.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "core/rng.h"

namespace vt {
namespace {

constexpr std::array<const char*, 7> kShapes{"circle", "square", "triangle", "diamond",
                                             "ring",   "cross",  "star"};
struct Color {
    const char* name;
    std::array<double, 3> rgb;
};
constexpr std::array<Color, 8> kColors{{{"red", {232, 62, 52}},
                                        {"green", {60, 190, 80}},
                                        {"blue", {58, 112, 240}},
                                        {"yellow", {250, 212, 48}},
                                        {"orange", {248, 140, 36}},
                                        {"purple", {164, 84, 224}},
                                        {"cyan", {64, 208, 220}},
                                        {"white", {244, 244, 244}}}};
struct Way {
    const char* name;
    double dx, dy;
};
constexpr std::array<Way, 4> kWays{
    {{"left", -1, 0}, {"right", 1, 0}, {"up", 0, -1}, {"down", 0, 1}}};

// Distance of (x, y) to the shape's edge, negative inside; the shape fits a circle of radius 1.
double distance(size_t shape, double x, double y) {
    const double ax = std::fabs(x), ay = std::fabs(y), root = std::sqrt(0.5);
    const auto box = [](double px, double py, double hx, double hy) {
        const double qx = px - hx, qy = py - hy;
        return std::hypot(std::max(qx, 0.0), std::max(qy, 0.0)) + std::min(std::max(qx, qy), 0.0);
    };
    switch (shape) {
        case 0:
            return std::hypot(x, y) - 0.9;
        case 1:
            return box(ax, ay, 0.75, 0.75);
        case 2:  // point up: below the two flanks, above the base
            return std::max(ax * std::cos(M_PI / 6) - y * 0.5 - 0.5, y - 0.5);
        case 3:
            return (ax + ay - 1.0) * root;
        case 4:
            return std::fabs(std::hypot(x, y) - 0.7) - 0.22;
        case 5:
            return std::min(box(ax, ay, 0.9, 0.3), box(ax, ay, 0.3, 0.9));
        default: {  // five points: distance to the edge between a tip and the notch beside it
            const double r = std::hypot(x, y), sector = 2 * M_PI / 5;
            double angle =
                std::fmod(std::atan2(x, -y) + 2 * M_PI + sector / 2, sector) - sector / 2;
            angle = std::fabs(angle);
            const double px = r * std::sin(angle), py = r * std::cos(angle);
            const double nx = 0.42 * std::sin(sector / 2), ny = 0.42 * std::cos(sector / 2);
            // line from the tip (0, 1) to the notch (nx, ny); outward normal to the right
            const double ex = nx, ey = ny - 1, len = std::hypot(ex, ey);
            return (px * -ey + (py - 1) * ex) / len;
        }
    }
}

}  // namespace

int64_t synth_captions() {
    return static_cast<int64_t>(kShapes.size() * kColors.size() * kWays.size());
}

SynthClip synth_clip(uint64_t seed, uint64_t index, const SynthSpec& spec) {
    VT_CHECK(spec.T >= 1 && spec.H >= 1 && spec.W >= 1, "clip of {}x{}x{}", spec.T, spec.H, spec.W);
    uint64_t draw = 0;
    const auto unit = [&] { return random_unit(seed, Purpose::kSynth, index, draw++); };
    const auto pick = [&](size_t n) {
        return std::min(n - 1, static_cast<size_t>(unit() * static_cast<double>(n)));
    };
    const size_t shape = pick(kShapes.size());
    const Color& color = kColors.at(pick(kColors.size()));
    const Way& way = kWays.at(pick(kWays.size()));

    const auto H = static_cast<double>(spec.H), W = static_cast<double>(spec.W);
    const double radius = std::min(H, W) * (0.15 + 0.07 * unit());
    // It covers 45 % to 100 % of the room there is along its way, around a random middle.
    const double room_x = W - 2 * radius, room_y = H - 2 * radius;
    const double room = way.dx != 0 ? room_x : room_y;
    const double travel = spec.T > 1 ? room * (0.45 + 0.55 * unit()) : 0.0;
    const double slack = room - travel, along = (unit() - 0.5) * slack;
    const double across = (unit() - 0.5) * (way.dx != 0 ? room_y : room_x);
    // the background: two dark tones, one at each end of a random direction
    std::array<std::array<double, 3>, 2> ground{};
    for (auto& tone : ground) {
        for (double& c : tone) c = 16 + 48 * unit();
    }
    const double turn = 2 * M_PI * unit(), gx = std::cos(turn), gy = std::sin(turn);

    SynthClip out;
    out.caption =
        fmt::format("{} {} {}", color.name[0] == 'o' ? "an" : "a", color.name, kShapes.at(shape));
    if (spec.T > 1) out.caption += fmt::format(" moving {}", way.name);
    out.clip = {.T = spec.T, .H = spec.H, .W = spec.W, .fps = spec.fps, .rgb = {}};
    out.clip.rgb.resize(static_cast<size_t>(spec.T * spec.H * spec.W * 3));
    uint8_t* p = out.clip.rgb.data();
    for (int64_t t = 0; t < spec.T; ++t) {
        const double phase =
            spec.T > 1 ? static_cast<double>(t) / static_cast<double>(spec.T - 1) - 0.5 : 0.0;
        const double go = along + travel * phase * (way.dx + way.dy);
        const double cx = W / 2 + (way.dx != 0 ? go : across);
        const double cy = H / 2 + (way.dx != 0 ? across : go);
        for (int64_t y = 0; y < spec.H; ++y) {
            for (int64_t x = 0; x < spec.W; ++x, p += 3) {
                const double sx = static_cast<double>(x) + 0.5, sy = static_cast<double>(y) + 0.5;
                const double d = distance(shape, (sx - cx) / radius, (sy - cy) / radius) * radius;
                const double a = std::clamp(0.5 - d, 0.0, 1.0);
                const double g =
                    std::clamp(0.5 + 0.7 * (gx * (sx / W - 0.5) + gy * (sy / H - 0.5)), 0.0, 1.0);
                for (size_t c = 0; c < 3; ++c) {
                    const double under = ground[0].at(c) + g * (ground[1].at(c) - ground[0].at(c));
                    p[c] = static_cast<uint8_t>(std::lround(under + a * (color.rgb.at(c) - under)));
                }
            }
        }
    }
    return out;
}

}  // namespace vt
