// SPDX-License-Identifier: MIT
#include "data/captions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/check.h"
#include "data/text.h"

namespace vt {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 5> kFileKeys{"file", "path", "video", "name", "filename"};
constexpr std::array<std::string_view, 4> kTextKeys{"caption", "text", "prompt", "captions"};

[[noreturn]] void bad_line(const std::string& table, int64_t line, const std::string& why) {
    raise(Fault::kUser, fmt::format("captions {} line {}: {}", table, line, why));
}
[[noreturn]] void bad_entry(const std::string& where, const std::string& why) {
    raise(Fault::kUser, fmt::format("captions {}: {}", where, why));
}

std::string key_of(std::string_view name) {
    return fs::path(tidy_words(name)).lexically_normal().generic_string();
}

struct Record {
    int64_t line = 0;  // where it begins
    std::vector<std::string> cells;
};

// At most `limit` records.
std::vector<Record> csv_records(std::string_view text, char separator, size_t limit,
                                const std::string& table) {
    std::vector<Record> all;
    Record now{.line = 1, .cells = {}};
    std::string cell;
    bool quoted = false, any = false;
    int64_t line = 1;
    const auto end_record = [&] {
        if (any) {
            now.cells.push_back(std::exchange(cell, {}));
            all.push_back(std::move(now));
        }
        now = {.line = line + 1, .cells = {}};
        any = false;
    };
    for (size_t i = 0; i < text.size() && all.size() < limit; ++i) {
        const char c = text[i];
        if (quoted) {
            if (c == '\n') ++line;
            if (c != '"') {
                cell += c;
            } else if (i + 1 < text.size() && text[i + 1] == '"') {
                cell += text[++i];
            } else {
                quoted = false;
            }
        } else if (c == '"' && cell.empty()) {
            quoted = any = true;
        } else if (c == separator) {
            now.cells.push_back(std::exchange(cell, {}));
            any = true;
        } else if (c == '\n') {
            end_record();
            ++line;
        } else {
            cell += c;
            any = true;
        }
    }
    if (quoted) bad_line(table, now.line, "a quotation mark is never closed");
    if (all.size() < limit) end_record();
    return all;
}

template <size_t N>
size_t column(const Record& header, const std::array<std::string_view, N>& names) {
    for (const std::string_view name : names) {
        for (size_t i = 0; i < header.cells.size(); ++i) {
            std::string cell = tidy_words(header.cells[i]);
            std::transform(cell.begin(), cell.end(), cell.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
            if (cell == name) return i;
        }
    }
    return header.cells.size();
}

void parse_csv(std::string_view text, const std::string& table, Captions& out) {
    for (const char separator : {',', ';', '\t'}) {
        const auto first = csv_records(text, separator, 1, table);
        if (first.empty()) bad_line(table, 1, "the table is empty");
        const size_t f = column(first[0], kFileKeys), c = column(first[0], kTextKeys);
        const size_t n = first[0].cells.size();
        if (f == n || c == n) continue;
        const auto records = csv_records(text, separator, SIZE_MAX, table);
        for (size_t i = 1; i < records.size(); ++i) {
            const Record& r = records[i];
            if (r.cells.size() != n) {
                bad_line(table, r.line,
                         fmt::format("{} cells, the header has {}", r.cells.size(), n));
            }
            if (key_of(r.cells[f]).empty()) bad_line(table, r.line, "names no file");
            out.add(r.cells[f], r.cells[c]);
        }
        return;
    }
    bad_line(table, 1, "the header needs a column \"file\" and a column \"caption\"");
}

void parse_lines(std::string_view text, const std::string& table, Captions& out) {
    int64_t n = 1;
    for (size_t at = 0; at < text.size(); ++n) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line = text.substr(at, end - at);
        at = end + 1;
        if (tidy_words(line).empty() || line[0] == '#') continue;
        const size_t tab = line.find('\t');
        if (tab == std::string_view::npos) bad_line(table, n, "must be NAME, a tab, the caption");
        if (key_of(line.substr(0, tab)).empty()) bad_line(table, n, "names no file");
        out.add(line.substr(0, tab), line.substr(tab + 1));
    }
}

// A string or a list of strings; null: none.
void add_value(const std::string& name, const Json& value, const std::string& where,
               Captions& out) {
    if (value.is_null()) return;
    if (value.is_string()) {
        out.add(name, value.get_ref<const std::string&>());
        return;
    }
    const bool list = value.is_array() && std::all_of(value.begin(), value.end(),
                                                      [](const Json& v) { return v.is_string(); });
    if (!list) bad_entry(where, "a caption must be a string or a list of strings");
    for (const Json& v : value) out.add(name, v.get_ref<const std::string&>());
}

void add_object(const Json& object, const std::string& where, Captions& out) {
    if (!object.is_object()) bad_entry(where, "is not a JSON object");
    std::string name;
    for (const std::string_view key : kFileKeys) {
        const auto it = object.find(key);
        if (it != object.end() && it->is_string()) name = it->get<std::string>();
        if (!key_of(name).empty()) break;
    }
    if (key_of(name).empty()) bad_entry(where, "has no \"file\"");
    for (const std::string_view key : kTextKeys) {
        const auto it = object.find(key);
        if (it == object.end()) continue;
        add_value(name, *it, where, out);
        return;
    }
    bad_entry(where, "has no \"caption\"");
}

Json parse_json(std::string_view text, const std::string& where) {
    Json value = Json::parse(text, nullptr, false);
    if (value.is_discarded()) bad_entry(where, "is not JSON");
    return value;
}

void parse_json_lines(std::string_view text, const std::string& table, Captions& out) {
    int64_t n = 1;
    for (size_t at = 0; at < text.size(); ++n) {
        const size_t end = std::min(text.find('\n', at), text.size());
        const std::string_view line = text.substr(at, end - at);
        at = end + 1;
        if (tidy_words(line).empty()) continue;
        const std::string where = fmt::format("{} line {}", table, n);
        add_object(parse_json(line, where), where, out);
    }
}

void parse_json_table(std::string_view text, const std::string& table, Captions& out) {
    const Json all = parse_json(text, table);
    if (all.is_array()) {
        for (size_t i = 0; i < all.size(); ++i) {
            add_object(all[i], fmt::format("{} entry {}", table, i), out);
        }
        return;
    }
    if (!all.is_object()) bad_entry(table, "must be an array of objects, or one object");
    for (const auto& [name, value] : all.items()) {
        const std::string where = fmt::format("{} \"{}\"", table, name);
        if (key_of(name).empty()) bad_entry(where, "names no file");
        if (!value.is_object()) {
            add_value(name, value, where, out);
            continue;
        }
        Json named = value;
        named[std::string(kFileKeys[0])] = name;
        add_object(named, where, out);
    }
}

}  // namespace

