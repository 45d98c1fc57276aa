// SPDX-License-Identifier: MIT
#include "data/captions.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "core/check.h"

namespace vt {
namespace {

constexpr std::array<std::string_view, 5> kFileKeys{"file", "path", "video", "name", "filename"};
constexpr std::array<std::string_view, 3> kTextKeys{"caption", "text", "prompt"};

[[noreturn]] void bad_line(const fs::path& table, int64_t line, const std::string& why) {
    raise(Fault::kUser, fmt::format("captions {} line {}: {}", table.string(), line, why));
}

// White space at the ends gone, inside it one space each.
std::string tidy(std::string_view s) {
    std::string out;
    for (const char c : s) {
        if (std::isspace(static_cast<unsigned char>(c)) == 0) {
            out += c;
        } else if (!out.empty() && out.back() != ' ') {
            out += ' ';
        }
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

struct Record {
    int64_t line = 0;  // where it begins
    std::vector<std::string> cells;
};

std::vector<Record> csv_records(std::string_view text, const fs::path& table) {
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
    for (size_t i = 0; i < text.size(); ++i) {
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
        } else if (c == ',') {
            now.cells.push_back(std::exchange(cell, {}));
            any = true;
        } else if (c == '\n') {
            end_record();
            ++line;
        } else if (c != '\r') {
            cell += c;
            any = true;
        }
    }
    if (quoted) bad_line(table, now.line, "a quotation mark is never closed");
    end_record();
    return all;
}

template <size_t N>
size_t column(const Record& header, const std::array<std::string_view, N>& names) {
    for (const std::string_view name : names) {
        for (size_t i = 0; i < header.cells.size(); ++i) {
            std::string cell = tidy(header.cells[i]);
            std::transform(cell.begin(), cell.end(), cell.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
            if (cell == name) return i;
        }
    }
    return header.cells.size();
}

template <size_t N>
std::string value(const nlohmann::json& object, const std::array<std::string_view, N>& names) {
    for (const std::string_view name : names) {
        const auto it = object.find(name);
        if (it != object.end() && it->is_string()) return it->get<std::string>();
    }
    return {};
}

}  // namespace

Captions Captions::load(const fs::path& table) {
    std::string text = read_file(table);
    if (text.rfind("\xef\xbb\xbf", 0) == 0) text.erase(0, 3);  // byte order mark
    Captions out;
    const auto add = [&](const std::string& name, const std::string& caption) {
        out.by_name_[fs::path(tidy(name)).lexically_normal().generic_string()] = tidy(caption);
    };
    const std::string kind = table.extension().string();
    if (kind == ".csv") {
        const auto records = csv_records(text, table);
        if (records.empty()) bad_line(table, 1, "the table is empty");
        const size_t f = column(records[0], kFileKeys), c = column(records[0], kTextKeys);
        const size_t n = records[0].cells.size();
        if (f == n || c == n) {
            bad_line(table, 1, "the header needs a column \"file\" and a column \"caption\"");
        }
        for (size_t i = 1; i < records.size(); ++i) {
            if (records[i].cells.size() != n) {
                bad_line(table, records[i].line,
                         fmt::format("{} cells, the header has {}", records[i].cells.size(), n));
            }
            add(records[i].cells[f], records[i].cells[c]);
        }
        return out;
    }
    if (kind == ".json") {
        const auto j = nlohmann::json::parse(text, nullptr, false);
        if (!j.is_structured()) bad_line(table, 1, "is no JSON object and no list");
        for (const auto& [key, entry] : j.items()) {
            const bool plain = j.is_object() && entry.is_string();
            const std::string name = j.is_object() ? key : value(entry, kFileKeys);
            if (!plain && !entry.is_object()) bad_line(table, 1, "holds neither texts nor objects");
            if (name.empty()) bad_line(table, 1, "holds an entry without \"file\"");
            add(name, plain ? entry.get<std::string>() : value(entry, kTextKeys));
        }
        return out;
    }
    if (kind != ".txt" && kind != ".jsonl") {
        raise(Fault::kUser,
              fmt::format("captions {}: must end in .txt, .csv, .jsonl or .json", table.string()));
    }
    std::istringstream in(text);
    std::string line;
    for (int64_t n = 1; std::getline(in, line); ++n) {
        if (tidy(line).empty()) continue;
        if (kind == ".txt") {
            if (line[0] == '#') continue;
            const size_t tab = line.find('\t');
            if (tab == std::string::npos) {
                bad_line(table, n, "must be NAME, a tab, the caption");
            }
            add(line.substr(0, tab), line.substr(tab + 1));
            continue;
        }
        const auto object = nlohmann::json::parse(line, nullptr, false);
        if (!object.is_object()) bad_line(table, n, "is not a JSON object");
        const std::string name = value(object, kFileKeys);
        if (name.empty()) bad_line(table, n, "has no \"file\"");
        add(name, value(object, kTextKeys));
    }
    return out;
}

std::optional<std::string> Captions::find(const fs::path& video) const {
    std::string name = video.lexically_normal().generic_string();
    for (;;) {
        const auto it = by_name_.find(name);
        if (it != by_name_.end()) return it->second;
        const size_t slash = name.find('/');
        if (slash == std::string::npos) break;
        name.erase(0, slash + 1);
    }
    const auto it = by_name_.find(video.stem().string());
    if (it != by_name_.end()) return it->second;
    return std::nullopt;
}

std::optional<std::string> caption_beside(const fs::path& video) {
    fs::path text = video;
    text.replace_extension(".txt");
    std::error_code ec;
    if (!fs::is_regular_file(text, ec)) return std::nullopt;
    return tidy(read_file(text));
}

std::string caption_of_name(const fs::path& video) {
    std::string words = video.stem().string();
    for (char& c : words) {
        if (c == '_' || c == '-' || c == '.') c = ' ';
    }
    return tidy(words);
}

}  // namespace vt
