// SPDX-License-Identifier: MIT
// TensorBoard event files, written by hand: records of Event messages (protocol buffers) framed
// with lengths and masked CRC-32C. Scalars and pictures. Floor 6.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/file.h"
#include "train/metrics.h"

namespace vt {

class EventsFile {
  public:
    /// A new file events.out.tfevents.<seconds>.<K> in `folder` (made if absent). With resumed_step
    /// > 0 it begins with the mark by which TensorBoard drops points of later steps.
    EventsFile(const fs::path& folder, int64_t resumed_step);
    /// Every value of the row that is set, as "train/loss", "eval/loss", ...; names with a slash as
    /// they are. kSystem on a write error.
    void append(const MetricRow& row);
    /// A picture: the bytes of a PNG or GIF file of height x width pixels.
    void append_image(const std::string& tag, int64_t step, std::string_view encoded,
                      int64_t height, int64_t width);
    [[nodiscard]] const fs::path& path() const { return path_; }

  private:
    void write(const std::string& event);
    fs::path path_;
    Fd fd_;
};

/// CRC-32C (Castagnoli), as the record format wants it.
[[nodiscard]] uint32_t crc32c(std::string_view bytes);

}  // namespace vt
