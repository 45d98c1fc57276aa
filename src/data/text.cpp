// SPDX-License-Identifier: MIT
#include "data/text.h"

#include <array>
#include <cstdint>

namespace vt {
namespace {

void append_utf8(std::string& out, uint32_t code) {
    const auto put = [&](uint32_t v) { out += static_cast<char>(v); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xc0 | code >> 6);
        put(0x80 | (code & 63));
    } else if (code < 0x10000) {
        put(0xe0 | code >> 12);
        put(0x80 | (code >> 6 & 63));
        put(0x80 | (code & 63));
    } else {
        put(0xf0 | code >> 18);
        put(0x80 | (code >> 12 & 63));
        put(0x80 | (code >> 6 & 63));
        put(0x80 | (code & 63));
    }
}

[[noreturn]] void no_text(const std::string& name, int64_t line, const std::string& why,
                          Fault fault) {
    raise(fault, fmt::format("{} line {}: {}", name, line, why),
          "save the file as UTF-8, e.g. iconv -f LATIN1 -t UTF-8");
}

// After the mark.
std::string from_utf16(std::string_view bytes, bool big, const std::string& name, Fault fault) {
    std::string out;
    int64_t line = 1;
    uint32_t before = 0;
    const auto unit = [&](size_t i) -> uint32_t {
        const auto a = static_cast<unsigned char>(bytes[i]),
                   b = static_cast<unsigned char>(bytes[i + 1]);
        return big ? static_cast<uint32_t>(a << 8 | b) : static_cast<uint32_t>(b << 8 | a);
    };
    for (size_t i = 0; i + 1 < bytes.size(); i += 2) {
        uint32_t code = unit(i);
        if (code >= 0xd800 && code < 0xe000) {
            const uint32_t low = code < 0xdc00 && i + 3 < bytes.size() ? unit(i + 2) : 0;
            if (low < 0xdc00 || low >= 0xe000) {
                no_text(name, line, fmt::format("UTF-16 0x{:04x} is half of a pair", code), fault);
            }
            code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
            i += 2;
        }
        append_utf8(out, code);
        // "\r\n" ends one line
        line += code == '\r' || (code == '\n' && before != '\r') ? 1 : 0;
        before = code;
    }
    if (bytes.size() % 2 != 0) {
        no_text(name, line, "the UTF-16 text ends with half a unit", fault);
    }
    return out;
}

// Length of the character that begins at `i`, 0 if none does (Unicode 15, table 3-7).
size_t utf8_length(std::string_view s, size_t i) {
    const auto at = [&](size_t k) -> unsigned {
        return i + k < s.size() ? static_cast<unsigned char>(s[i + k]) : 0U;
    };
    const auto tail = [&](size_t k) { return (at(k) & 0xc0U) == 0x80U; };
    const unsigned a = at(0);
    if (a < 0x80) return 1;
    if (a >= 0xc2 && a <= 0xdf) return tail(1) ? 2 : 0;
    if (a >= 0xe0 && a <= 0xef) {
        if ((a == 0xe0 && at(1) < 0xa0) || (a == 0xed && at(1) > 0x9f)) return 0;
        return tail(1) && tail(2) ? 3 : 0;
    }
    if (a >= 0xf0 && a <= 0xf4) {
        if ((a == 0xf0 && at(1) < 0x90) || (a == 0xf4 && at(1) > 0x8f)) return 0;
        return tail(1) && tail(2) && tail(3) ? 4 : 0;
    }
    return 0;
}

}  // namespace

std::string plain_text(std::string_view bytes, const std::string& name, Fault fault) {
    std::string converted;
    if (bytes.starts_with("\xef\xbb\xbf")) {
        bytes.remove_prefix(3);
    } else if (bytes.starts_with("\xff\xfe") || bytes.starts_with("\xfe\xff")) {
        converted = from_utf16(bytes.substr(2), bytes[0] == '\xfe', name, fault);
        bytes = converted;
    }
    std::string out;
    out.reserve(bytes.size());
    int64_t line = 1;
    for (size_t i = 0; i < bytes.size();) {
        const size_t n = utf8_length(bytes, i);
        if (n == 0 || bytes[i] == '\0') {
            no_text(name, line,
                    fmt::format("byte 0x{:02x} is not UTF-8 text",
                                static_cast<unsigned char>(bytes[i])),
                    fault);
        }
        if (bytes[i] == '\r') {
            if (i + 1 >= bytes.size() || bytes[i + 1] != '\n') {
                out += '\n';
                ++line;
            }
        } else {
            out.append(bytes.substr(i, n));
            line += bytes[i] == '\n' ? 1 : 0;
        }
        i += n;
    }
    return out;
}

std::string tidy_words(std::string_view s) {
    std::string out;
    for (const char c : s) {
        const auto u = static_cast<unsigned char>(c);
        if (u > ' ' && u != 0x7f) {
            out += c;
        } else if (!out.empty() && out.back() != ' ') {
            out += ' ';
        }
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return out;
}

}  // namespace vt
