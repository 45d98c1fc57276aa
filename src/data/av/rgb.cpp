// SPDX-License-Identifier: MIT
// From a decoder's frame to RGB: matrix, range, depth, alpha, fields, aspect, turn.
// Floor 3.
#ifdef VTRAIN_HAVE_LIBAV

#include "data/av/rgb.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/check.h"
#include "data/av/source.h"

extern "C" {
#include <libavutil/pixdesc.h>
}

namespace vt::av {
namespace {

// The deprecated full-range formats under their own names.
AVPixelFormat plain_format(int format, bool* full_range) {
    switch (format) {
        case AV_PIX_FMT_YUVJ420P:
            *full_range = true;
            return AV_PIX_FMT_YUV420P;
        case AV_PIX_FMT_YUVJ411P:
            *full_range = true;
            return AV_PIX_FMT_YUV411P;
        case AV_PIX_FMT_YUVJ422P:
            *full_range = true;
            return AV_PIX_FMT_YUV422P;
        case AV_PIX_FMT_YUVJ444P:
            *full_range = true;
            return AV_PIX_FMT_YUV444P;
        case AV_PIX_FMT_YUVJ440P:
            *full_range = true;
            return AV_PIX_FMT_YUV440P;
        default:
            return static_cast<AVPixelFormat>(format);
    }
}

// libswscale's number of the matrix; -1: it has none.
int matrix_of(const AVFrame& f, AVCodecID codec) {
    switch (f.colorspace) {
        case AVCOL_SPC_BT709:
            return SWS_CS_ITU709;
        case AVCOL_SPC_FCC:
            return SWS_CS_FCC;
        case AVCOL_SPC_SMPTE240M:
            return SWS_CS_SMPTE240M;
        case AVCOL_SPC_BT2020_NCL:
        case AVCOL_SPC_BT2020_CL:
            return SWS_CS_BT2020;
        case AVCOL_SPC_BT470BG:
        case AVCOL_SPC_SMPTE170M:
            return SWS_CS_ITU601;
        case AVCOL_SPC_YCGCO:
        case AVCOL_SPC_ICTCP:
            return -1;
        default:  // not said
            break;
    }
    // formats with one matrix; otherwise what players assume
    const bool always601 =
        codec == AV_CODEC_ID_MJPEG || codec == AV_CODEC_ID_VP8 || codec == AV_CODEC_ID_WEBP;
    return !always601 && (f.height >= 720 || f.width >= 1280) ? SWS_CS_ITU709 : SWS_CS_ITU601;
}

bool full_range(const AVFrame& f, const AVPixFmtDescriptor& d, AVCodecID codec) {
    if (f.color_range != AVCOL_RANGE_UNSPECIFIED) return f.color_range == AVCOL_RANGE_JPEG;
    // gray that says nothing: pictures and lossless formats use every value, video coding does not
    const AVCodecDescriptor* c = avcodec_descriptor_get(codec);
    return d.nb_components <= 2 && c != nullptr && (c->props & AV_CODEC_PROP_INTRA_ONLY) != 0;
}

bool interlaced(const AVFrame& f) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(58, 7, 100)
    return (f.flags & AV_FRAME_FLAG_INTERLACED) != 0;
#else
    return f.interlaced_frame != 0;
#endif
}

// RGBA over white, into RGB in place of the row's beginning.
void over_white(uint8_t* row, int width) {
    const uint8_t* in = row;
    for (int x = 0; x < width; ++x, in += 4, row += 3) {
        const int a = in[3];
        for (int c = 0; c < 3; ++c) {
            row[c] = static_cast<uint8_t>((in[c] * a + 255 * (255 - a) + 127) / 255);
        }
    }
}

}  // namespace

Turn turn_of(const uint8_t* matrix) {
    Turn turn;
    if (matrix == nullptr) return turn;
    // (x', y') = (a x + c y, b x + d y)
    std::array<int32_t, 9> m{};
    std::memcpy(m.data(), matrix, sizeof m);
    const int64_t a = m[0], b = m[1], c = m[3], d = m[4];
    turn.transpose = std::abs(b) + std::abs(c) > std::abs(a) + std::abs(d);
    turn.flip_x = (turn.transpose ? c : a) < 0;
    turn.flip_y = (turn.transpose ? b : d) < 0;
    return turn;
}

