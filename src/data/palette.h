// SPDX-License-Identifier: MIT
// Few colours for many: a palette of a clip, and the clip drawn with it.
// Floor 3.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/codec.h"

namespace vt {

struct Paletted {
    std::vector<std::array<uint8_t, 3>> palette;  // 1 to `colours` of them
    std::vector<uint8_t> index;                   // (T,H,W), into the palette
};

/// At most `colours` (1 to 256) for all frames. A clip that has no more keeps every pixel as it is.
/// Otherwise median cut (Heckbert 1982) over colours of 5 bits a channel, and error diffusion
/// (Floyd and Steinberg 1976) within each frame.
[[nodiscard]] Paletted make_paletted(const Clip& clip, int colours);

}  // namespace vt
