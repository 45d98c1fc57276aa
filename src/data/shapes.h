// SPDX-License-Identifier: MIT
// The shapes clips are cut to, and which of them suits a picture.
// Floor 3.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace vt {

struct ClipShape {
    int64_t H = 64, W = 64, T = 17;  // pixels, frames
    bool operator==(const ClipShape&) const = default;
};

/// "256x448x17": height x width x frames.
[[nodiscard]] std::string name_of(const ClipShape& s);
/// "256x448x17,448x256x17,512x512x1". kUser naming `option` for anything else and for repeats.
[[nodiscard]] std::vector<ClipShape> parse_shapes(std::string_view text, std::string_view option);

// Shapes of about one area for several aspect ratios and durations.
struct ShapeGrid {
    int64_t area = 0;             // pixels a frame
    std::vector<double> aspects;  // width / height
    std::vector<int64_t> frames;  // per clip
    int64_t cell = 8;             // height and width are multiples of it
};
/// Per aspect the height and width whose product is nearest to the area, and whose ratio nearest to
/// the aspect among those, each rounded to the cell; per size one shape for each duration. Aspects
/// that round to the same size make one.
[[nodiscard]] std::vector<ClipShape> make_shapes(const ShapeGrid& grid);
/// "16:9,1:1,0.5625": width to height, or the quotient. kUser naming the option.
[[nodiscard]] std::vector<double> parse_aspects(std::string_view text);

/// The shape of `frames` frames that suits a picture of HxW best: of those whose aspect ratio is
/// nearest (within 5 %) the largest that needs no enlarging, or else the smallest. None if no shape
/// has so many frames, or (`enlarge` false) if all would need enlarging.
[[nodiscard]] std::optional<ClipShape> choose_shape(const std::vector<ClipShape>& shapes,
                                                    int64_t frames, int64_t H, int64_t W,
                                                    bool enlarge = true);

/// Share of an HxW picture that a centred crop to the shape's ratio loses, 0 to below 1.
[[nodiscard]] double crop_share(const ClipShape& shape, int64_t H, int64_t W);

}  // namespace vt
