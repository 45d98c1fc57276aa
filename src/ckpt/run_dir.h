// SPDX-License-Identifier: MIT
// The folder of a run: who may write it, and which checkpoints stay. Floor 5.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/file.h"

namespace vt {

/// "step-00001000"
[[nodiscard]] std::string step_name(int64_t step);

struct StepDir {
    int64_t step = 0;
    fs::path path;
};
/// Directories named exactly step-N (8 digits or more), highest first; not verified. Empty if
/// run_dir does not exist.
[[nodiscard]] std::vector<StepDir> step_dirs(const fs::path& run_dir);

// Held by rank 0 while a run writes run.out. A second run is refused (kUser, naming process and
// host). The kernel drops the lock when the process ends, however it ends.
class RunLock {
  public:
    explicit RunLock(const fs::path& run_dir);  // creates run_dir if need be

  private:
    Fd fd_;
};

// step-N.tmp-<id of the attempt>: what a save writes into
inline constexpr const char* kTempMark = ".tmp-";

/// Removes what interrupted saves and prunes left (*.tmp-*, *.pruned). Only under the lock, and
/// while no save is under way.
void clean_stale(const fs::path& run_dir);

// Which checkpoints of a run stay.
struct Retention {
    int64_t keep_last = 3;   // the newest ones; >= 2
    int64_t keep_every = 0;  // and every step that this divides, for ever; 0: none
};

/// Removes every checkpoint of this run_id that `keep` does not name. Each is first renamed to
/// step-N.pruned, so that a half-removed one is never taken for a checkpoint. Damaged ones and
/// those of other runs count for nothing and are left alone.
/// Nothing is removed before two that stay are verified, every byte: those in `verified` are known
/// to be (this process wrote or loaded them), others are read here and added. The one of
/// `just_written` (-1: none) always stays. kBug if keep_last < 2. Returns the steps removed.
std::vector<int64_t> prune(const fs::path& run_dir, const Retention& keep,
                           const std::string& run_id, std::set<int64_t>& verified,
                           int64_t just_written);

/// Renames every step-N with N > step to step-N.abandoned-K (lowest free K), which is never
/// selected: after a rollback or a resume from a path the old future is another lineage. Returns
/// the new names.
std::vector<fs::path> abandon_later(const fs::path& run_dir, int64_t step);

/// step-N -> step-N.abandoned-K for one directory; the parent is not synced.
fs::path abandon(const fs::path& dir);

}  // namespace vt
