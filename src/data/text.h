// SPDX-License-Identifier: MIT
// Text files as people have them, made UTF-8 with plain line ends.
// Floor 3.
#pragma once

#include <string>
#include <string_view>

#include "core/check.h"

namespace vt {

/// UTF-8 without a byte order mark, lines ended by "\n" (from "\r\n" and "\r" too). UTF-16 is
/// converted where it begins with its mark. Raises `fault` with `name` and line for what is
/// neither, which UTF-16 cut inside a unit or with half of a pair is too.
[[nodiscard]] std::string plain_text(std::string_view bytes, const std::string& name,
                                     Fault fault = Fault::kUser);

/// White space at the ends gone, inside it one space each; control characters count as space.
[[nodiscard]] std::string tidy_words(std::string_view s);

}  // namespace vt
