// SPDX-License-Identifier: MIT
// Writing video files with libav; write_mp4.
// Floor 3.
#ifdef VTRAIN_HAVE_LIBAV

#include "data/av/write.h"

#include <algorithm>
#include <cstring>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include "core/check.h"
#include "data/video.h"

namespace vt::av {

void cannot_write(const fs::path& path, const std::string& why) {
    raise(Fault::kSystem, fmt::format("cannot write video {}: {}", path.string(), why));
}

void encode(AVFormatContext* out, AVCodecContext* c, const AVStream* stream, const AVFrame* frame,
            const fs::path& path) {
    int code = avcodec_send_frame(c, frame);
    if (code < 0) cannot_write(path, reason(code));
    const PacketPtr packet(av_packet_alloc());
    if (packet == nullptr) throw std::bad_alloc();
    while ((code = avcodec_receive_packet(c, packet.get())) >= 0) {
        if (packet->duration == 0) packet->duration = 1;
        av_packet_rescale_ts(packet.get(), c->time_base, stream->time_base);
        packet->stream_index = stream->index;
        code = av_interleaved_write_frame(out, packet.get());
        if (code < 0) cannot_write(path, reason(code));
    }
    if (code != AVERROR(EAGAIN) && code != AVERROR_EOF) cannot_write(path, reason(code));
}

void write_container(const fs::path& temp, const fs::path& path, const char* kind,
                     AVDictionary* options, AVCodecContext* c,
                     const std::function<void(AVFormatContext*, const AVStream*)>& frames) {
    const std::unique_ptr<AVDictionary*, void (*)(AVDictionary**)> freed(&options, av_dict_free);
    AVFormatContext* raw = nullptr;
    int code = avformat_alloc_output_context2(&raw, nullptr, kind, temp.c_str());
    if (code < 0) cannot_write(path, reason(code));
    const OutputPtr out(raw);
    out->flags |= AVFMT_FLAG_BITEXACT;  // no time stamps: equal clips, equal files
    AVStream* stream = avformat_new_stream(out.get(), nullptr);
    if (stream == nullptr) throw std::bad_alloc();
    stream->time_base = c->time_base;
    stream->avg_frame_rate = c->framerate;
    code = avcodec_parameters_from_context(stream->codecpar, c);
    if (code < 0) cannot_write(path, reason(code));
    code = avio_open(&out->pb, ("file:" + temp.string()).c_str(), AVIO_FLAG_WRITE);
    if (code < 0) cannot_write(path, reason(code));
    code = avformat_write_header(out.get(), &options);
    if (code < 0) cannot_write(path, reason(code));
    frames(out.get(), stream);
    code = av_write_trailer(out.get());
    if (code < 0) cannot_write(path, reason(code));
    code = avio_closep(&out->pb);
    if (code < 0) cannot_write(path, reason(code));
}

void write_aside(const fs::path& path, const Clip& clip,
                 const std::function<void(const fs::path& temp)>& write) {
    silence();
    VT_CHECK(clip.T >= 1 && clip.H >= 1 && clip.W >= 1 &&
                 static_cast<int64_t>(clip.rgb.size()) == clip.T * clip.H * clip.W * 3,
             "clip of {}x{}x{} with {} bytes", clip.T, clip.H, clip.W, clip.rgb.size());
    fs::path temp = path;
    temp += fmt::format(".tmp{}", getpid());
    try {
        write(temp);
        std::error_code ec;
        fs::rename(temp, path, ec);
        if (ec) cannot_write(path, ec.message());
    } catch (...) {
        std::error_code ec;
        fs::remove(temp, ec);
        throw;
    }
}

}  // namespace vt::av

