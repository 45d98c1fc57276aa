// SPDX-License-Identifier: MIT
// read_video with libav: decoded frames, put on a clock of constant rate.
// Floor 3.
#ifdef VTRAIN_HAVE_LIBAV

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "data/av/rgb.h"
#include "data/av/source.h"
#include "data/video.h"

namespace vt {
namespace {

using namespace av;

double to_double(AVRational q) {
    return q.num > 0 && q.den > 0 ? av_q2d(q) : 0.0;
}

double length_of(const AVFrame& f, AVRational base) {
#if LIBAVUTIL_VERSION_INT >= AV_VERSION_INT(57, 30, 100)
    const int64_t ticks = f.duration;
#else
    const int64_t ticks = f.pkt_duration;
#endif
    return ticks > 0 ? static_cast<double>(ticks) * av_q2d(base) : 0.0;
}

// Gives frames their place on the output's clock: each decoded frame goes to the nearest tick; of
// several at one tick the nearest counts; gaps are filled with the frame before them. Where the
// clock jumps, a new stretch begins with its own first tick.
class Resampler {
  public:
    Resampler(double fps, double own_fps, ToRgb& rgb, const fs::path& path, bool still,
              const std::function<bool(const VideoFrame&)>& sink)
        : fps_(fps),
          step_(own_fps > 0 ? 1.0 / own_fps : 1.0 / 25),
          rgb_(rgb),
          path_(path),
          still_(still),
          sink_(sink),
          held_(av_frame_alloc()) {
        if (held_ == nullptr) throw std::bad_alloc();
    }

    // `seconds` may be NaN: unknown; `length` 0: unknown. False when the sink wants no more.
    bool push(AVFrame* f, double seconds, double length) {
        if (fps_ <= 0 || still_) return emit(*f, 1);
        if (has_held_) {
            const double step = seconds - first_ - latest_;
            if ((step < -kBackJump || step > kGap) && !cut()) return false;
        }
        if (!has_held_) first_ = std::isnan(seconds) ? 0.0 : seconds;
        const double now =
            has_held_ ? std::max(latest_, std::isnan(seconds) ? latest_ + last_ : seconds - first_)
                      : 0.0;
        latest_ = now;
        last_ = length > 0 && length <= kGap ? length : step_;
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
    // Ends a stretch: what comes next does not follow on. False when the sink wants no more.
    bool cut() {
        const bool more = finish();
        has_held_ = joins_ = false;
        tick_ = 0;
        return more;
    }
    bool finish() {
        if (!has_held_ || fps_ <= 0) return true;
        const int64_t end = std::llround((latest_ + last_) * fps_ - 1e-3);
        // a last frame in the second half of its tick stands for no tick of its own
        const int64_t times = std::max(int64_t{tick_ == 0 ? 1 : 0}, end - tick_);
        return times <= 0 || emit(*held_, times);
    }

  private:
    static constexpr double kGap = 10, kBackJump = 1;  // seconds

    bool emit(const AVFrame& f, int64_t times) {
        const VideoFrame first{.rgb = rgb_.convert(f, path_),
                               .H = rgb_.height(),
                               .W = rgb_.width(),
                               .joins = joins_,
                               .still = still_};
        for (int64_t i = 0; i < times; ++i) {
            VideoFrame frame = first;
            frame.joins = std::exchange(joins_, true);
            if (!sink_(frame)) return false;
        }
        return true;
    }

    double fps_, step_;
    ToRgb& rgb_;
    const fs::path& path_;
    bool still_;
    const std::function<bool(const VideoFrame&)>& sink_;
    FramePtr held_;
    bool has_held_ = false, joins_ = false;
    double first_ = 0, latest_ = 0, held_at_ = 0, last_ = 0;  // seconds; last_: length of a frame
    int64_t tick_ = 0;
};

bool animated_webp(const FileIo& io) {
    const std::string head = io.peek(0, 21);
    return head.size() == 21 && head.compare(0, 4, "RIFF") == 0 &&
           head.compare(8, 8, "WEBPVP8X") == 0 && (head[20] & 2) != 0;
}

// One pass over the file: packets in, frames out, errors counted.
class Decode {
  public:
    Decode(Source& s, ToRgb& rgb, Resampler& out, VideoInfo& info)
        : s_(s),
          rgb_(rgb),
          out_(out),
          info_(info),
          packet_(av_packet_alloc()),
          picture_(av_frame_alloc()) {
        if (packet_ == nullptr || picture_ == nullptr) throw std::bad_alloc();
    }

