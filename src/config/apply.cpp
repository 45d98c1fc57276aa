// SPDX-License-Identifier: MIT
// Settings meet rows: every mistake of a configuration is found and worded here. Floor 1.
#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <utility>

#include "config/toml.h"

namespace vt {

namespace {

constexpr size_t kMaxMistakes = 20;  // beyond that a list helps nobody
constexpr size_t kMaxShown = 80;     // characters of a value in a message

std::string section_of(const std::string& key) {
    return key.substr(0, key.find('.'));
}
std::string leaf_of(const std::string& key) {
    const size_t dot = key.find('.');
    return dot == std::string::npos ? key : key.substr(dot + 1);
}

// Cut in front of a UTF-8 character, not inside one.
std::string shown(const TomlValue& value) {
    std::string text = toml_text(value);
    if (text.size() <= kMaxShown) return text;
    size_t end = kMaxShown;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
    return text.substr(0, end) + "...";
}

std::string nearest_key(const std::vector<Field>& rows, const std::string& key) {
    // A right key in the wrong section is a likelier slip than two wrong letters in the right one.
    const std::string leaf = leaf_of(key);
    const auto cost = [&](const std::string& candidate) {
        const int there = edit_distance(leaf, leaf_of(candidate));
        return 2 * there + (section_of(candidate) == section_of(key) ? 0 : 3);
    };
    std::string best;
    int best_cost = 0;
    for (const Field& row : rows) {
        int c = cost(row.key);
        for (const std::string& alias : row.aliases) c = std::min(c, cost(alias));
        if (best.empty() || c < best_cost) {
            best = row.key;
            best_cost = c;
        }
    }
    return best;
}

std::string nearest_section(const std::vector<Field>& rows, const std::string& section) {
    std::string best;
    int best_cost = 0;
    for (const Field& row : rows) {
        const std::string name = section_of(row.key);
        const int c = edit_distance(section, name);
        if (best.empty() || c < best_cost) {
            best = name;
            best_cost = c;
        }
    }
    return best;
}

bool in_range(const Field& row, double x) {
    const bool low = row.min_exclusive ? x > row.min : x >= row.min;
    const bool high = row.max_exclusive ? x < row.max : x <= row.max;
    return low && high;
}

std::string allowed_text(const Field& row, bool beyond_int64 = false);

// Turns values into what a row's member holds. The reason of a refusal is left in `why`.
struct Reader {
    const Field& row;
    const Setting& setting;
    std::string why;
    bool beyond_int64 = false;  // an integer is wanted, and this one is too large to be any

    bool refuse(const std::string& reason) {
        why = reason;
        return false;
    }
    bool wrong_type() { return refuse("has the wrong type"); }

    bool read(const TomlValue& v, bool* out) {
        const bool* b = std::get_if<bool>(&v.v);
        if (b == nullptr) return wrong_type();
        *out = *b;
        return true;
    }
    bool read(const TomlValue& v, int64_t* out) {
        if (const double* d = std::get_if<double>(&v.v)) {
            if (!std::isfinite(*d) && v.written.empty()) return refuse("is not a finite number");
            beyond_int64 = std::abs(*d) >= 0x1p63;
            return beyond_int64 ? refuse("is out of range") : wrong_type();
        }
        const int64_t* i = std::get_if<int64_t>(&v.v);
        if (i == nullptr) return wrong_type();
        if (!in_range(row, static_cast<double>(*i))) return refuse("is out of range");
        *out = *i;
        return true;
    }
    bool read(const TomlValue& v, double* out) {
        double x = 0;
        if (const double* d = std::get_if<double>(&v.v)) {
            x = *d;
        } else if (const int64_t* i = std::get_if<int64_t>(&v.v)) {
            x = static_cast<double>(*i);
        } else {
            return wrong_type();
        }
        if (!std::isfinite(x)) {
            return refuse(v.written.empty() ? "is not a finite number" : "is out of range");
        }
        if (!in_range(row, x)) return refuse("is out of range");
        *out = x;
        return true;
    }
    bool read(const TomlValue& v, std::optional<double>* out) { return read(v, &out->emplace()); }
    bool read(const TomlValue& v, std::string* out) {
        std::string text;
        if (const std::string* s = std::get_if<std::string>(&v.v)) {
            text = *s;
        } else if (setting.from_command && !std::holds_alternative<TomlArray>(v.v) &&
                   !std::holds_alternative<TomlTable>(v.v)) {
            text = setting.raw;  // --set run.name=2024: on the command line text needs no quotes
        } else {
            return wrong_type();
        }
        const auto& allowed = row.choices;
        if (!allowed.empty() && std::find(allowed.begin(), allowed.end(), text) == allowed.end()) {
            return refuse("is not one of the choices");
        }
        if (text.find('\0') != std::string::npos) return refuse("holds a zero byte");
        if (text.empty() && (row.required || row.is_path)) return refuse("is empty");
        *out = row.is_path ? resolve(text) : text;
        return true;
    }
    bool read(const TomlValue& v, WeightedPath* out) {
        const TomlTable* table = std::get_if<TomlTable>(&v.v);
        if (table == nullptr) return read(v, &out->path);
        for (const auto& [key, item] : *table) {
            if (key == "path") {
                if (!std::holds_alternative<std::string>(item.v))
                    return refuse("has no text as path");
                if (!read(item, &out->path)) return false;
            } else if (key == "weight") {
                if (!read(item, &out->weight)) return refuse("has a weight that " + why);
            } else {
                return refuse(fmt::format("has the unknown key '{}'", key));
            }
        }
        return out->path.empty() ? refuse("has no path") : true;
    }
    template <typename T>
    bool read(const TomlValue& v, std::vector<T>* out) {
        std::vector<T> items;
        if (const TomlArray* array = std::get_if<TomlArray>(&v.v)) {
            for (const TomlValue& item : *array) {
                if (!read(item, &items.emplace_back())) {
                    return refuse(fmt::format("has the element {}, which {}", shown(item), why));
                }
            }
            if (items.empty() && row.required) return refuse("is empty");
        } else if (!read(v, &items.emplace_back())) {  // one value stands for a list of one
            return false;
        }
        *out = std::move(items);
        return true;
    }

