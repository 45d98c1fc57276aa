// SPDX-License-Identifier: MIT
// The meta backend: computes nothing, touches no memory, counts flop, bytes and calls (through the
// front desk). With it the trainer's own code runs on declarations for `--dry-run`.
// Floor 2.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ops/ops.h"

namespace vt {

/// A complete table whose slots do nothing; scratch_bytes is target's, so that the plan is that of
/// the backend the run will use.
[[nodiscard]] Ops meta_ops(const Ops& target);

// What was asked of one op.
struct OpTotal {
    std::string op;
    int64_t calls = 0;
    double flop = 0, bytes = 0;
    /// flop per byte; below the machine's flop rate over its memory rate, memory is the limit.
    [[nodiscard]] double intensity() const { return bytes > 0 ? flop / bytes : 0; }
};

// Adds up calls by op, as Ctx::observer: the costs are the front desk's, those of every backend.
class Ledger final : public OpObserver {
  public:
    void begin(const char* op, double flop, double bytes) override;
    void end(const char* /*op*/) override {}
    /// Most flop first, equal ones by name.
    [[nodiscard]] std::vector<OpTotal> totals() const;

  private:
    std::map<std::string, OpTotal> by_op_;
};

}  // namespace vt
