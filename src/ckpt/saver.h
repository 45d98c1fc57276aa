// SPDX-License-Identifier: MIT
// The checkpoints of a run while it trains: when they are written, by whom, and what happens when
// that fails. Floor 5.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ckpt/options.h"
#include "ckpt/save.h"
#include "ckpt/state.h"
#include "comm/comm.h"
#include "core/arena.h"
#include "core/file.h"
#include "core/pool.h"

namespace vt {

// Saves of one run, one at a time.
//
// Beside training (one rank, a snapshot was declared): save() copies the state into the snapshot
// and returns; a thread of its own writes that. Training is stopped for the copy, and for the rest
// of the save before where that has not ended.
// Else, on one rank: the same thread writes the state itself while save() waits, so that the
// deadline holds. With several ranks every rank writes within save(), over `world`, in step with
// the others; no deadline.
//
// A checkpoint counts when "committed" is printed. What became of a save beside training is known
// at the next call of poll(), save() or drain().
//
// When a save fails: the old checkpoints stay as they are. checkpoint.on_failure = "stop" raises
// kSystem. "continue" warns and tries again at the next interval; after n failures in a row
// 2^(n-1) - 1 intervals are left out before that, so that a sick disk is not made worse. The
// checkpoint.max_failures-th in a row raises kSystem. A contract that was broken (kBug) is raised
// at once.
//
// A save past checkpoint.deadline_s is reported with what it is waiting for, given up, and counts
// as failed. It can publish nothing any more (SaveAttempt). Its snapshot cannot be reused until its
// system call returns; until then interval saves fail.
class Saver {
  public:
    Saver(fs::path run_dir, const CheckpointOptions& options, Group& world);
    /// drain(), and gives up what has not ended by then.
    ~Saver();
    Saver(const Saver&) = delete;
    Saver& operator=(const Saver&) = delete;

    /// Declares the snapshot of these tensors: saves run beside training from now on. Called on
    /// declarations for the plan, and after reserve() again. Nothing with several ranks.
    void declare(const std::vector<StateTensor>& states);
    void reserve() { snapshot_arena_.reserve(); }
    [[nodiscard]] bool beside() const { return !snapshot_.empty(); }
    [[nodiscard]] const Arena& arena() const { return snapshot_arena_; }

    /// The run goes on from this checkpoint of its own, which was loaded and so is whole: after a
    /// resume, or after drain() and a rollback.
    void adopt(const CheckpointInfo& info);

    /// Warns if the file system has no room for two checkpoints of these tensors.
    void check_space(const std::vector<StateTensor>& states) const;

    /// At an interval. May return without a checkpoint, by the rules above.
    void save(const CheckpointInfo& info, const std::vector<StateTensor>& states, Pool& pool);
    /// At the end or on a signal: waits for the save under way, tries twice, and has committed this
    /// step (with this cursor) on return; else it throws.
    void save_last(const CheckpointInfo& info, const std::vector<StateTensor>& states);

    /// At every step boundary: takes note of a save that has ended. Throws by the rules above.
    void poll();
    /// Waits for the save under way, until its deadline. A failure is a warning.
    void drain();

    [[nodiscard]] int64_t committed_step() const { return committed_; }  // newest; -1: none
    [[nodiscard]] int64_t failures() const { return failures_; }         // in a row

  private:
    struct Job;
    void start(const CheckpointInfo& info, std::vector<StateTensor> states);
    [[nodiscard]] std::exception_ptr finish();
    [[nodiscard]] std::exception_ptr over_all_ranks(const CheckpointInfo& info,
                                                    const std::vector<StateTensor>& states);
    void settle(int64_t step, const std::exception_ptr& error);
    void copy_to_snapshot(std::vector<StateTensor>& states, Pool& pool);
    [[nodiscard]] bool stuck();

    struct Kept;

    fs::path run_dir_;
    CheckpointOptions options_;
    Group& world_;
    Arena snapshot_arena_{"snapshot", MemCategory::kWorkspace};
    std::vector<Tensor> snapshot_;  // empty: not beside training
    std::shared_ptr<Kept> kept_;
    std::shared_ptr<Job> job_;                     // under way; null: none
    std::thread thread_;                           // of job_
    std::vector<std::shared_ptr<Job>> abandoned_;  // their threads have not been seen to end
    int64_t committed_ = -1;
    uint64_t committed_cursor_ = 0;
    int64_t failures_ = 0;
    int64_t leave_out_ = 0;  // intervals before the next try
};

}  // namespace vt
