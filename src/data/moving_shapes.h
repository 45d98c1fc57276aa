// SPDX-License-Identifier: MIT
// What the labelled clips are made of: names, colours, ways, and the outline of each shape. For who
// draws them (data/synth.h) and who recognises them (data/score.h).
// Floor 3.
#pragma once

#include <array>
#include <cstddef>

namespace vt {

inline constexpr std::array<const char*, 7> kShapeNames{"circle", "square", "triangle", "diamond",
                                                        "ring",   "cross",  "star"};
struct ShapeColor {
    const char* name;
    std::array<double, 3> rgb;
};
inline constexpr std::array<ShapeColor, 8> kShapeColors{{{"red", {232, 62, 52}},
                                                         {"green", {60, 190, 80}},
                                                         {"blue", {58, 112, 240}},
                                                         {"yellow", {250, 212, 48}},
                                                         {"orange", {248, 140, 36}},
                                                         {"purple", {164, 84, 224}},
                                                         {"cyan", {64, 208, 220}},
                                                         {"white", {244, 244, 244}}}};
struct ShapeWay {
    const char* name;
    double dx, dy;  // picture coordinates, y down
};
inline constexpr std::array<ShapeWay, 4> kShapeWays{
    {{"left", -1, 0}, {"right", 1, 0}, {"up", 0, -1}, {"down", 0, 1}}};
// the background's tones per channel
inline constexpr double kGroundLow = 16, kGroundHigh = 64;

/// Signed distance of (x, y) to the outline of kShapeNames[shape], negative inside; the shape fits
/// a circle of radius 1 around (0, 0). After Inigo Quilez, "2D distance functions".
[[nodiscard]] double shape_distance(std::size_t shape, double x, double y);

}  // namespace vt
