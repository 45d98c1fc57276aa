// SPDX-License-Identifier: MIT
// Writing a checkpoint: it exists whole and verified, or it does not exist. Floor 5.
#pragma once

#include <vector>

#include "ckpt/state.h"
#include "comm/comm.h"
#include "core/file.h"

namespace vt {

/// Writes run_dir/step-NNNNNNNN on all ranks of `world` (every rank calls it) and returns its path.
///
///   step-N.tmp/          created by rank 0
///   rank-RRRRR.safetensors   by every rank: space reserved, written in pieces, synced, closed
///   manifest.json        by rank 0, last: every extent of every tensor with its checksum
///   step-N.tmp -> step-N     one rename, directory synced before, parent after
///
/// A directory step-N that is there already changes places with the new one in one system call
/// (where the file system can; else it is renamed first) and ends as step-N.abandoned-K.
/// "committed" is printed by rank 0 only after the parent is synced. The working set beyond the
/// state itself is a few KiB.
///
/// If any rank fails, every rank throws (the culprit its own error, the others kSystem naming it),
/// the temporary directory is removed and older checkpoints are untouched. kBug naming the tensor
/// if the ranks' parts do not tile it.
fs::path save(const fs::path& run_dir, const CheckpointInfo& info,
              const std::vector<StateTensor>& states, Group& world);

}  // namespace vt
