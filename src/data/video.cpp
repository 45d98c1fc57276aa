// SPDX-License-Identifier: MIT
// What video reading and writing say in a build without libav (with it: data/av/).
// Floor 3.
#include "data/video.h"

#ifndef VTRAIN_HAVE_LIBAV

#include "core/check.h"

namespace vt {
namespace {
[[noreturn]] void no_libav(const char* what, const fs::path& path) {
    raise(Fault::kUser,
          fmt::format("cannot {} {}: this vtrain was built without libav", what, path.string()),
          "install the libav development packages and configure with -DVTRAIN_LIBAV=ON");
}
}  // namespace

bool have_video() {
    return false;
}
VideoInfo read_video(const fs::path& path, const VideoOptions& /*options*/,
                     const std::function<bool(const VideoFrame&)>& /*frame*/) {
    no_libav("read", path);
}
bool looks_like_video(const fs::path& /*path*/) {
    return false;
}
void write_mp4(const fs::path& path, const Clip& /*clip*/) {
    no_libav("write", path);
}
void write_gif(const fs::path& path, const Clip& /*clip*/) {
    no_libav("write", path);
}
}  // namespace vt

#endif
