// SPDX-License-Identifier: MIT
// Whether a clip shows what a caption of the labelled set (data/synth.h) says: the judge of samples
// of a model that was trained on it. It looks at pixels and knows how the shapes are drawn; nothing
// is learned.
// Floor 3.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/codec.h"

namespace vt {

// Indices into kShapeColors, kShapeNames and kShapeWays of data/moving_shapes.h.
struct ShapeLabel {
    size_t color = 0, shape = 0;
    std::optional<size_t> way;  // none: a picture
    bool operator==(const ShapeLabel&) const = default;
};

/// The label in "a red circle moving left" or "an orange star"; nothing for any other caption.
[[nodiscard]] std::optional<ShapeLabel> shape_label(std::string_view caption);

// What is seen, and how well the best shape fits.
struct ShapeSeen {
    ShapeLabel label;
    double coverage = 0;  // of the picture, mean over frames: 0 where nothing stands out
    double misfit = 1;    // squared distance to the best outline over the squared mass; 0: exact
};

/// What the clip shows. Foreground is what is brighter than any background of the set can be; its
/// mean colour, its centre's way from the first to the last frames, and the outline that fits best
/// in position and size decide. `way` is none for T = 1. Defined for any clip, however blurred.
[[nodiscard]] ShapeSeen see_shape(const Clip& clip);

// How many of the clips so far show what was asked for.
struct ShapeScore {
    int64_t clips = 0, color = 0, shape = 0, way = 0, all = 0;
    void add(const ShapeLabel& asked, const ShapeSeen& seen);
    /// "12 clips: colour 100 % (chance 12 %), ..., all 42 % (chance 0.4 %)"
    [[nodiscard]] std::string str() const;
};

}  // namespace vt
