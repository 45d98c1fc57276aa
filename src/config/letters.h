// SPDX-License-Identifier: MIT
// Letters outside ASCII where TOML has none. Floor 1.
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace vt {

/// The first byte above 0x7f outside of quotes and comments, a byte order mark at the start left
/// out: TOML 1.0 has none there. toml++ 3.3 has undefined behaviour for one right behind a value.
[[nodiscard]] std::optional<size_t> letter_outside_quotes(std::string_view text);

}  // namespace vt