namespace vt {
namespace {

using namespace av;

// The first encoder that opens, H.264 before MPEG-4.
CodecPtr open_encoder(const fs::path& path, int width, int height, AVRational rate,
                      bool global_header) {
    std::string tried;
    for (const char* name : {"libx264", "libopenh264", "mpeg4"}) {
        const AVCodec* encoder = avcodec_find_encoder_by_name(name);
        if (encoder == nullptr) continue;
        CodecPtr c(avcodec_alloc_context3(encoder));
        if (c == nullptr) throw std::bad_alloc();
        c->width = width;
        c->height = height;
        c->pix_fmt = AV_PIX_FMT_YUV420P;
        c->time_base = av_inv_q(rate);
        c->framerate = rate;
        c->sample_aspect_ratio = {1, 1};
        c->color_range = AVCOL_RANGE_MPEG;
        c->colorspace = AVCOL_SPC_BT709;
        c->color_primaries = AVCOL_PRI_BT709;
        c->color_trc = AVCOL_TRC_BT709;
        c->thread_count = 1;
        if (global_header) c->flags |= AV_CODEC_FLAG_GLOBAL_HEADER;
        if (encoder->id == AV_CODEC_ID_MPEG4) {
            c->flags |= AV_CODEC_FLAG_QSCALE;
            c->global_quality = 2 * FF_QP2LAMBDA;
        } else {
            c->bit_rate = 0;
            (void)av_opt_set(c->priv_data, "crf", "14", 0);
            (void)av_opt_set(c->priv_data, "preset", "medium", 0);
            if (encoder->priv_class != nullptr && std::strcmp(name, "libopenh264") == 0) {
                c->bit_rate = std::max<int64_t>(1'000'000, int64_t{8} * width * height);
            }
        }
        const int code = avcodec_open2(c.get(), encoder, nullptr);
        if (code >= 0) return c;
        tried += fmt::format(" {} ({})", name, reason(code));
    }
    cannot_write(path, tried.empty() ? "this libav has no H.264 or MPEG-4 encoder"
                                     : "no encoder opened:" + tried);
}

void write_frames(AVFormatContext* out, AVCodecContext* c, const AVStream* stream, const Clip& clip,
                  const fs::path& path) {
    const int width = narrow<int>(clip.W), height = narrow<int>(clip.H);
    // chroma of odd sizes needs a neighbour: the last column and row are repeated
    const int64_t stride = round_up(int64_t{3} * c->width, 64);
    std::vector<uint8_t> even(static_cast<size_t>(stride * c->height + 64));
    const SwsPtr sws(sws_getContext(
        c->width, c->height, AV_PIX_FMT_RGB24, c->width, c->height, AV_PIX_FMT_YUV420P,
        SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INP, nullptr, nullptr, nullptr));
    if (sws == nullptr) cannot_write(path, "no conversion from RGB");
    (void)sws_setColorspaceDetails(sws.get(), sws_getCoefficients(SWS_CS_DEFAULT), 1,
                                   sws_getCoefficients(SWS_CS_ITU709), 0, 0, 1 << 16, 1 << 16);
    const FramePtr frame(av_frame_alloc());
    if (frame == nullptr) throw std::bad_alloc();
    frame->format = c->pix_fmt;
    frame->width = c->width;
    frame->height = c->height;
    frame->color_range = c->color_range;
    frame->colorspace = c->colorspace;
    int code = av_frame_get_buffer(frame.get(), 0);
    if (code < 0) cannot_write(path, reason(code));
    for (int64_t t = 0; t < clip.T; ++t) {
        for (int64_t y = 0; y < c->height; ++y) {
            uint8_t* row = even.data() + y * stride;
            std::memcpy(
                row, clip.rgb.data() + (t * height + std::min<int64_t>(y, height - 1)) * width * 3,
                static_cast<size_t>(width) * 3);
            if (c->width > width) std::memcpy(row + width * 3, row + (width - 1) * 3, 3);
        }
        code = av_frame_make_writable(frame.get());
        if (code < 0) cannot_write(path, reason(code));
        const std::array<const uint8_t*, 4> src{even.data(), nullptr, nullptr, nullptr};
        const std::array<int, 4> strides{narrow<int>(stride), 0, 0, 0};
        (void)sws_scale(sws.get(), src.data(), strides.data(), 0, c->height, frame->data,
                        frame->linesize);
        frame->pts = t;
        encode(out, c, stream, frame.get(), path);
    }
    encode(out, c, stream, nullptr, path);
}

}  // namespace

void write_mp4(const fs::path& path, const Clip& clip) {
    write_aside(path, clip, [&](const fs::path& temp) {
        const AVRational rate = av_d2q(clip.fps > 0 ? clip.fps : 24.0, 1'001'000);
        const AVOutputFormat* mp4 = av_guess_format("mp4", nullptr, nullptr);
        const CodecPtr c =
            open_encoder(path, narrow<int>(round_up(clip.W, 2)), narrow<int>(round_up(clip.H, 2)),
                         rate, mp4 != nullptr && (mp4->flags & AVFMT_GLOBALHEADER) != 0);
        AVDictionary* options = nullptr;
        av_dict_set(&options, "movflags", "+faststart", 0);
        write_container(temp, path, "mp4", options, c.get(),
                        [&](AVFormatContext* out, const AVStream* stream) {
                            write_frames(out, c.get(), stream, clip, path);
                        });
    });
}

}  // namespace vt

#endif