    bool read(const TomlValue& v, const TableList& out) {
        const TomlArray one{v};  // one table stands for a list of one
        const TomlArray* array = std::get_if<TomlArray>(&v.v);
        if (array == nullptr) array = &one;
        out.resize(0);
        out.resize(array->size());
        for (size_t i = 0; i < array->size(); ++i) {
            const TomlTable* table = std::get_if<TomlTable>(&(*array)[i].v);
            if (table == nullptr) return wrong_type();
            if (!read_table(*table, out.rows(i))) {
                return refuse(fmt::format("has a mistake in table {} (line {}): {}", i + 1,
                                          (*array)[i].line, why));
            }
        }
        return true;
    }
    bool read_table(const TomlTable& table, const std::vector<Field>& rows) {
        std::set<std::string> given;
        for (const TomlEntry& entry : table) {
            const std::string& written = entry.key;
            const TomlValue& value = entry.value;
            std::string key = written;
            std::replace(key.begin(), key.end(), '-', '_');
            const auto it = std::find_if(rows.begin(), rows.end(),
                                         [&](const Field& f) { return f.key == key; });
            if (it == rows.end()) {
                return refuse(fmt::format("unknown key '{}'; the nearest valid one is '{}'",
                                          written, nearest_key(rows, key)));
            }
            Reader inner{*it, setting, {}, false};
            if (!std::visit([&](auto& t) { return inner.read(value, t); }, it->target)) {
                return refuse(fmt::format("{} = {} {}; allowed: {}", key, shown(value), inner.why,
                                          allowed_text(*it, inner.beyond_int64)));
            }
            if (!given.insert(key).second) return refuse("'" + key + "' stands there twice");
        }
        for (const Field& f : rows) {
            if (f.required && given.count(f.key) == 0) return refuse("it lacks '" + f.key + "'");
        }
        return true;
    }