    void run() {
        for (;;) {
            const int code = av_read_frame(s_.format.get(), packet_.get());
            if (code == AVERROR(EAGAIN)) continue;
            if (code < 0) {
                if (code != AVERROR_EOF) note(code);
                break;
            }
            if (packet_->stream_index == s_.stream->index) {
                const int sent = avcodec_send_packet(s_.codec.get(), packet_.get());
                if (sent < 0 && sent != AVERROR_EOF) note(sent);
                if (!drain()) return;
            }
            av_packet_unref(packet_.get());
        }
        (void)avcodec_send_packet(s_.codec.get(), nullptr);
        if (drain()) (void)out_.finish();
    }

  private:
    void note(int code) {
        if (info_.trouble.empty()) info_.trouble = reason(code);
    }
    // Takes what the decoder has ready; false when the caller wants no more.
    bool drain() {
        for (;;) {
            const int code = avcodec_receive_frame(s_.codec.get(), picture_.get());
            if (code == AVERROR(EAGAIN) || code == AVERROR_EOF) return true;
            if (code < 0) {
                note(code);
                return true;
            }
            const bool more = take();
            av_frame_unref(picture_.get());
            if (!more) return false;
        }
    }
    bool take() {
        AVFrame& f = *picture_;
        if ((f.flags & AV_FRAME_FLAG_CORRUPT) != 0 || f.decode_error_flags != 0) {
            if (info_.trouble.empty()) info_.trouble = "damaged frames";
            ++info_.damaged;
            return out_.cut();
        }
        ++info_.decoded;
        if (!rgb_.sized()) {
            rgb_.size_from(f, av_guess_sample_aspect_ratio(s_.format.get(), s_.stream, &f));
        }
        const AVRational base = s_.stream->time_base;
        const int64_t pts = f.best_effort_timestamp;
        const double seconds =
            pts == AV_NOPTS_VALUE ? std::nan("") : static_cast<double>(pts) * av_q2d(base);
        return out_.push(&f, seconds, length_of(f, base));
    }

    Source& s_;
    ToRgb& rgb_;
    Resampler& out_;
    VideoInfo& info_;
    PacketPtr packet_;
    FramePtr picture_;
};

}  // namespace

bool have_video() {
    return true;
}

VideoInfo read_video(const fs::path& path, const VideoOptions& options,
                     const std::function<bool(const VideoFrame&)>& frame) {
    VT_CHECK(options.fps >= 0 && options.threads >= 0, "{} fps, {} threads", options.fps,
             options.threads);
    Source s = open_source(path, options.threads);
    VideoInfo info;
    info.fps = to_double(av_guess_frame_rate(s.format.get(), s.stream, nullptr));
    info.codec = avcodec_get_name(s.codec->codec_id);
    if (s.stream->duration != AV_NOPTS_VALUE) {
        info.seconds = static_cast<double>(s.stream->duration) * av_q2d(s.stream->time_base);
    } else if (s.format->duration != AV_NOPTS_VALUE) {
        info.seconds = static_cast<double>(s.format->duration) / AV_TIME_BASE;
    }
    ToRgb rgb(s.stream, s.codec->codec_id);
    Resampler out(options.fps, info.fps, rgb, path, s.still, frame);
    Decode(s, rgb, out, info).run();
    if (info.decoded == 0) {
        if (animated_webp(*s.io)) bad_video(path, "this libav cannot decode animated WebP");
        bad_video(path, info.trouble.empty()
                            ? "no frame could be decoded (truncated?)"
                            : fmt::format("no frame could be decoded ({})", info.trouble));
    }
    info.width = rgb.width();
    info.height = rgb.height();
    return info;
}

}  // namespace vt

#endif
