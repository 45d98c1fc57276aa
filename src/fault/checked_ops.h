// SPDX-License-Identifier: MIT
// A table of ops that looks at every output for values that are not finite, to say where the first
// one came from. For replaying a step that went wrong: several times slower than the ops it wraps.
// Floor 5.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace vt {

// The first output that was not finite.
struct NotFinite {
    const char* op = "";
    CallSite at;
    int output = 0, outputs = 0;  // which of the op's outputs, from 0; how many it has
    CTensor tensor;               // that output
    int64_t element = 0;          // flat index of its first such value
    double value = 0;
    std::vector<CTensor> bad_inputs;  // arguments that were not finite either

    /// Index along the output's first dim.
    [[nodiscard]] int64_t row() const;
};

// Has the slots of `target` behind checks. After the first find every call does nothing, so that a
// replay ends soon. Host memory only; one user at a time.
struct CheckedOps : Ops {
    explicit CheckedOps(const Ops& target);
    const Ops* target;
    mutable std::optional<NotFinite> found;  // ops are called through a const table
};

/// Flat index of the first value that is NaN or infinite; -1 if there is none. Integers are finite.
[[nodiscard]] int64_t first_not_finite(CTensor t);
/// One element of a float tensor.
[[nodiscard]] double element_of(CTensor t, int64_t index);
/// "0.25", "-inf"; "nan" whatever its sign bit.
[[nodiscard]] std::string value_text(double v);

}  // namespace vt
