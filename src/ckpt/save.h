// SPDX-License-Identifier: MIT
// Writing a checkpoint: it exists whole and verified, or it does not exist. Floor 5.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "ckpt/state.h"
#include "comm/comm.h"
#include "core/file.h"

namespace vt {

// One attempt at a save, as another thread sees it: how far it is, and the right to publish. The
// id is in the name of its temporary directory, so that an attempt that was given up can touch
// nothing of a later one, however late its system calls return.
class SaveAttempt {
  public:
    SaveAttempt();  // a new random id

    [[nodiscard]] const std::string& id() const { return id_; }  // 16 hex digits

    /// Gives the attempt up: it will not publish, touches the state no more after the piece it is
    /// at, removes its temporary directory and throws. False if it has begun to publish: what
    /// becomes of it is then up to the file system.
    bool abandon();
    [[nodiscard]] bool abandoned() const { return phase_.load() == Phase::kAbandoned; }

    /// "write", "sync", "commit" ...: what save() is at.
    [[nodiscard]] const char* doing() const { return doing_.load(); }
    [[nodiscard]] int64_t bytes_written() const { return bytes_.load(); }  // of tensors

    // The rest is called by save().

    /// kSystem if the attempt was given up.
    void check() const;
    void at(const char* doing) {
        check();
        doing_ = doing;
    }
    void wrote(int64_t bytes) {
        check();
        bytes_ += bytes;
    }
    /// From here on abandon() comes too late; kSystem if it came before.
    void begin_publish();

  private:
    enum class Phase : uint8_t { kWriting, kPublishing, kAbandoned };
    std::string id_;
    std::atomic<Phase> phase_{Phase::kWriting};
    std::atomic<const char*> doing_{"begin"};
    std::atomic<int64_t> bytes_{0};
};

/// Writes run_dir/step-NNNNNNNN on all ranks of `world` (every rank calls it) and returns its path.
///
///   step-N.tmp-<id>/     created by rank 0; <id> is rank 0's attempt
///   rank-RRRRR.safetensors   by every rank: space reserved, written in pieces, synced, closed
///   manifest.json        by rank 0, last: every extent of every tensor with its checksum
///   step-N.tmp-<id> -> step-N     one rename, directory synced before, parent after
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
              const std::vector<StateTensor>& states, Group& world, SaveAttempt& attempt);
/// The same by an attempt of its own.
fs::path save(const fs::path& run_dir, const CheckpointInfo& info,
              const std::vector<StateTensor>& states, Group& world);

}  // namespace vt
