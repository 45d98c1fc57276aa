// SPDX-License-Identifier: MIT
// The bad samples of a whole run, over all its restarts.
// Floor 3.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace vt {

class BadLedger {
  public:
    /// False if this sample is in it already.
    bool add(int32_t source, int64_t index) { return met_.emplace(source, index).second; }
    /// Different samples so far, those of earlier data sets included.
    [[nodiscard]] int64_t total() const;
    [[nodiscard]] int64_t of_source(int32_t source) const;
    /// The data is another from here on: what was met stays counted, but no longer means a sample.
    void begin_new_data();

    /// "3 0:17 1:4": how many of earlier data sets, then source:index of the present one; the form
    /// a checkpoint keeps. "" is an empty ledger. parse: kData naming `where`.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] static BadLedger parse(const std::string& text, const std::string& where);
    bool operator==(const BadLedger&) const = default;

  private:
    int64_t earlier_ = 0;
    std::set<std::pair<int32_t, int64_t>> met_;  // (source, index)
};

}  // namespace vt
