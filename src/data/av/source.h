// SPDX-License-Identifier: MIT
// An opened video file: its best video stream and a decoder for it.
// Floor 3.
#pragma once

#include "core/file.h"
#include "data/av/av.h"

namespace vt::av {

[[noreturn]] void bad_video(const fs::path& path, const std::string& why);

// The bytes of one file for libav. Reading goes through this alone: a play list or a file that
// names others reaches neither them nor the network.
class FileIo {
  public:
    explicit FileIo(const fs::path& path);  // kData: missing, empty, not a regular file
    FileIo(const FileIo&) = delete;
    FileIo& operator=(const FileIo&) = delete;
    /// A new context at the file's start; close it with `close`.
    [[nodiscard]] AVIOContext* open();
    static void close(AVIOContext* context);
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] int64_t size() const { return size_; }
    /// Bytes at `offset`, fewer at the end.
    [[nodiscard]] std::string peek(int64_t offset, int64_t bytes) const;

  private:
    Fd fd_;
    int64_t size_ = 0;
    std::string name_;
};

struct Source {
    std::unique_ptr<FileIo> io;  // outlives `format`
    struct Close {
        void operator()(AVFormatContext* f) const;
    };
    std::unique_ptr<AVFormatContext, Close> format;
    CodecPtr codec;
    AVStream* stream = nullptr;
    bool still = false;  // a picture's container, not a video's
};

/// kData with the reason in words.
[[nodiscard]] Source open_source(const fs::path& path, int threads);

}  // namespace vt::av
