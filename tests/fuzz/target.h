// SPDX-License-Identifier: MIT
// What every fuzz target shares. A target accepts any bytes: an Error of the user's or the data's
// kind is the right answer to nonsense; anything else (a bug error, another exception, a signal, a
// sanitizer's finding, a second or a gigabyte) is a finding. See scripts/fuzz.sh.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "core/check.h"

namespace vt::test {

template <typename Body>
void must_refuse_or_accept(const Body& body) {
    try {
        body();
    } catch (const Error& e) {
        if (e.fault() != Fault::kUser && e.fault() != Fault::kData) {
            fmt::print(stderr, "wrong kind of error: {}\n", e.what());
            std::abort();
        }
    }
}

[[nodiscard]] inline std::string_view as_text(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const char*>(data), size};
}

}  // namespace vt::test
