// SPDX-License-Identifier: MIT
// Which parameters are trained, and how each one's step differs: patterns over parameter names.
// Floor 4.
#pragma once

#include <string>
#include <vector>

#include "model/params.h"
#include "ops/optimize.h"
#include "optim/options.h"

namespace vt {

/// Does a glob (* any characters, dots too; ? one; [abc]) match the whole name?
[[nodiscard]] bool glob_matches(const std::string& pattern, const std::string& name);

/// The table with the rows that optim.freeze names not trainable. kUser naming the pattern and the
/// nearest name where one matches nothing, and where nothing is left to train.
[[nodiscard]] ParamTable with_frozen(ParamTable table, const std::vector<std::string>& freeze);

/// The number in optim.groups of the last group that names a row, -1 for none; in table order.
/// kUser as above for groups' patterns.
[[nodiscard]] std::vector<int64_t> groups_of(const ParamTable& table, const OptimOptions& o);

/// AdamW's constants of every row, in table order. kUser as groups_of().
[[nodiscard]] std::vector<AdamW> adamw_of(const ParamTable& table, const OptimOptions& o);

}  // namespace vt
