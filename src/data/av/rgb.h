// SPDX-License-Identifier: MIT
// Decoded frames as people see them: full-range RGB, square pixels, turned.
// Floor 3.
#pragma once

#include <vector>

#include "core/file.h"
#include "data/av/av.h"

namespace vt::av {

// How the stored picture is to be turned for display: optional transpose, then mirrors.
struct Turn {
    bool transpose = false, flip_x = false, flip_y = false;
    [[nodiscard]] bool any() const { return transpose || flip_x || flip_y; }
};
/// From a display matrix of nine 16.16 numbers, or null: none. Quarter turns and mirrors; other
/// angles go to the nearest.
[[nodiscard]] Turn turn_of(const uint8_t* matrix);
/// The stream's display matrix, or null.
[[nodiscard]] const uint8_t* display_matrix(const AVStream* stream);

// Turns decoded frames into displayed RGB of one size (that of the first frame).
class ToRgb {
  public:
    ToRgb(const AVStream* stream, AVCodecID codec) : stream_(stream), codec_(codec) {}
    [[nodiscard]] bool sized() const { return w_ > 0; }
    /// Sets size and turn: square pixels, then turned.
    void size_from(const AVFrame& f, AVRational aspect);
    [[nodiscard]] int64_t width() const { return turn_.transpose ? h_ : w_; }
    [[nodiscard]] int64_t height() const { return turn_.transpose ? w_ : h_; }
    /// (H,W,3), valid until the next call. kData if libav has no way.
    const uint8_t* convert(const AVFrame& f, const fs::path& path);

  private:
    const AVStream* stream_;
    AVCodecID codec_;
    Turn turn_;
    int w_ = 0, h_ = 0;  // as stored, square pixels
    SwsPtr sws_;
    std::vector<uint8_t> padded_, rgb_;
};

}  // namespace vt::av
