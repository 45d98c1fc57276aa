// SPDX-License-Identifier: MIT
// Captions of videos, from a table, from a text file beside each video, or from its name.
// Floor 3.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace vt {

// A table of captions by file: path, file name, or file name without its ending. A file may be
// named several times, and has then several captions.
enum class CaptionFormat {
    kText,       // NAME, a tab, the caption; empty lines and lines that begin with # are skipped
    kCsv,        // a header row with a column file (or path, video, name, filename) and a column
                 // caption (or text, prompt, captions); quoted as RFC 4180 says; cut by commas,
                 // semicolons or tabs, whichever finds both columns
    kJsonLines,  // one object a line with the same two keys; the caption a string or a list of them
    kJson        // an array of such objects, or one object {NAME: caption or list}
};

class Captions {
  public:
    /// The format by the ending: .txt, .csv or .tsv, .jsonl or .ndjson, .json. kUser naming file
    /// and line for what cannot be understood, is missing or no text.
    [[nodiscard]] static Captions load(const fs::path& table);
    /// By the longest match: all of `video`'s path, ever shorter ends of it, then its stem. In the
    /// table's order, without repeats; empty if the table does not name it.
    [[nodiscard]] const std::vector<std::string>& find(const fs::path& video) const;
    /// The first of them; none if the table does not name the file.
    [[nodiscard]] std::optional<std::string> first(const fs::path& video) const;
    /// Names in the table that are the captions of none of `videos`.
    [[nodiscard]] std::vector<std::string> unused(const std::vector<fs::path>& videos) const;
    [[nodiscard]] size_t size() const { return by_name_.size(); }
    void add(std::string_view name, std::string_view caption);

  private:
    using Table = std::map<std::string, std::vector<std::string>, std::less<>>;
    [[nodiscard]] Table::const_iterator entry(const fs::path& video) const;
    Table by_name_;
};

/// What `load` makes of a file's bytes; `name` is for messages.
[[nodiscard]] Captions parse_captions(std::string_view text, CaptionFormat format,
                                      const std::string& name);

/// NAME.txt beside the video, its white space joined; none if there is no such file. kData if it is
/// no text.
[[nodiscard]] std::optional<std::string> caption_beside(const fs::path& video);
/// "red_fox-running.01.mp4" gives "red fox running 01".
[[nodiscard]] std::string caption_of_name(const fs::path& video);

}  // namespace vt