    [[nodiscard]] std::string resolve(const std::string& text) const {
        return (setting.base / text).lexically_normal().string();
    }
};

std::string allowed_text(const Field& row, bool beyond_int64) {
    std::string limits = field_allowed(row);
    constexpr auto kMost = std::numeric_limits<int64_t>::max();
    if (beyond_int64 && !std::isfinite(row.max)) {
        limits += fmt::format("{}<= {}", limits.empty() ? "" : " and ", kMost);
    }
    if (beyond_int64 && !std::isfinite(row.min)) limits += fmt::format(" and >= {}", -kMost - 1);
    if (!row.choices.empty()) return limits;
    std::string out = field_type(row);
    if (std::holds_alternative<std::vector<WeightedPath>*>(row.target)) {
        out = "a list of globs \"clips/*.h5\" or tables { path = \"clips/*.h5\", weight = 1.0 }";
        return limits.empty() ? out : out + " with weight " + limits;
    }
    if (const TableList* list = std::get_if<TableList>(&row.target)) {
        out += " with the keys";
        for (const Field& f : list->defaults()) out += " " + f.key;
    }
    return limits.empty() ? out : out + " " + limits;
}

std::string unknown_key(const std::vector<Field>& rows, const Setting& s, bool known_section) {
    const std::string section = section_of(s.key);
    if (s.key.find('.') == std::string::npos) {
        if (s.section || std::holds_alternative<TomlTable>(s.value.v)) {
            return fmt::format("{}: unknown section [{}]; the nearest valid one is [{}]",
                               s.origin.text, s.key, nearest_section(rows, s.key));
        }
        return known_section
                   ? fmt::format("{}: [{}] is a section, not a key", s.origin.text, s.key)
                   : fmt::format(
                         "{}: unknown key '{}' outside any section; the nearest valid one "
                         "is '{}'",
                         s.origin.text, s.key, nearest_key(rows, s.key));
    }
    const std::string key = fmt::format("{}: unknown key '{}'; the nearest valid one is '{}'",
                                        s.origin.text, s.key, nearest_key(rows, s.key));
    return known_section ? key
                         : fmt::format(
                               "{}: unknown section [{}] (key '{}'); the nearest valid "
                               "section is [{}], the nearest valid key is '{}'",
                               s.origin.text, section, s.key, nearest_section(rows, section),
                               nearest_key(rows, s.key));
}

}  // namespace

int edit_distance(std::string_view a, std::string_view b) {
    // optimal string alignment: three rows of the usual table
    std::vector<int> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) last[j] = static_cast<int>(j);
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = static_cast<int>(i);
        for (size_t j = 1; j <= b.size(); ++j) {
            const int swap_or_keep = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, swap_or_keep});
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
                row[j] = std::min(row[j], before[j - 2] + 1);
            }
        }
        before.swap(last);
        last.swap(row);
    }
    return last[b.size()];
}

std::map<std::string, Origin> apply_settings(const std::vector<Field>& rows,
                                             const std::vector<Setting>& settings) {
    std::map<std::string, const Field*> by_name;
    std::set<std::string> sections;
    for (const Field& row : rows) {
        by_name[row.key] = &row;
        sections.insert(section_of(row.key));
        for (const std::string& alias : row.aliases) {
            by_name[alias] = &row;
            sections.insert(section_of(alias));
        }
    }

    std::vector<std::string> mistakes;
    std::set<std::string> bad_sections;  // each is named once, whatever it holds
    std::map<std::string, Origin> origins;
    std::map<std::pair<std::string, bool>, std::string> spelling;  // (row, --set?) -> as written
    std::set<std::string> failed;
    for (const Setting& s : settings) {
        const std::string section = section_of(s.key);
        const auto it = by_name.find(s.key);
        if (it == by_name.end()) {
            const bool known = sections.count(section) != 0;
            if (s.section && known) continue;  // an empty section is no mistake
            if (known || bad_sections.insert(section).second) {
                mistakes.push_back(unknown_key(rows, s, known));
            }
            continue;
        }
        const Field& row = *it->second;
        const auto [first, is_new] = spelling.try_emplace({row.key, s.from_command}, s.key);
        if (!is_new && (!s.from_command || first->second != s.key)) {
            mistakes.push_back(fmt::format("{}: '{}' and '{}' are the same key; keep one",
                                           s.origin.text, s.key, first->second));
            continue;
        }
        Reader reader{row, s, {}, false};
        if (std::visit([&](auto& target) { return reader.read(s.value, target); }, row.target)) {
            origins[row.key] = s.origin;
        } else {
            failed.insert(row.key);
            mistakes.push_back(fmt::format("{}: {} = {} {}; allowed: {}", s.origin.text, s.key,
                                           shown(s.value), reader.why,
                                           allowed_text(row, reader.beyond_int64)));
        }
    }
    for (const Field& row : rows) {
        if (row.required && origins.count(row.key) == 0 && failed.count(row.key) == 0) {
            mistakes.push_back(fmt::format("{} is required and not set: {}", row.key, row.help));
        }
    }
    if (mistakes.empty()) return origins;
    std::string message;
    for (size_t i = 0; i < std::min(mistakes.size(), kMaxMistakes); ++i) {
        message += (i ? "\n  " : "") + mistakes[i];
    }
    if (mistakes.size() > kMaxMistakes) {
        message += fmt::format("\n  and {} more", mistakes.size() - kMaxMistakes);
    }
    raise(Fault::kUser, message, "configs/README.md and `vtrain config keys` list every key");
}

}  // namespace vt
