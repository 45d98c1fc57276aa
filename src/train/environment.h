// SPDX-License-Identifier: MIT
// What a process runs on, for the record.
// Floor 6.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace vt {

/// {"version", "0.1.0"}, {"build", ...}, {"instruction path", ...}, {"threads", ...}, {"mesh",
/// ...},
/// {"processor", ...}, {"memory", ...}, {"system", ...}, {"host", ...}; what cannot be read is left
/// out.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> environment(
    const std::string& instruction_path, int threads, const std::string& mesh);

}  // namespace vt
