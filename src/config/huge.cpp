// SPDX-License-Identifier: MIT
// Floor 1.
#include "config/huge.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string>
#include <system_error>

namespace vt {

namespace {

bool of_number(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           c == '+' || c == '-' || c == '.';
}

// The digits of one base, as a double; nothing if another character is among them.
std::optional<double> whole(std::string_view digits, int base) {
    if (digits.empty()) return std::nullopt;
    double out = 0;
    for (const char c : digits) {
        const int d = c >= '0' && c <= '9'   ? c - '0'
                      : c >= 'a' && c <= 'f' ? c - 'a' + 10
                      : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                             : base;
        if (d >= base) return std::nullopt;
        out = out * base + d;
    }
    if (base == 10 && std::isfinite(out)) {  // to the last bit
        std::from_chars(digits.data(), digits.data() + digits.size(), out);
    }
    return out;
}

// A decimal with a fraction or an exponent; infinite where double ends.
std::optional<double> real(std::string_view text) {
    double out = 0;
    const char* end = text.data() + text.size();
    const auto [at, error] = std::from_chars(text.data(), end, out);
    const bool digit = !text.empty() && text.front() >= '0' && text.front() <= '9';
    if (at != end || !digit) return std::nullopt;
    if (error == std::errc::result_out_of_range) {
        // too large, or too small: those are 0 to every parser
        return std::numeric_limits<double>::infinity();
    }
    return error == std::errc{} ? std::optional(out) : std::nullopt;
}

}  // namespace

std::optional<HugeNumber> huge_number_near(std::string_view text, size_t at) {
    HugeNumber out{.begin = std::min(at, text.size()), .end = std::min(at, text.size())};
    while (out.begin > 0 && of_number(text[out.begin - 1])) --out.begin;
    while (out.end < text.size() && of_number(text[out.end])) ++out.end;
    std::string token(text.substr(out.begin, out.end - out.begin));
    token.erase(std::remove(token.begin(), token.end(), '_'), token.end());
    const bool signed_ = !token.empty() && (token[0] == '-' || token[0] == '+');
    const bool negative = signed_ && token[0] == '-';
    const std::string_view body = std::string_view(token).substr(signed_ ? 1 : 0);
    const int base = body.starts_with("0x")   ? 16
                     : body.starts_with("0o") ? 8
                     : body.starts_with("0b") ? 2
                                              : 10;
    std::optional<double> value = base == 10 ? whole(body, 10) : whole(body.substr(2), base);
    const bool integer = value.has_value();
    if (!integer && base == 10) value = real(body);
    // -2^63 is an int64, but a parser that stopped at it did so for another reason
    if (!value || (integer ? *value < 0x1p63 : std::isfinite(*value))) return std::nullopt;
    out.value = negative ? -*value : *value;
    return out;
}

}  // namespace vt
