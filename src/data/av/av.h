// SPDX-License-Identifier: MIT
// libav's objects as owners. The libav headers stay in this folder.
// Floor 3.
#pragma once

#include <array>
#include <memory>
#include <string>

extern "C" {
#include <libavcodec/avcodec.h>
#include <libavformat/avformat.h>
#include <libavutil/display.h>
#include <libavutil/opt.h>
#include <libswscale/swscale.h>
}

namespace vt::av {

template <auto Free>
struct FreeBy {
    template <typename T>
    void operator()(T* p) const {
        Free(&p);
    }
};
struct FreeSws {
    void operator()(SwsContext* p) const { sws_freeContext(p); }
};
struct FreeOutput {
    void operator()(AVFormatContext* p) const {
        if (p->pb != nullptr) avio_closep(&p->pb);
        avformat_free_context(p);
    }
};
using InputPtr = std::unique_ptr<AVFormatContext, FreeBy<avformat_close_input>>;
using OutputPtr = std::unique_ptr<AVFormatContext, FreeOutput>;
using CodecPtr = std::unique_ptr<AVCodecContext, FreeBy<avcodec_free_context>>;
using FramePtr = std::unique_ptr<AVFrame, FreeBy<av_frame_free>>;
using PacketPtr = std::unique_ptr<AVPacket, FreeBy<av_packet_free>>;
using SwsPtr = std::unique_ptr<SwsContext, FreeSws>;

// libav writes warnings of every damaged file to stderr; what matters is in our errors.
inline void silence() {
    static const bool done = (av_log_set_level(AV_LOG_QUIET), true);
    (void)done;
}

inline std::string reason(int code) {
    std::array<char, AV_ERROR_MAX_STRING_SIZE> text{};
    av_strerror(code, text.data(), text.size());
    return text.data();
}

}  // namespace vt::av
