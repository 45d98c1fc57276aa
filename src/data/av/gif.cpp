// SPDX-License-Identifier: MIT
// write_gif with libav's encoder and a palette of our own.
// Floor 3.
#ifdef VTRAIN_HAVE_LIBAV

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "data/av/write.h"
#include "data/palette.h"
#include "data/video.h"

namespace vt {
namespace {

using namespace av;

constexpr int kColours = 255;  // and one for "as in the frame before"

void write_frames(AVFormatContext* out, AVCodecContext* c, const AVStream* stream, const Clip& clip,
                  const Paletted& drawn, double fps, const fs::path& path) {
    const FramePtr frame(av_frame_alloc());
    if (frame == nullptr) throw std::bad_alloc();
    for (int64_t t = 0; t < clip.T; ++t) {
        av_frame_unref(frame.get());
        frame->format = c->pix_fmt;
        frame->width = c->width;
        frame->height = c->height;
        const int code = av_frame_get_buffer(frame.get(), 0);
        if (code < 0) cannot_write(path, reason(code));
        for (int64_t y = 0; y < clip.H; ++y) {
            std::memcpy(frame->data[0] + y * frame->linesize[0],
                        drawn.index.data() + (t * clip.H + y) * clip.W,
                        static_cast<size_t>(clip.W));
        }
        std::array<uint32_t, 256> argb{};  // what is left stays transparent
        for (size_t i = 0; i < drawn.palette.size(); ++i) {
            const auto& p = drawn.palette[i];
            argb.at(i) = 0xff000000U | static_cast<uint32_t>(p[0]) << 16 |
                         static_cast<uint32_t>(p[1]) << 8 | p[2];
        }
        std::memcpy(frame->data[1], argb.data(), sizeof argb);
        frame->pts = std::llround(static_cast<double>(t) * 100 / fps);
        encode(out, c, stream, frame.get(), path);
    }
    encode(out, c, stream, nullptr, path);
}

}  // namespace

void write_gif(const fs::path& path, const Clip& clip) {
    write_aside(path, clip, [&](const fs::path& temp) {
        // viewers slow down what is faster than 50 frames a second
        const double fps = std::clamp(clip.fps > 0 ? clip.fps : 24.0, 0.1, 50.0);
        const AVCodec* encoder = avcodec_find_encoder(AV_CODEC_ID_GIF);
        if (encoder == nullptr) cannot_write(path, "this libav has no GIF encoder");
        const CodecPtr c(avcodec_alloc_context3(encoder));
        if (c == nullptr) throw std::bad_alloc();
        c->width = narrow<int>(clip.W);
        c->height = narrow<int>(clip.H);
        c->pix_fmt = AV_PIX_FMT_PAL8;
        c->time_base = {1, 100};
        c->framerate = av_d2q(fps, 1'001'000);
        c->thread_count = 1;
        const int code = avcodec_open2(c.get(), encoder, nullptr);
        if (code < 0) cannot_write(path, reason(code));
        const Paletted drawn = make_paletted(clip, kColours);
        AVDictionary* options = nullptr;
        av_dict_set(&options, "loop", "0", 0);
        const auto end = std::llround(static_cast<double>(clip.T) * 100 / fps),
                   last = std::llround(static_cast<double>(clip.T - 1) * 100 / fps);
        av_dict_set_int(&options, "final_delay", end - last, 0);
        write_container(temp, path, "gif", options, c.get(),
                        [&](AVFormatContext* out, const AVStream* stream) {
                            write_frames(out, c.get(), stream, clip, drawn, fps, path);
                        });
    });
}

}  // namespace vt

#endif
