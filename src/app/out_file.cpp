// SPDX-License-Identifier: MIT
#include "app/out_file.h"

#include <fmt/format.h>
#include <system_error>

#include "core/check.h"

namespace vt {

namespace fs = std::filesystem;

void expect_file_place(const fs::path& path) {
    std::error_code ignored;
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    if (!fs::is_directory(folder, ignored)) {
        raise(Fault::kUser,
              fmt::format("{}: there is no folder {}", path.string(), folder.string()),
              "make it first, or name another file");
    }
    if (!path.has_filename() || fs::is_directory(path, ignored)) {
        raise(Fault::kUser, fmt::format("{} is a folder", path.string()), "name a file in it");
    }
}

}  // namespace vt
