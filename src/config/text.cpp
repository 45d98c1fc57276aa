// SPDX-License-Identifier: MIT
// Rows and values as text: TOML dump, help, Markdown. Floor 1.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "config/toml.h"

namespace vt {

namespace {

template <class... Ts>
struct Overload : Ts... {
    using Ts::operator()...;
};
template <class... Ts>
Overload(Ts...) -> Overload<Ts...>;

template <class T, class F>
std::string list_text(const std::vector<T>& items, F&& one) {
    std::string out = "[";
    for (size_t i = 0; i < items.size(); ++i) out += (i ? ", " : "") + one(items[i]);
    return out + "]";
}

std::string source_text(const WeightedPath& p) {
    return fmt::format("{{ path = {}, weight = {} }}", toml_quote(p.path), toml_number(p.weight));
}

std::string section_of(const std::string& key) {
    return key.substr(0, key.find('.'));
}
std::string leaf_of(const std::string& key) {
    return key.substr(key.find('.') + 1);
}

std::string default_of(const Field& row) {
    const std::string value = row.required ? "(required)" : field_value(row);
    return value.empty() ? "(not set)" : value;
}

std::string tables_text(const TableList& list) {
    std::string out = "[";
    for (size_t i = 0; i < list.size(); ++i) {
        std::string table;
        for (const Field& f : list.rows(i)) {
            const std::string value = field_value(f);
            if (value.empty()) continue;
            table += fmt::format("{} {} = {}", table.empty() ? "" : ",", f.key, value);
        }
        out += fmt::format("{}{{{} }}", i ? ", " : "", table);
    }
    return out + "]";
}

std::string escape_cell(std::string text) {
    for (size_t i = 0; (i = text.find('|', i)) != std::string::npos; i += 2) text.insert(i, "\\");
    return text;
}

}  // namespace

std::string toml_quote(std::string_view text) {
    std::string out = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') {
            out += '\\';
            out += c;
        } else if (c == '\n') {
            out += "\\n";
        } else if (c == '\t') {
            out += "\\t";
        } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
            out += fmt::format("\\u{:04X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
            out += c;
        }
    }
    return out + "\"";
}

std::string toml_number(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
    std::string out = fmt::format("{}", value);
    if (out.find_first_of(".e") == std::string::npos) out += ".0";
    return out;
}

std::string toml_text(const TomlValue& value) {
    if (!value.written.empty()) return value.written;
    return std::visit(Overload{[](std::monostate) { return std::string("a date or time"); },
                               [](bool b) { return std::string(b ? "true" : "false"); },
                               [](int64_t i) { return fmt::format("{}", i); },
                               [](double d) { return toml_number(d); },
                               [](const std::string& s) { return toml_quote(s); },
                               [](const TomlArray& a) { return list_text(a, &toml_text); },
                               [](const TomlTable& t) {
                                   std::string out = "{";
                                   for (const auto& [key, v] : t) {
                                       out += fmt::format("{} {} = {}", out.size() > 1 ? "," : "",
                                                          key, toml_text(v));
                                   }
                                   return out + " }";
                               }},
                      value.v);
}

std::string field_type(const Field& row) {
    return std::visit(
        Overload{[](const bool*) { return "true or false"; },
                 [](const int64_t*) { return "integer"; }, [](const double*) { return "number"; },
                 [](const std::string*) { return "text"; },
                 [](const std::vector<double>*) { return "list of numbers"; },
                 [](const std::vector<std::string>*) { return "list of texts"; },
                 [](const std::vector<int64_t>*) { return "list of integers"; },
                 [](const std::vector<WeightedPath>*) { return "list of texts or tables"; },
                 [](const std::optional<double>*) { return "number"; },
                 [](const TableList&) { return "list of tables"; }},
        row.target);
}

