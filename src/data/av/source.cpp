// SPDX-License-Identifier: MIT
// Opening files with libav, and telling which files are worth it.
// Floor 3.
#ifdef VTRAIN_HAVE_LIBAV

#include "data/av/source.h"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <set>
#include <sys/stat.h>
#include <unistd.h>

#include "core/check.h"
#include "data/video.h"

namespace vt::av {
namespace {

// One reader's place in the file.
struct Cursor {
    int fd;
    int64_t at, size;
};

int read_some(void* opaque, uint8_t* to, int bytes) {
    auto& c = *static_cast<Cursor*>(opaque);
    for (;;) {
        const ssize_t n = ::pread(c.fd, to, static_cast<size_t>(bytes), c.at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return AVERROR(errno);
        if (n == 0) return AVERROR_EOF;
        c.at += n;
        return static_cast<int>(n);
    }
}

int64_t seek_to(void* opaque, int64_t offset, int whence) {
    auto& c = *static_cast<Cursor*>(opaque);
    switch (whence & ~AVSEEK_FORCE) {
        case AVSEEK_SIZE:
            return c.size;
        case SEEK_SET:
            break;
        case SEEK_CUR:
            offset += c.at;
            break;
        case SEEK_END:
            offset += c.size;
            break;
        default:
            return AVERROR(EINVAL);
    }
    if (offset < 0) return AVERROR(EINVAL);
    return c.at = offset;
}

// A demuxer may open the file it was given once more, and nothing else.
int open_again(AVFormatContext* f, AVIOContext** pb, const char* url, int flags,
               AVDictionary** /*options*/) {
    auto* io = static_cast<FileIo*>(f->opaque);
    if ((flags & AVIO_FLAG_WRITE) != 0 || io->name() != url) return AVERROR(EACCES);
    *pb = io->open();
    return 0;
}
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(59, 10, 100)
int close_again(AVFormatContext* /*f*/, AVIOContext* pb) {
    FileIo::close(pb);
    return 0;
}
#endif
void close_again_old(AVFormatContext* /*f*/, AVIOContext* pb) {
    FileIo::close(pb);
}

uint64_t big_endian(const std::string& s, size_t at, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i) v = v << 8 | static_cast<unsigned char>(s[at + i]);
    return v;
}

// What libav only says in its log: of an mp4 cut short nothing can be read without the index, which
// is often last.
std::string why_unreadable(const FileIo& io) {
    if (io.peek(4, 4) != "ftyp") return {};
    for (int64_t at = 0; at < io.size();) {
        const std::string head = io.peek(at, 16);
        if (head.size() < 8) break;
        const std::string kind = head.substr(4, 4);
        if (kind == "moov" || kind == "meta") return {};
        auto size = static_cast<int64_t>(big_endian(head, 0, 4));
        if (size == 1 && head.size() == 16) size = static_cast<int64_t>(big_endian(head, 8, 8));
        if (size < 8) break;  // 0: to the end of the file
        at += size;
    }
    return "the file ends before its index (moov), it was cut short";
}

// What libav can be told to open by its own list of endings, without those that are no pictures.
const std::set<std::string, std::less<>>& video_endings() {
    static const auto all = [] {
        std::set<std::string, std::less<>> out{"jpg",  "jpeg", "jpe", "jfif", "png", "apng", "gif",
                                               "webp", "bmp",  "tif", "tiff", "jp2", "jxl",  "avif",
                                               "heic", "tga",  "ppm", "pgm",  "pnm", "pam",  "pcx",
                                               "exr",  "dpx",  "sgi", "qoi",  "hdr"};
        void* state = nullptr;
        while (const AVInputFormat* f = av_demuxer_iterate(&state)) {
            const std::string list = f->extensions != nullptr ? f->extensions : "";
            for (size_t at = 0; at < list.size();) {
                const size_t end = std::min(list.find(',', at), list.size());
                out.insert(list.substr(at, end - at));
                at = end + 1;
            }
        }
        // demuxers without a list of their own
        for (const char* e :
             {"mp4", "mov", "m4v", "mkv", "webm", "avi", "mpg", "mpeg", "vob", "m2v", "ts", "m2ts",
              "mts", "wmv", "asf", "flv", "ogv", "3gp", "3g2"}) {
            out.insert(e);
        }
        return out;
    }();
    return all;
}

constexpr std::array kCompanions{
    "txt",  "csv", "tsv",  "json", "jsonl", "md",       "rst",        "html", "xml",  "yaml", "yml",
    "toml", "srt", "vtt",  "ass",  "ssa",   "sub",      "idx",        "sup",  "lrc",  "nfo",  "log",
    "pdf",  "h5",  "hdf5", "zip",  "tar",   "gz",       "tgz",        "bz2",  "xz",   "zst",  "7z",
    "rar",  "py",  "sh",   "wav",  "mp3",   "flac",     "m4a",        "aac",  "opus", "oga",  "wma",
    "ac3",  "npy", "npz",  "pt",   "ini",   "cfg",      "part",       "tmp",  "m3u",  "m3u8", "mpd",
    "pls",  "ans", "art",  "asc",  "diz",   "ffconcat", "safetensors"};

}  // namespace

void bad_video(const fs::path& path, const std::string& why) {
    raise(Fault::kData, fmt::format("cannot read video {}: {}", path.string(), why));
}

FileIo::FileIo(const fs::path& path) : name_(path.string()) {
    // a pipe must not make the whole job wait
    fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd_.open()) bad_video(path, std::strerror(errno));
    struct stat st {};
    if (::fstat(fd_.get(), &st) != 0) bad_video(path, std::strerror(errno));
    if (!S_ISREG(st.st_mode)) bad_video(path, "it is not a regular file");
    if (st.st_size == 0) bad_video(path, "the file is empty (0 bytes)");
    size_ = st.st_size;
}

