// SPDX-License-Identifier: MIT
#include "config/letters.h"

#include <algorithm>

namespace vt {

namespace {

bool has(std::string_view text, size_t at, std::string_view what) {
    return text.substr(std::min(at, text.size()), what.size()) == what;
}

// The byte behind the quoted text that begins at `at`. One line's quotes end with the line, whether
// they are closed or not.
size_t behind_quotes(std::string_view text, size_t at) {
    const char quote = text[at];
    const std::string_view three = quote == '"' ? "\"\"\"" : "'''";
    const bool lines = has(text, at, three);
    for (size_t i = at + (lines ? 3 : 1); i < text.size(); ++i) {
        if (quote == '"' && text[i] == '\\') {
            ++i;
        } else if (!lines && text[i] == '\n') {
            return i;
        } else if (!lines && text[i] == quote) {
            return i + 1;
        } else if (lines && has(text, i, three)) {
            i += 3;  // up to two quotes may stand before the three that close
            while (i < text.size() && text[i] == quote) ++i;
            return i;
        }
    }
    return text.size();
}

}  // namespace

std::optional<size_t> letter_outside_quotes(std::string_view text) {
    size_t i = has(text, 0, "\xef\xbb\xbf") ? 3 : 0;
    while (i < text.size()) {
        if (static_cast<unsigned char>(text[i]) > 0x7f) return i;
        if (text[i] == '"' || text[i] == '\'') {
            i = behind_quotes(text, i);
        } else if (text[i] == '#') {
            i = std::min(text.find('\n', i), text.size());
        } else {
            ++i;
        }
    }
    return std::nullopt;
}

}  // namespace vt
