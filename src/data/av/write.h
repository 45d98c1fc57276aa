// SPDX-License-Identifier: MIT
// What the writers of video files share.
// Floor 3.
#pragma once

#include <functional>

#include "core/file.h"
#include "data/av/av.h"
#include "data/codec.h"

namespace vt::av {

[[noreturn]] void cannot_write(const fs::path& path, const std::string& why);

/// Sends one frame (or null to end) and writes the packets that come out. Errors name `path`.
void encode(AVFormatContext* out, AVCodecContext* c, const AVStream* stream, const AVFrame* frame,
            const fs::path& path);

/// Opens `temp` in the container `kind` with one stream as `c` says, lets `frames` write into it
/// and ends the file.
void write_container(const fs::path& temp, const fs::path& path, const char* kind,
                     AVDictionary* options, AVCodecContext* c,
                     const std::function<void(AVFormatContext*, const AVStream*)>& frames);

/// Calls `write` with a name beside `path`, renamed into place afterwards; nothing is left behind
/// by an error. kBug unless the clip is one.
void write_aside(const fs::path& path, const Clip& clip,
                 const std::function<void(const fs::path& temp)>& write);

}  // namespace vt::av
