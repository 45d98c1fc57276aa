// SPDX-License-Identifier: MIT
// Files that a user names for a command's result. Floor 7.
#pragma once

#include <filesystem>

namespace vt {

/// Raises kUser where no file can be at `path`: its folder is missing or is none, or it is a folder
/// itself. To be asked before the work whose result is to go there.
void expect_file_place(const std::filesystem::path& path);

}  // namespace vt