std::string field_allowed(const Field& row) {
    if (!row.choices.empty()) {
        std::string out;
        for (const std::string& c : row.choices) {
            out += (out.empty() ? "" : ", ") + (c.empty() ? "\"\"" : c);
        }
        return out;
    }
    const bool low = std::isfinite(row.min), high = std::isfinite(row.max);
    const char* above = row.min_exclusive ? ">" : ">=";
    const char* below = row.max_exclusive ? "<" : "<=";
    if (low && high) return fmt::format("{} {} and {} {}", above, row.min, below, row.max);
    if (low) return fmt::format("{} {}", above, row.min);
    if (high) return fmt::format("{} {}", below, row.max);
    return {};
}

std::string field_value(const Field& row) {
    return std::visit(
        Overload{[](const bool* b) { return std::string(*b ? "true" : "false"); },
                 [](const int64_t* i) { return fmt::format("{}", *i); },
                 [](const double* d) { return toml_number(*d); },
                 [](const std::string* s) { return toml_quote(*s); },
                 [](const std::vector<double>* x) { return list_text(*x, &toml_number); },
                 [](const std::vector<std::string>* x) { return list_text(*x, &toml_quote); },
                 [](const std::vector<int64_t>* x) {
                     return list_text(*x, [](int64_t i) { return fmt::format("{}", i); });
                 },
                 [](const std::vector<WeightedPath>* x) { return list_text(*x, &source_text); },
                 [](const std::optional<double>* d) { return *d ? toml_number(**d) : ""; },
                 [](const TableList& x) { return tables_text(x); }},
        row.target);
}

std::string dump_toml(const std::vector<Field>& rows) {
    std::string out, section;
    for (const Field& row : rows) {
        if (section_of(row.key) != section) {
            section = section_of(row.key);
            out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
        }
        const std::string value = field_value(row);
        if (!value.empty()) out += fmt::format("{} = {}\n", leaf_of(row.key), value);
    }
    return out;
}

namespace {

std::string help_line(const Field& row, const std::string& indent, size_t width) {
    const std::string allowed = field_allowed(row);
    return fmt::format("{}{:<{}}  {}  [{}{}{}; {}]\n", indent, leaf_of(row.key), width, row.help,
                       field_type(row), allowed.empty() ? "" : ", ", allowed,
                       row.required ? "required" : "default " + default_of(row));
}

std::string markdown_line(const Field& row) {
    std::string help = row.help;
    if (!row.aliases.empty()) {
        help += " Also accepted:";
        for (size_t i = 0; i < row.aliases.size(); ++i) {
            help += fmt::format("{} `{}`", i ? "," : "", row.aliases[i]);
        }
        help += ".";
    }
    return fmt::format("| `{}` | `{}` | {} | {} | {} |\n", leaf_of(row.key),
                       escape_cell(default_of(row)), field_type(row),
                       escape_cell(field_allowed(row)), escape_cell(help));
}

constexpr const char* kTableHead =
    "| key | default | type | allowed | what it is |\n|---|---|---|---|---|\n";

}  // namespace

std::string help_text(const std::vector<Field>& rows) {
    size_t width = 0;
    for (const Field& row : rows) width = std::max(width, leaf_of(row.key).size());
    std::string out, section;
    for (const Field& row : rows) {
        if (section_of(row.key) != section) {
            section = section_of(row.key);
            out += fmt::format("{}[{}]\n", out.empty() ? "" : "\n", section);
        }
        out += help_line(row, "  ", width);
        if (const TableList* list = std::get_if<TableList>(&row.target)) {
            for (const Field& f : list->defaults()) out += help_line(f, "      ", width - 4);
        }
    }
    return out;
}

std::string help_markdown(const std::vector<Field>& rows) {
    std::string out, section, lists;  // the tables of a section's lists stand behind its own
    for (const Field& row : rows) {
        if (section_of(row.key) != section) {
            out += std::exchange(lists, {});
            section = section_of(row.key);
            out += fmt::format("{}## [{}]\n\n{}", out.empty() ? "" : "\n", section, kTableHead);
        }
        out += markdown_line(row);
        if (const TableList* list = std::get_if<TableList>(&row.target)) {
            lists += fmt::format("\n### [[{}]]\n\n{}", row.key, kTableHead);
            for (const Field& f : list->defaults()) lists += markdown_line(f);
        }
    }
    return out + lists;
}

}  // namespace vt
