// SPDX-License-Identifier: MIT
// A run's configuration: file, then --set overrides, then the rules that join several keys.
// Floor 7.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "train/options.h"

namespace vt {

/// Reads `file` (may be empty: only --set), applies `sets` ("section.key=value") and validates.
/// kUser with file, line, key, value and what is allowed.
[[nodiscard]] RunConfig load_run_config(const std::filesystem::path& file,
                                        const std::vector<std::string>& sets);

/// The same of a text, e.g. the copy in a checkpoint. `name` stands in for the file in messages,
/// relative paths start at `base`.
[[nodiscard]] RunConfig parse_run_config(const std::string& text, const std::string& name,
                                         const std::filesystem::path& base);

/// The resolved configuration, every key, as TOML that reads back to the same values. Its data
/// paths are absolute.
[[nodiscard]] std::string dump(const RunConfig& config);

/// Every key with type, range and default, for the console.
[[nodiscard]] std::string help_table();
/// The whole text of configs/README.md.
[[nodiscard]] std::string config_readme();

}  // namespace vt