void Captions::add(std::string_view name, std::string_view caption) {
    auto& list = by_name_[key_of(name)];
    std::string words = tidy_words(caption);
    if (std::find(list.begin(), list.end(), words) == list.end()) list.push_back(std::move(words));
}

Captions parse_captions(std::string_view bytes, CaptionFormat format, const std::string& name) {
    const std::string text = plain_text(bytes, "captions " + name);
    Captions out;
    switch (format) {
        case CaptionFormat::kText:
            parse_lines(text, name, out);
            break;
        case CaptionFormat::kCsv:
            parse_csv(text, name, out);
            break;
        case CaptionFormat::kJsonLines:
            parse_json_lines(text, name, out);
            break;
        case CaptionFormat::kJson:
            parse_json_table(text, name, out);
            break;
    }
    return out;
}

Captions Captions::load(const fs::path& table) {
    constexpr std::array<std::pair<std::string_view, CaptionFormat>, 6> kEndings{
        {{".txt", CaptionFormat::kText},
         {".csv", CaptionFormat::kCsv},
         {".tsv", CaptionFormat::kCsv},
         {".jsonl", CaptionFormat::kJsonLines},
         {".ndjson", CaptionFormat::kJsonLines},
         {".json", CaptionFormat::kJson}}};
    std::error_code ec;
    if (!fs::exists(table, ec)) {
        raise(Fault::kUser, fmt::format("captions {}: no such file", table.string()));
    }
    const std::string ending = table.extension().string();
    for (const auto& [known, format] : kEndings) {
        if (ending == known) return parse_captions(read_file(table), format, table.string());
    }
    raise(Fault::kUser,
          fmt::format("captions {}: must end in .txt, .csv, .tsv, .jsonl, .ndjson or .json",
                      table.string()));
}

Captions::Table::const_iterator Captions::entry(const fs::path& video) const {
    std::string name = video.lexically_normal().generic_string();
    for (;;) {
        const auto it = by_name_.find(name);
        if (it != by_name_.end()) return it;
        const size_t slash = name.find('/');
        if (slash == std::string::npos) break;
        name.erase(0, slash + 1);
    }
    return by_name_.find(video.stem().string());
}

const std::vector<std::string>& Captions::find(const fs::path& video) const {
    static const std::vector<std::string> none;
    const auto it = entry(video);
    return it != by_name_.end() ? it->second : none;
}

std::optional<std::string> Captions::first(const fs::path& video) const {
    const auto& list = find(video);
    return list.empty() ? std::nullopt : std::optional(list.front());
}

std::vector<std::string> Captions::unused(const std::vector<fs::path>& videos) const {
    std::set<std::string_view> left;
    for (const auto& [name, list] : by_name_) left.insert(name);
    for (const fs::path& v : videos) {
        const auto it = entry(v);
        if (it != by_name_.end()) left.erase(it->first);
    }
    return {left.begin(), left.end()};
}

std::optional<std::string> caption_beside(const fs::path& video) {
    fs::path text = video;
    text.replace_extension(".txt");
    std::error_code ec;
    if (!fs::is_regular_file(text, ec)) return std::nullopt;
    return tidy_words(plain_text(read_file(text), "caption " + text.string(), Fault::kData));
}

std::string caption_of_name(const fs::path& video) {
    std::string words = video.stem().string();
    for (char& c : words) {
        if (c == '_' || c == '-' || c == '.') c = ' ';
    }
    return tidy_words(words);
}

}  // namespace vt
