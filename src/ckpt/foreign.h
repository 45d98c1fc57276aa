// SPDX-License-Identifier: MIT
// Naming what is not a checkpoint of this program, so that a refusal says why. Floor 5.
#pragma once

#include <optional>
#include <string>

#include "core/file.h"

namespace vt {

struct ForeignKind {
    std::string what;  // "a file of torch.save (.pt)"
    std::string hint;  // what to do with it
};

/// What `path` is, by the files in it or its first bytes. Nothing if it is not recognised, does not
/// exist or cannot be read.
[[nodiscard]] std::optional<ForeignKind> foreign_kind(const fs::path& path);

}  // namespace vt
