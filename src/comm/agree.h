// SPDX-License-Identifier: MIT
// Errors are agreed on before the next collective: no rank leaves the others waiting. Floor 1.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "comm/comm.h"

namespace vt {

/// Runs `work` (no collectives inside) on every rank of the group, then compares. If it threw
/// anywhere, every rank throws: a rank that failed its own exception, the others an Error of the
/// lowest failing rank's fault, with its message, saying "rank R could not <doing>".
void agree(Group& group, std::string_view doing, const std::function<void()>& work);

/// rank 0's text on every rank.
[[nodiscard]] std::string broadcast_text(Group& group, const std::string& text, int root = 0);

/// Rank 0: the texts of all ranks in rank order; elsewhere empty.
[[nodiscard]] std::vector<std::string> gather_texts(Group& group, const std::string& text);

}  // namespace vt