const uint8_t* display_matrix(const AVStream* stream) {
    constexpr size_t kBytes = 9 * sizeof(int32_t);
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
    const AVPacketSideData* side =
        av_packet_side_data_get(stream->codecpar->coded_side_data,
                                stream->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    return side != nullptr && side->size >= kBytes ? side->data : nullptr;
#else
    size_t size = 0;
    const uint8_t* data = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
    return size >= kBytes ? data : nullptr;
#endif
}

void ToRgb::size_from(const AVFrame& f, AVRational aspect) {
    const uint8_t* matrix = display_matrix(stream_);
    if (matrix == nullptr) {  // pictures and streams that carry it themselves
        const AVFrameSideData* side = av_frame_get_side_data(&f, AV_FRAME_DATA_DISPLAYMATRIX);
        if (side != nullptr && side->size >= 9 * sizeof(int32_t)) matrix = side->data;
    }
    turn_ = turn_of(matrix);
    w_ = f.width;
    h_ = f.height;
    const double sar = aspect.num > 0 && aspect.den > 0 ? av_q2d(aspect) : 0.0;
    if (sar > 0.25 && sar < 4.0) w_ = std::max(1, static_cast<int>(std::lround(w_ * sar)));
}

const uint8_t* ToRgb::convert(const AVFrame& f, const fs::path& path) {
    bool full = false;
    const AVPixelFormat format = plain_format(f.format, &full);
    const AVPixFmtDescriptor* d = av_pix_fmt_desc_get(format);
    if (d == nullptr) bad_video(path, fmt::format("unknown pixel format {}", f.format));
    full = full || full_range(f, *d, codec_);
    const bool alpha = (d->flags & AV_PIX_FMT_FLAG_ALPHA) != 0;
    const bool yuv = (d->flags & (AV_PIX_FMT_FLAG_RGB | AV_PIX_FMT_FLAG_PAL)) == 0;
    const int matrix = matrix_of(f, codec_);
    if (yuv && matrix < 0) {
        bad_video(path, fmt::format("no conversion from the colour matrix {}",
                                    av_color_space_name(f.colorspace)));
    }
    // Of two fields woven together the upper one: every other line, of chroma too. A comb of two
    // instants would be learned as if it were texture.
    const bool field = interlaced(f) && f.height >= 4;
    const int lines = field ? (f.height + 1) / 2 : f.height;
    std::array<int, 4> steps{};
    for (size_t i = 0; i < steps.size(); ++i) steps.at(i) = f.linesize[i] * (field ? 2 : 1);

    const int flags = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP;
    const AVPixelFormat to = alpha ? AV_PIX_FMT_RGBA : AV_PIX_FMT_RGB24;
    sws_.reset(sws_getCachedContext(sws_.release(), f.width, lines, format, w_, h_, to, flags,
                                    nullptr, nullptr, nullptr));
    if (sws_ == nullptr) {
        bad_video(path, fmt::format("no conversion from pixel format {} to RGB", d->name));
    }
    // fails for RGB sources, where there is no matrix to set
    (void)sws_setColorspaceDetails(sws_.get(), sws_getCoefficients(std::max(0, matrix)),
                                   full ? 1 : 0, sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16,
                                   1 << 16);
    // swscale's vector loops may write whole vectors past a row's end, hence the wide stride
    const int stride = ((alpha ? 4 : 3) * w_ + 63) / 64 * 64;
    padded_.resize(static_cast<size_t>(stride) * static_cast<size_t>(h_) + 64);
    std::array<uint8_t*, 4> dst{padded_.data(), nullptr, nullptr, nullptr};
    const std::array<int, 4> strides{stride, 0, 0, 0};
    if (sws_scale(sws_.get(), static_cast<const uint8_t* const*>(f.data), steps.data(), 0, lines,
                  dst.data(), strides.data()) <= 0) {
        bad_video(path, "conversion to RGB failed");
    }
    rgb_.resize(static_cast<size_t>(w_) * static_cast<size_t>(h_) * 3);
    for (int64_t y = 0; y < h_; ++y) {
        uint8_t* src = padded_.data() + y * stride;
        if (alpha) over_white(src, w_);
        if (!turn_.any()) {
            std::memcpy(rgb_.data() + y * w_ * 3, src, static_cast<size_t>(w_) * 3);
            continue;
        }
        for (int64_t x = 0; x < w_; ++x) {
            int64_t u = turn_.transpose ? y : x, v = turn_.transpose ? x : y;
            if (turn_.flip_x) u = width() - 1 - u;
            if (turn_.flip_y) v = height() - 1 - v;
            std::memcpy(rgb_.data() + (v * width() + u) * 3, src + x * 3, 3);
        }
    }
    return rgb_.data();
}

}  // namespace vt::av

#endif
