// SPDX-License-Identifier: MIT
// Video and image files. Reading and writing them needs libav (build option VTRAIN_LIBAV); PNG
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
    int64_t width = 0, height = 0;  // as displayed: rotation applied, pixels square
    double fps = 0, seconds = 0;    // 0 = unknown
    std::string codec;
    int64_t decoded = 0;  // frames, before they were put on the output's clock
    int64_t damaged = 0;  // frames left out because the decoder marked them as damaged
    std::string trouble;  // the first error met while decoding went on; empty: none
};

struct VideoOptions {
    double fps = 0;   // of what is handed on; 0: every decoded frame
    int threads = 0;  // of the decoder; 0: as many as there are cores
};

struct VideoFrame {
    const uint8_t* rgb = nullptr;  // (H,W,3) u8, valid during the call
    int64_t H = 0, W = 0;
    bool joins = false;  // follows on the frame before; false for the first, after damaged frames
                         // and where the clock jumps (back by over 1 s, on by over 10 s)
    bool still = false;  // the file is a picture, not a video
};

/// Decodes the best video stream to RGB at constant `fps`, frame by frame. `frame` returns false to
/// stop. Colours are made full-range RGB by the stream's own matrix and range (where it says
/// neither: limited range, BT.709 from 720 lines or 1280 columns on, BT.601 below); alpha is laid
/// over white; of interlaced frames one field is used. Frames go to the nearest tick of the
/// output's clock by their time stamps, and gaps repeat the frame before. kData with file and
/// reason for what cannot be decoded. Safe from several threads at once. Returns the stream's
/// facts.
VideoInfo read_video(const fs::path& path, const VideoOptions& options,
                     const std::function<bool(const VideoFrame&)>& frame);

/// Whether a file is worth trying, by its ending or else by its first bytes. False for what lies
/// beside videos: captions, tables, subtitles, sound, archives, shards.
[[nodiscard]] bool looks_like_video(const fs::path& path);

/// H.264 (or MPEG-4 where no H.264 encoder is present) in mp4. Odd sizes are padded by one by
/// repeating the edge.
void write_mp4(const fs::path& path, const Clip& clip);
/// Animated GIF that repeats for ever, one palette of up to 255 colours for all frames. Frame times
/// are rounded to 1/100 s so that the whole keeps its length.
void write_gif(const fs::path& path, const Clip& clip);
void write_png(const fs::path& path, const uint8_t* rgb, int64_t H, int64_t W);

// Which part of a picture is kept when its shape differs from the wanted one.
enum class Crop {
    kCenter,
    kTop,     // the upper end of tall pictures, the centre of wide ones
    kSqueeze  // all of it, its sides scaled unequally
};

/// Scales so that the short side fits, then crops to exactly (H,W), or squeezes. Area-averaging
/// down, bilinear up.
[[nodiscard]] std::vector<uint8_t> resize_crop(const uint8_t* rgb, int64_t H, int64_t W,
                                               int64_t outH, int64_t outW,
                                               Crop crop = Crop::kCenter);

}  // namespace vt
