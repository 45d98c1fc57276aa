// SPDX-License-Identifier: MIT
// Cutting one file into clips.
// Floor 3.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/file.h"
#include "data/shapes.h"
#include "data/video.h"

namespace vt {

struct CutSpec {
    std::vector<ClipShape> shapes;
    double fps = 16;        // of the clips; 0: each file's own
    int64_t stride = 0;     // frames from one clip's start to the next; 0: a clip's length, for
                            // stills out of videos a second
    int64_t max_clips = 0;  // per file; 0: all
    Crop crop = Crop::kCenter;
    double max_crop = 1;  // share of the picture that may be lost
    bool enlarge = true;  // may pictures smaller than their shape be used?
    int threads = 0;      // of the decoder; 0: all cores
};

struct CutReport {
    int64_t clips = 0, frames = 0;  // frames of the longest unbroken stretch, at the output's rate
    ClipShape shape;                // of every clip
    double crop = 0;                // share of the picture lost
    std::string refused;            // why there are no clips; empty: there are
    std::string kind;               // the same without numbers and names, to count by
    std::string trouble;            // what went wrong although there are clips
};

/// Hands the clips of one file to `to`, numbered from 0. A picture goes to the shape of one frame
/// that suits it (choose_shape), a video to the longest shape that it fills at `fps`, with every
/// other shape's length given up: clips of one file have one shape. A video that is too short for
/// all but the shapes of one frame gives its first frame. No clip reaches over a break in the
/// stream. Memory: one decoded picture, one clip. What cannot be used is `refused`; errors of the
/// system and of `to` are thrown.
[[nodiscard]] CutReport cut_video(const fs::path& path, const CutSpec& spec,
                                  const std::function<void(const Clip&, int64_t)>& to);

}  // namespace vt
