// SPDX-License-Identifier: MIT
// The walk over toml++, the only file that knows the library. Floor 1.
#include "config/toml.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

// Some malformed texts (a line "[ = 4") run into the parser's own assertions instead of its errors;
// here these are exceptions, in every build type, so that no text ends the program.
#undef NDEBUG
namespace vt {
struct TomlAssertion {};
[[noreturn]] static void toml_assertion_failed() {
    throw TomlAssertion{};
}
}  // namespace vt
#define TOML_ASSERT(condition) (static_cast<bool>(condition) ? void() : vt::toml_assertion_failed())
#include <toml++/toml.h>

#include "config/huge.h"
#include "config/letters.h"
#include "core/file.h"

namespace vt {

namespace {

constexpr size_t kMaxConfigBytes = size_t{4} << 20;
constexpr const char* kTomlHint = "the file must be TOML 1.0; text values need quotes";

int line_of(const toml::node& node) {
    return static_cast<int>(node.source().begin.line);
}

// Where numbers stood that no TOML parser need hold, and how they were written.
using HugeNumbers = std::map<std::pair<int, unsigned>, std::string>;  // (line, column) ->

// A text and what it says. Numbers that the parser refuses as too large are floats here, so that
// the row they are for can say what is allowed there.
struct Parsed {
    toml::table root;
    HugeNumbers huge;
};

// The byte of a position; columns count characters.
size_t offset_of(std::string_view text, const toml::source_position& at) {
    size_t i = 0;
    for (toml::source_index line = 1; line < at.line && i < text.size(); ++i) {
        line += text[i] == '\n' ? 1 : 0;
    }
    const auto inside = [&](size_t k) {
        return k < text.size() && (static_cast<unsigned char>(text[k]) & 0xC0U) == 0x80U;
    };
    for (toml::source_index column = 1; column < at.column && i < text.size(); ++column) {
        ++i;
        while (inside(i)) ++i;
    }
    return std::min(i, text.size());
}

// offset_of, the other way.
toml::source_position position_of(std::string_view text, size_t offset) {
    const std::string_view before = text.substr(0, offset);
    const size_t start = before.rfind('\n') + 1;  // 0 on the first line
    const auto characters =
        std::count_if(before.begin() + static_cast<std::ptrdiff_t>(start), before.end(),
                      [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    return {static_cast<toml::source_index>(std::count(before.begin(), before.end(), '\n') + 1),
            static_cast<toml::source_index>(characters + 1)};
}

// toml::parse, whose errors pass through.
Parsed parse_text(std::string text) {
    if (const std::optional<size_t> at = letter_outside_quotes(text)) {
        throw toml::parse_error("a letter outside ASCII outside of quotes", position_of(text, *at));
    }
    constexpr size_t kMostHuge = 20;  // each takes another pass
    Parsed out;
    for (;;) {
        try {
            out.root = toml::parse(text);
            return out;
        } catch (const toml::parse_error& e) {
            const toml::source_position at = e.source().begin;
            const std::optional<HugeNumber> number = huge_number_near(text, offset_of(text, at));
            if (!number || out.huge.size() == kMostHuge) throw;
            const toml::source_position begin = position_of(text, number->begin);
            out.huge[{static_cast<int>(begin.line), begin.column}] =
                text.substr(number->begin, number->end - number->begin);
            text.replace(number->begin, number->end - number->begin, toml_number(number->value));
        }
    }
}

TomlValue convert(const toml::node& node, const HugeNumbers& huge) {
    TomlValue out;
    out.line = line_of(node);
    if (const auto it = huge.find({out.line, node.source().begin.column}); it != huge.end()) {
        if (node.is_floating_point()) out.written = it->second;
    }
    if (const auto* b = node.as_boolean()) {
        out.v = b->get();
    } else if (const auto* i = node.as_integer()) {
        out.v = i->get();
    } else if (const auto* f = node.as_floating_point()) {
        out.v = f->get();
    } else if (const auto* s = node.as_string()) {
        out.v = s->get();
    } else if (const auto* array = node.as_array()) {
        TomlArray items;
        for (const toml::node& item : *array) items.push_back(convert(item, huge));
        out.v = std::move(items);
    } else if (const auto* table = node.as_table()) {
        TomlTable items;
        for (const auto& [key, item] : *table) {
            items.push_back({std::string(key.str()), convert(item, huge)});
        }
        out.v = std::move(items);
    }
    return out;
}

// toml::table orders by name; people read mistakes in the order of their lines.
struct Found {
    std::string key;
    TomlValue value;
    int line = 0;
    unsigned column = 0;
    bool section = false;
};

std::string with_underscores(std::string_view key) {
    std::string out(key);
    std::replace(out.begin(), out.end(), '-', '_');
    return out;
}

std::vector<Found> flatten(const Parsed& parsed) {
    std::vector<Found> found;
    const auto add = [&](std::string name, const toml::key& key, const toml::node& node,
                         bool section) {
        found.push_back({std::move(name), convert(node, parsed.huge),
                         static_cast<int>(key.source().begin.line), key.source().begin.column,
                         section});
    };
    for (const auto& [key, node] : parsed.root) {
        const std::string section = with_underscores(key.str());
        const toml::table* table = node.as_table();
        if (table == nullptr || table->empty()) {
            add(section, key, node, table != nullptr);
            continue;
        }
        for (const auto& [inner, value] : *table) {
            add(section + "." + with_underscores(inner.str()), inner, value, false);
        }
    }
    std::stable_sort(found.begin(), found.end(), [](const Found& a, const Found& b) {
        return std::pair(a.line, a.column) < std::pair(b.line, b.column);
    });
    return found;
}

std::string_view trim(std::string_view s) {
    const auto space = [](char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; };
    while (!s.empty() && space(s.front())) s.remove_prefix(1);
    while (!s.empty() && space(s.back())) s.remove_suffix(1);
    return s;
}

bool trips(std::string_view text) {
    try {
        (void)toml::parse(text);
    } catch (const TomlAssertion&) {
        return true;
    } catch (const toml::parse_error&) {
        return false;
    }
    return false;
}

// The line on which an assertion of the parser stops: the shortest run of whole lines that trips
// it. It reads from front to back, so longer runs trip it too.
size_t line_of_assertion(std::string_view text) {
    std::vector<size_t> ends;
    for (size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\n') ends.push_back(i + 1);
    }
    size_t low = 0, high = ends.size();  // the first `low` lines do not trip it
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (trips(text.substr(0, ends[middle]))) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return low + 1;
}

// The value of "v = <text>", or nothing where that is not exactly one TOML key.
std::optional<TomlValue> one_value(std::string_view text, std::string* why) {
    try {
        const Parsed parsed = parse_text("v = " + std::string(text));
        const toml::table& table = parsed.root;
        if (const toml::node* node = table.get("v"); node != nullptr && table.size() == 1) {
            return convert(*node, parsed.huge);
        }
        *why = "more than one value";
    } catch (const toml::parse_error& e) {
        *why = std::string(e.description());
    } catch (const TomlAssertion&) {
        *why = "not a TOML value";
    }
    return std::nullopt;
}

}  // namespace

std::vector<Setting> parse_toml(std::string_view text, const std::string& name,
                                const std::filesystem::path& base) {
    Parsed parsed;
    try {
        parsed = parse_text(std::string(text));
    } catch (const toml::parse_error& e) {
        const toml::source_position at = e.source().begin;
        raise(Fault::kUser, fmt::format("{}:{}:{}: {}", name, at.line, at.column, e.description()),
              kTomlHint);
    } catch (const TomlAssertion&) {
        raise(Fault::kUser,
              fmt::format("{}:{}:1: this line is not TOML", name, line_of_assertion(text)),
              kTomlHint);
    }
    std::vector<Setting> out;
    for (Found& f : flatten(parsed)) {
        Setting s;
        s.key = std::move(f.key);
        s.value = std::move(f.value);
        s.origin.text = fmt::format("{}:{}", name, f.line);
        s.base = base;
        s.section = f.section;
        out.push_back(std::move(s));
    }
    return out;
}

std::vector<Setting> parse_toml_file(const std::filesystem::path& file) {
    const std::string name = file.string();
    const auto refuse = [&](const std::string& why) {
        raise(Fault::kUser, fmt::format("cannot read the config file {}: {}", name, why),
              "give the path of a TOML file; configs/ has examples");
    };
    std::error_code ignored;
    if (std::filesystem::is_directory(file, ignored)) refuse("it is a folder");
    // Not read_file: `--config <(generate)` is a pipe.
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> in(std::fopen(file.c_str(), "rbe"),
                                                             &std::fclose);
    if (!in) refuse(std::strerror(errno));
    std::string text;
    char buffer[65536];
    size_t n = 0;
    while ((n = std::fread(buffer, 1, sizeof buffer, in.get())) > 0) {
        text.append(buffer, n);
        if (text.size() > kMaxConfigBytes) refuse("it is larger than 4 MiB");
    }
    if (std::ferror(in.get()) != 0) refuse(std::strerror(errno));
    return parse_toml(text, name, std::filesystem::absolute(file).parent_path());
}

Setting parse_set(const std::string& text) {
    const size_t eq = text.find('=');
    const std::string_view key = trim(std::string_view(text).substr(0, eq));
    if (eq == std::string::npos || key.empty()) {
        raise(Fault::kUser, fmt::format("--set {}: not of the form section.key=value", text),
              "for example --set optim.lr=1e-3");
    }
    Setting s;
    s.key = with_underscores(key);
    s.origin.text = fmt::format("--set {}", key);
    s.base = std::filesystem::current_path();
    s.from_command = true;
    s.raw = std::string(trim(std::string_view(text).substr(eq + 1)));
    std::string why;
    if (std::optional<TomlValue> value = one_value(s.raw, &why)) {
        s.value = std::move(*value);
    } else if (!s.raw.empty() && std::strchr("[{\"'", s.raw.front()) != nullptr) {
        raise(Fault::kUser, fmt::format("--set {}: {}", text, why),
              "a list is written '[\"a\", \"b\"]', in single quotes for the shell");
    } else {
        s.value.v = s.raw;
    }
    s.value.line = 1;
    return s;
}

}  // namespace vt