AVIOContext* FileIo::open() {
    constexpr int kBuffer = 1 << 16;
    auto* buffer = static_cast<unsigned char*>(av_malloc(kBuffer));
    auto cursor = std::make_unique<Cursor>(Cursor{.fd = fd_.get(), .at = 0, .size = size_});
    AVIOContext* c = buffer == nullptr ? nullptr
                                       : avio_alloc_context(buffer, kBuffer, 0, cursor.get(),
                                                            read_some, nullptr, seek_to);
    if (c == nullptr) {
        av_free(buffer);
        throw std::bad_alloc();
    }
    (void)cursor.release();  // owned by the context
    return c;
}

void FileIo::close(AVIOContext* context) {
    if (context == nullptr) return;
    delete static_cast<Cursor*>(context->opaque);
    av_freep(static_cast<void*>(&context->buffer));
    avio_context_free(&context);
}

std::string FileIo::peek(int64_t offset, int64_t bytes) const {
    std::string out(static_cast<size_t>(std::clamp(size_ - offset, int64_t{0}, bytes)), '\0');
    const ssize_t n = ::pread(fd_.get(), out.data(), out.size(), offset);
    out.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return out;
}

void Source::Close::operator()(AVFormatContext* f) const {
    AVIOContext* pb = f->pb;
    avformat_close_input(&f);
    FileIo::close(pb);
}

Source open_source(const fs::path& path, int threads) {
    silence();
    Source s;
    s.io = std::make_unique<FileIo>(path);
    AVFormatContext* raw = avformat_alloc_context();
    if (raw == nullptr) throw std::bad_alloc();
    AVIOContext* const pb = s.io->open();
    raw->pb = pb;
    raw->opaque = s.io.get();
    raw->io_open = open_again;
#if LIBAVFORMAT_VERSION_INT >= AV_VERSION_INT(59, 10, 100)
    raw->io_close2 = close_again;
#endif
#if LIBAVFORMAT_VERSION_MAJOR < 61
    raw->io_close = close_again_old;
#else
    (void)close_again_old;
#endif
    AVDictionary* options = nullptr;
    av_dict_set(&options, "protocol_whitelist", "none", 0);
    av_dict_set(&options, "pattern_type", "none", 0);  // a%03d.png is that file, not a series
    int code = avformat_open_input(&raw, s.io->name().c_str(), nullptr, &options);
    av_dict_free(&options);
    if (code < 0) {  // libav has freed `raw`, and leaves our context to us
        FileIo::close(pb);
        const std::string why = why_unreadable(*s.io);
        bad_video(path, why.empty() ? reason(code) : why);
    }
    s.format.reset(raw);
    const std::string kind = raw->iformat->name;
    if (kind == "tty") bad_video(path, "it is text");
    s.still = kind == "image2" || kind.ends_with("_pipe");
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
    // of VP8 and VP9 with alpha, libav's own decoders show the colours alone
    const AVDictionaryEntry* alpha = av_dict_get(s.stream->metadata, "alpha_mode", nullptr, 0);
    if (alpha != nullptr && std::strcmp(alpha->value, "1") == 0) {
        const AVCodec* vpx =
            avcodec_find_decoder_by_name(decoder->id == AV_CODEC_ID_VP9 ? "libvpx-vp9" : "libvpx");
        if (vpx != nullptr && vpx->id == decoder->id) decoder = vpx;
    }
    for (unsigned i = 0; i < raw->nb_streams; ++i) {
        if (static_cast<int>(i) != index) raw->streams[i]->discard = AVDISCARD_ALL;
    }
    s.codec.reset(avcodec_alloc_context3(decoder));
    if (s.codec == nullptr) throw std::bad_alloc();
    code = avcodec_parameters_to_context(s.codec.get(), s.stream->codecpar);
    if (code < 0) bad_video(path, reason(code));
    s.codec->thread_count = threads;
    s.codec->max_pixels = int64_t{1} << 28;  // a damaged header must not ask for all memory
    s.codec->pkt_timebase = s.stream->time_base;
    code = avcodec_open2(s.codec.get(), decoder, nullptr);
    if (code < 0) bad_video(path, reason(code));
    return s;
}

}  // namespace vt::av

namespace vt {

bool looks_like_video(const fs::path& path) {
    std::string end = path.extension().string();
    if (!end.empty()) end.erase(0, 1);
    std::transform(end.begin(), end.end(), end.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    if (std::find(av::kCompanions.begin(), av::kCompanions.end(), end) != av::kCompanions.end()) {
        return false;
    }
    if (av::video_endings().contains(end)) return true;
    // no ending that tells: the first bytes
    try {
        const av::FileIo io(path);
        std::string head = io.peek(0, 4096);
        head.append(AVPROBE_PADDING_SIZE, '\0');
        AVProbeData probe{};
        probe.filename = "";
        probe.buf = reinterpret_cast<unsigned char*>(head.data());
        probe.buf_size = static_cast<int>(head.size()) - AVPROBE_PADDING_SIZE;
        int score = 0;
        const AVInputFormat* f = av_probe_input_format3(&probe, 1, &score);
        return f != nullptr && score > AVPROBE_SCORE_RETRY;
    } catch (const Error&) {
        return false;
    }
}

}  // namespace vt

#endif
