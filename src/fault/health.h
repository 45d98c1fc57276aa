// SPDX-License-Identifier: MIT
// Is a step good? One decision from two numbers that all ranks have alike, and the memory of what
// is usual. Floor 5.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "comm/comm.h"
#include "fault/options.h"

namespace vt {

enum class Verdict : uint8_t { kGood, kNotFinite, kSpike };

// The largest values accepted. They are known before the step begins, so that the decision is two
// comparisons on numbers in memory, wherever they are made.
struct StepLimits {
    double loss = std::numeric_limits<double>::max();
    double grad_norm = std::numeric_limits<double>::max();
};

/// kNotFinite if either value is NaN or infinite, kSpike if one passes its limit.
[[nodiscard]] Verdict judge(double loss, double grad_norm, const StepLimits& limits);

/// Sums of every rank's share of the loss and of the squared gradient norm: after it all ranks hold
/// the same bits, so that judge() says the same everywhere. What is not finite on one rank is not
/// finite on all.
void sum_over_ranks(Group& world, double& loss, double& squared_norm, void* stream);

// Invariants:
//  1. values of bad steps never enter the windows;
//  2. everything here is a function of the options and of the steps noted, and travels with the
//     checkpoint as text, so that a resumed run decides as the uninterrupted one would.
class Health {
  public:
    explicit Health(const HealthOptions& options) : options_(options) {}

    [[nodiscard]] StepLimits limits() const;
    void note(int64_t step, Verdict verdict, double loss, double grad_norm);

    [[nodiscard]] int64_t in_a_row() const { return in_a_row_; }    // bad steps, up to the last one
    [[nodiscard]] int64_t first_bad() const { return first_bad_; }  // where that row began
    [[nodiscard]] bool exhausted() const { return in_a_row_ >= options_.max_consecutive; }
    /// Steps without an update in the history of the present weights.
    [[nodiscard]] int64_t skipped() const { return skipped_; }

    /// May a rollback from the present row of bad steps return to a checkpoint of `step`? Yes if
    /// settle_iters good steps lie between: what a checkpoint of an ailing run holds shows soon.
    [[nodiscard]] bool proved(int64_t step) const {
        return first_bad_ - 1 - step >= options_.settle_iters;
    }

    /// Counted since the run was last settle_iters good steps past the step it failed at, so that
    /// a run that gets further each time may go on.
    [[nodiscard]] int64_t rollbacks() const { return rollbacks_; }
    /// After a checkpoint's record was decoded: the state went back to it from `failed_at`, for the
    /// rollbacks-th time.
    void rolled_back(int64_t failed_at, int64_t rollbacks) {
        failed_at_ = failed_at;
        rollbacks_ = rollbacks;
    }

    /// One line of text, and back; kData if the text is none of these. Of a larger window than
    /// options.window the newest values are kept.
    [[nodiscard]] std::string encode() const;
    void decode(const std::string& text);

  private:
    HealthOptions options_;
    std::vector<double> losses_, norms_;  // oldest first, at most options.window
    int64_t in_a_row_ = 0, first_bad_ = 0, skipped_ = 0;
    int64_t rollbacks_ = 0, failed_at_ = 0;
};

}  // namespace vt
