// SPDX-License-Identifier: MIT
// read_video with libav.
// Floor 3.
#ifdef VTRAIN_HAVE_LIBAV

#include <algorithm>
#include <cmath>
#include <cstring>
#include <system_error>
#include <utility>
#include <vector>

#include "core/check.h"
#include "data/av/av.h"
#include "data/video.h"

namespace vt {
namespace {

using namespace av;

[[noreturn]] void bad_video(const fs::path& path, const std::string& why) {
    raise(Fault::kData, fmt::format("cannot read video {}: {}", path.string(), why));
}

double to_double(AVRational q) {
    return q.num > 0 && q.den > 0 ? av_q2d(q) : 0.0;
}

// How the stored picture is to be turned for display: optional transpose, then mirrors.
struct Turn {
    bool transpose = false, flip_x = false, flip_y = false;
    [[nodiscard]] bool any() const { return transpose || flip_x || flip_y; }
};

Turn turn_of(const AVStream* stream) {
    const uint8_t* data = nullptr;
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(60, 15, 100)
    const AVPacketSideData* side =
        av_packet_side_data_get(stream->codecpar->coded_side_data,
                                stream->codecpar->nb_coded_side_data, AV_PKT_DATA_DISPLAYMATRIX);
    if (side != nullptr && side->size >= 9 * sizeof(int32_t)) data = side->data;
#else
    size_t size = 0;
    data = av_stream_get_side_data(stream, AV_PKT_DATA_DISPLAYMATRIX, &size);
    if (size < 9 * sizeof(int32_t)) data = nullptr;
#endif
    Turn turn;
    if (data == nullptr) return turn;
    // (x', y') = (a x + c y, b x + d y); only quarter turns and mirrors are meant for display
    std::array<int32_t, 9> m{};
    std::memcpy(m.data(), data, sizeof m);
    const int64_t a = m[0], b = m[1], c = m[3], d = m[4];
    turn.transpose = std::abs(b) + std::abs(c) > std::abs(a) + std::abs(d);
    turn.flip_x = (turn.transpose ? c : a) < 0;
    turn.flip_y = (turn.transpose ? b : d) < 0;
    return turn;
}

// The deprecated full-range formats under their own names.
AVPixelFormat plain_format(int format, bool* full_range) {
    switch (format) {
        case AV_PIX_FMT_YUVJ420P:
            *full_range = true;
            return AV_PIX_FMT_YUV420P;
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

int matrix_of(const AVFrame& f) {
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
        default:  // not said: what players assume
            return f.height >= 720 || f.width >= 1280 ? SWS_CS_ITU709 : SWS_CS_ITU601;
    }
}

// Turns decoded frames into displayed RGB of one size (that of the first frame).
class ToRgb {
  public:
    explicit ToRgb(Turn turn) : turn_(turn) {}

    // Sets the size from the first frame: square pixels, then turned.
    void size_from(const AVFrame& f, AVRational aspect) {
        w_ = f.width;
        h_ = f.height;
        const double sar = to_double(aspect);
        if (sar > 0.25 && sar < 4.0) {
            w_ = std::max(1, static_cast<int>(std::lround(w_ * sar)));
        }
    }
    [[nodiscard]] bool sized() const { return w_ > 0; }
    [[nodiscard]] int64_t width() const { return turn_.transpose ? h_ : w_; }
    [[nodiscard]] int64_t height() const { return turn_.transpose ? w_ : h_; }

    const uint8_t* convert(const AVFrame& f, const fs::path& path) {
        bool full = f.color_range == AVCOL_RANGE_JPEG;
        const AVPixelFormat format = plain_format(f.format, &full);
        const int flags = SWS_BICUBIC | SWS_ACCURATE_RND | SWS_FULL_CHR_H_INT | SWS_FULL_CHR_H_INP;
        sws_.reset(sws_getCachedContext(sws_.release(), f.width, f.height, format, w_, h_,
                                        AV_PIX_FMT_RGB24, flags, nullptr, nullptr, nullptr));
        if (sws_ == nullptr) {
            bad_video(path, fmt::format("no conversion from pixel format {} to RGB", f.format));
        }
        // fails for RGB sources, where there is no matrix to set
        (void)sws_setColorspaceDetails(sws_.get(), sws_getCoefficients(matrix_of(f)), full ? 1 : 0,
                                       sws_getCoefficients(SWS_CS_DEFAULT), 1, 0, 1 << 16, 1 << 16);
        // swscale's vector loops may write whole vectors past a row's end, hence the wide stride
        const int stride = (3 * w_ + 63) / 64 * 64;
        padded_.resize(static_cast<size_t>(stride) * static_cast<size_t>(h_) + 64);
        std::array<uint8_t*, 4> dst{padded_.data(), nullptr, nullptr, nullptr};
        const std::array<int, 4> strides{stride, 0, 0, 0};
        if (sws_scale(sws_.get(), static_cast<const uint8_t* const*>(f.data), f.linesize, 0,
                      f.height, dst.data(), strides.data()) <= 0) {
            bad_video(path, "conversion to RGB failed");
        }
        rgb_.resize(static_cast<size_t>(w_) * static_cast<size_t>(h_) * 3);
        for (int64_t y = 0; y < h_; ++y) {
            const uint8_t* src = padded_.data() + y * stride;
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

  private:
    Turn turn_;
    int w_ = 0, h_ = 0;  // as stored, square pixels
    SwsPtr sws_;
    std::vector<uint8_t> padded_, rgb_;
};

struct Source {
    InputPtr format;
    CodecPtr codec;
    AVStream* stream = nullptr;
};

Source open_source(const fs::path& path) {
    std::error_code ec;
    const auto size = fs::file_size(path, ec);
    if (ec) bad_video(path, ec.message());
    if (size == 0) bad_video(path, "the file is empty (0 bytes)");

    Source s;
    AVDictionary* options = nullptr;
    // a file is a file: never a play list that fetches others over the network
    av_dict_set(&options, "protocol_whitelist", "file", 0);
    AVFormatContext* raw = nullptr;
    int code = avformat_open_input(&raw, ("file:" + path.string()).c_str(), nullptr, &options);
    av_dict_free(&options);
    if (code < 0) bad_video(path, reason(code));
    s.format.reset(raw);
    code = avformat_find_stream_info(raw, nullptr);
    if (code < 0) bad_video(path, reason(code));
    const AVCodec* decoder = nullptr;
    const int index = av_find_best_stream(raw, AVMEDIA_TYPE_VIDEO, -1, -1, &decoder, 0);
    if (index == AVERROR_DECODER_NOT_FOUND) bad_video(path, "no decoder for its video codec");
    if (index < 0) bad_video(path, "it has no video stream");
    s.stream = raw->streams[index];
    if ((s.stream->disposition & AV_DISPOSITION_ATTACHED_PIC) != 0) {
        bad_video(path, "it has no video stream (only a cover picture)");
    }
    for (unsigned i = 0; i < raw->nb_streams; ++i) {
        if (static_cast<int>(i) != index) raw->streams[i]->discard = AVDISCARD_ALL;
    }
    s.codec.reset(avcodec_alloc_context3(decoder));
    if (s.codec == nullptr) throw std::bad_alloc();
    code = avcodec_parameters_to_context(s.codec.get(), s.stream->codecpar);
    if (code < 0) bad_video(path, reason(code));
    s.codec->thread_count = 0;
    s.codec->max_pixels = int64_t{1} << 28;  // a damaged header must not ask for all memory
    s.codec->pkt_timebase = s.stream->time_base;
    code = avcodec_open2(s.codec.get(), decoder, nullptr);
    if (code < 0) bad_video(path, reason(code));
    return s;
}

// Gives frames their place on the output's clock: each decoded frame goes to the nearest tick; of
// several at one tick the nearest counts; gaps are filled with the frame before them.
class Resampler {
  public:
    Resampler(double fps, double own_fps, ToRgb& rgb, const fs::path& path,
              const std::function<bool(const uint8_t*, int64_t, int64_t)>& sink)
        : fps_(fps),
          step_(own_fps > 0 ? 1.0 / own_fps : 1.0 / 25),
          rgb_(rgb),
          path_(path),
          sink_(sink),
          held_(av_frame_alloc()) {
        if (held_ == nullptr) throw std::bad_alloc();
    }

    // False when the sink wants no more.
    bool push(AVFrame* f, double seconds) {
        ++decoded;
        if (fps_ <= 0) return emit(*f, 1);
        const double now =
            has_held_ ? std::max(latest_, std::isnan(seconds) ? latest_ + step_ : seconds - first_)
                      : 0.0;
        if (!has_held_) first_ = std::isnan(seconds) ? 0.0 : seconds;
        latest_ = now;
        // a hair down, so that exact halves go to the earlier tick whatever the rounding of time
        const int64_t tick = std::llround(now * fps_ - 1e-3);
        const auto off = [&](double t) { return std::fabs(t * fps_ - static_cast<double>(tick)); };
        if (has_held_ && tick <= tick_ && off(held_at_) <= off(now)) return true;
        if (has_held_ && tick > tick_) {
            if (!emit(*held_, tick - tick_)) return false;
        }
        av_frame_unref(held_.get());
        av_frame_move_ref(held_.get(), f);
        tick_ = std::max(tick_, tick);
        held_at_ = now;
        has_held_ = true;
        return true;
    }
    void finish() {
        if (!has_held_ || fps_ <= 0) return;
        const int64_t end = std::llround((latest_ + step_) * fps_ - 1e-3);
        // a last frame in the second half of its tick stands for no tick of its own
        const int64_t times = std::max(int64_t{tick_ == 0 ? 1 : 0}, end - tick_);
        if (times > 0) (void)emit(*held_, times);
    }

    int64_t decoded = 0;

  private:
    bool emit(const AVFrame& f, int64_t times) {
        const uint8_t* pixels = rgb_.convert(f, path_);
        // a broken time stamp must not fill the disk with one picture
        times = std::min(times, std::max(int64_t{1}, static_cast<int64_t>(fps_ * 10)));
        for (int64_t i = 0; i < times; ++i) {
            if (!sink_(pixels, rgb_.height(), rgb_.width())) return false;
        }
        return true;
    }

    double fps_, step_;
    ToRgb& rgb_;
    const fs::path& path_;
    const std::function<bool(const uint8_t*, int64_t, int64_t)>& sink_;
    FramePtr held_;
    bool has_held_ = false;
    double first_ = 0, latest_ = 0, held_at_ = 0;  // seconds
    int64_t tick_ = 0;
};

}  // namespace

bool have_video() {
    return true;
}

VideoInfo read_video(const fs::path& path, double fps,
                     const std::function<bool(const uint8_t*, int64_t, int64_t)>& frame) {
    silence();
    Source s = open_source(path);
    VideoInfo info;
    info.fps = to_double(av_guess_frame_rate(s.format.get(), s.stream, nullptr));
    info.codec = avcodec_get_name(s.codec->codec_id);
    if (s.stream->duration != AV_NOPTS_VALUE) {
        info.seconds = static_cast<double>(s.stream->duration) * av_q2d(s.stream->time_base);
    } else if (s.format->duration != AV_NOPTS_VALUE) {
        info.seconds = static_cast<double>(s.format->duration) / AV_TIME_BASE;
    }

    ToRgb rgb(turn_of(s.stream));
    Resampler out(fps, info.fps, rgb, path, frame);
    const PacketPtr packet(av_packet_alloc());
    const FramePtr picture(av_frame_alloc());
    if (packet == nullptr || picture == nullptr) throw std::bad_alloc();
    int trouble = 0;  // the first error met
    // Takes what the decoder has ready; false when the caller wants no more.
    const auto drain = [&]() -> bool {
        for (;;) {
            const int code = avcodec_receive_frame(s.codec.get(), picture.get());
            if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return true;
            if (code < 0) {
                if (trouble == 0) trouble = code;
                return true;
            }
            if (!rgb.sized()) {
                rgb.size_from(*picture, av_guess_sample_aspect_ratio(s.format.get(), s.stream,
                                                                     picture.get()));
            }
            const int64_t pts = picture->best_effort_timestamp;
            const double seconds = pts == AV_NOPTS_VALUE
                                       ? std::nan("")
                                       : static_cast<double>(pts) * av_q2d(s.stream->time_base);
            if (!out.push(picture.get(), seconds)) return false;
            av_frame_unref(picture.get());
        }
    };
    bool more = true;
    while (more) {
        const int code = av_read_frame(s.format.get(), packet.get());
        if (code < 0) {
            if (code != AVERROR_EOF && trouble == 0) trouble = code;
            break;
        }
        if (packet->stream_index == s.stream->index) {
            const int sent = avcodec_send_packet(s.codec.get(), packet.get());
            if (sent < 0 && trouble == 0) trouble = sent;
            more = drain();
        }
        av_packet_unref(packet.get());
    }
    if (more) {
        (void)avcodec_send_packet(s.codec.get(), nullptr);
        if (drain()) out.finish();
    }
    if (out.decoded == 0) {
        bad_video(path, trouble != 0
                            ? fmt::format("no frame could be decoded ({})", reason(trouble))
                            : "no frame could be decoded (truncated?)");
    }
    info.width = rgb.width();
    info.height = rgb.height();
    return info;
}

}  // namespace vt

#endif
