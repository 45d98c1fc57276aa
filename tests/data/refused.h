// SPDX-License-Identifier: MIT
// What tests of readers ask again and again: a fresh index, and how something was refused.
#pragma once

#include <string>

#include "core/check.h"
#include "data/loader.h"
#include "tests/paths.h"

namespace vt::test {

/// Indexed by this build's program, never from a cache.
inline const IndexOptions kFresh{.program = program(), .timeout_s = 60, .cache = false};

/// "3: message | hint" of the Error that `body` throws, the number being its Fault; "none".
template <typename Body>
std::string refusal_of(const Body& body) {
    try {
        body();
    } catch (const Error& e) {
        return fmt::format("{}: {} | {}", static_cast<int>(e.fault()), e.message(), e.hint());
    }
    return "none";
}

inline bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

}  // namespace vt::test
