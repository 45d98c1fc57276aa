// SPDX-License-Identifier: MIT
// Floor 3. See data/synth.h.
#include "data/synth.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "core/rng.h"
#include "data/moving_shapes.h"

namespace vt {

int64_t synth_captions() {
    return static_cast<int64_t>(kShapeNames.size() * kShapeColors.size() * kShapeWays.size());
}

SynthClip synth_clip(uint64_t seed, uint64_t index, const SynthSpec& spec) {
    VT_CHECK(spec.T >= 1 && spec.H >= 1 && spec.W >= 1, "clip of {}x{}x{}", spec.T, spec.H, spec.W);
    uint64_t draw = 0;
    const auto unit = [&] { return random_unit(seed, Purpose::kSynth, index, draw++); };
    const auto pick = [&](size_t n) {
        return std::min(n - 1, static_cast<size_t>(unit() * static_cast<double>(n)));
    };
    const size_t shape = pick(kShapeNames.size());
    const ShapeColor& color = kShapeColors.at(pick(kShapeColors.size()));
    const ShapeWay& way = kShapeWays.at(pick(kShapeWays.size()));

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
        for (double& c : tone) c = kGroundLow + (kGroundHigh - kGroundLow) * unit();
    }
    const double turn = 2 * M_PI * unit(), gx = std::cos(turn), gy = std::sin(turn);

    SynthClip out;
    out.caption = fmt::format("{} {} {}", color.name[0] == 'o' ? "an" : "a", color.name,
                              kShapeNames.at(shape));
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
                const double d =
                    shape_distance(shape, (sx - cx) / radius, (sy - cy) / radius) * radius;
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
