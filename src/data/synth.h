// SPDX-License-Identifier: MIT
// Labelled moving shapes: clips that a small model can learn in minutes and a person can judge at a
// glance.
// Floor 3.
#pragma once

#include <cstdint>
#include <string>

#include "data/codec.h"

namespace vt {

struct SynthSpec {
    int64_t T = 17, H = 64, W = 64;
    double fps = 8;
};
struct SynthClip {
    Clip clip;
    std::string caption;  // "a red circle moving left"; of one frame: "a red circle"
};

/// One anti-aliased shape (circle, square, triangle, diamond, ring, cross, star) of one of eight
/// colours gliding in one of four directions over a soft dark gradient; it stays in the picture. A
/// pure function of (seed, index, spec): Philox Purpose::kSynth, id = index.
[[nodiscard]] SynthClip synth_clip(uint64_t seed, uint64_t index, const SynthSpec& spec);

/// How many different captions there are.
[[nodiscard]] int64_t synth_captions();

}  // namespace vt
