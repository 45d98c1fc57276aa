// SPDX-License-Identifier: MIT
// Where TOML may have letters outside ASCII, and where it may not.
#include <string>

#include <doctest/doctest.h>

#include "config/letters.h"

namespace vt {

TEST_CASE("config: letters outside ASCII stand in quotes and comments only") {
    const std::string u = "\xc3\xbc";
    for (const std::string& fine :
         {std::string(), "a = \"" + u + "\"", "a = '" + u + "'", "# " + u, "a = 1 # \"" + u,
          "a = \"\"\"" + u + "\n\"" + u + "\"\"\" # " + u, "a = '''" + u + "\n'" + u + "'''",
          "a = \"\\\"" + u + "\"", "a = \"\\\\\" # " + u, "a = '\\' # " + u,
          "a = \"\"\"x" + u + "\"\"\"\"\" # " + u, "\xef\xbb\xbf" + std::string("a = 1"),
          "a = \"\" # " + u, "a = '' # " + u, "a = \"\"\"\\\"\"\"" + u + "\"\"\"",
          "a = \"" + u + "\"\r\n# " + u + "\r\n"}) {
        CAPTURE(fine);
        CHECK_FALSE(letter_outside_quotes(fine).has_value());
    }
    const auto at = [&](const std::string& before) {
        CAPTURE(before);
        return letter_outside_quotes(before + u) == before.size();
    };
    CHECK(at(""));
    CHECK(at("a = 5"));
    CHECK(at("a = 1979-05-27"));
    CHECK(at("a = \"x\""));
    CHECK(at("a = 'x' "));
    CHECK(at("# x\n"));
    CHECK(at("a = \"not closed\n"));
    CHECK(at("a = \"\"\"x\"\"\""));
    CHECK(at("a = '''x'''''"));
    CHECK(at("a = \"\\\\\""));
    CHECK(at("a = '\\'"));
    CHECK_FALSE(letter_outside_quotes("a = \"\"\"never closed\n" + u).has_value());
    CHECK_FALSE(letter_outside_quotes("a = \"ends in an escape\\").has_value());
}

}  // namespace vt
