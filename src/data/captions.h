// SPDX-License-Identifier: MIT
// Captions of videos, from a table, from a text file beside each video, or from its name.
// Floor 3.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "core/file.h"

namespace vt {

// A table of captions by file: path, file name, or file name without its ending.
//   .txt     NAME, a tab, the caption; empty lines and lines that begin with # are skipped
//   .csv     a header row with a column file (or path, video, name) and caption (or text, prompt);
//            quoted as RFC 4180 says
//   .jsonl   one object a line with the same two keys
//   .json    a list of such objects, or one object { NAME: caption, ... }
class Captions {
  public:
    /// kUser naming file and line for what cannot be understood.
    [[nodiscard]] static Captions load(const fs::path& table);
    /// By the longest match: all of `video`'s path, ever shorter ends of it, then its stem.
    [[nodiscard]] std::optional<std::string> find(const fs::path& video) const;
    [[nodiscard]] size_t size() const { return by_name_.size(); }

  private:
    std::map<std::string, std::string, std::less<>> by_name_;
};

/// NAME.txt beside the video, its white space joined; none if there is no such file.
[[nodiscard]] std::optional<std::string> caption_beside(const fs::path& video);
/// "red_fox-running.01.mp4" gives "red fox running 01".
[[nodiscard]] std::string caption_of_name(const fs::path& video);

}  // namespace vt
