// SPDX-License-Identifier: MIT
// Where a data set lies while it is made, and its way into place.
// Floor 3.
#pragma once

#include <string>
#include <vector>

#include "core/file.h"

namespace vt {

/// Whether `dir` holds *.h5.
[[nodiscard]] bool holds_shards(const fs::path& dir);

// out/.encoding, locked while in use; removed at scope end. One whose lock is free was left by a
// run that was killed: it is cleared, or if its shards were complete, their move is completed.
class Staging {
  public:
    /// kUser if another run holds it, or `out` is no folder one can write; kSystem otherwise.
    explicit Staging(const fs::path& out);
    ~Staging();
    Staging(const Staging&) = delete;
    Staging& operator=(const Staging&) = delete;
    [[nodiscard]] const fs::path& dir() const { return dir_; }
    [[nodiscard]] fs::path part(bool valid) const { return dir_ / (valid ? "valid" : "train"); }
    /// Moves everything in train/ to out/ and in valid/ to out/valid/. From the first move on it is
    /// completed by whoever comes next. Returns the files' new names.
    std::vector<fs::path> publish();

  private:
    std::vector<fs::path> move_all();
    void cleanup() noexcept;
    bool made_out_, busy_ = false, moving_ = false;
    fs::path out_, dir_;
    Fd lock_;
};

}  // namespace vt
