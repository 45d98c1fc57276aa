// SPDX-License-Identifier: MIT
// Video and image files. Reading and writing video needs libav (build option VTRAIN_LIBAV); PNG
// writing is built in. Without libav the functions raise kUser naming the option.
// Floor 3.
#pragma once

#include <functional>
#include <string>

#include "core/file.h"
#include "data/codec.h"

namespace vt {

[[nodiscard]] bool have_video();  // built with libav

struct VideoInfo {
    int64_t width = 0, height = 0;  // as displayed, rotation applied
    double fps = 0, seconds = 0;    // 0 = unknown
    std::string codec;
};

/// Decodes the best video stream to RGB at constant `fps` (0: the stream's own), frame by frame.
/// `frame` gets (H,W,3) u8 and returns false to stop. kData with file and reason for what cannot
/// be decoded. Returns the stream's facts.
VideoInfo read_video(const fs::path& path, double fps,
                     const std::function<bool(const uint8_t* rgb, int64_t H, int64_t W)>& frame);

/// H.264 (or MPEG-4 where no H.264 encoder is present) in mp4. Odd sizes are padded by one by
/// repeating the edge.
void write_mp4(const fs::path& path, const Clip& clip);
void write_png(const fs::path& path, const uint8_t* rgb, int64_t H, int64_t W);

/// Scales so that the short side fits, then crops the centre to exactly (H,W). Area-averaging down,
/// bilinear up.
[[nodiscard]] std::vector<uint8_t> resize_crop(const uint8_t* rgb, int64_t H, int64_t W,
                                               int64_t outH, int64_t outW);

}  // namespace vt
