// SPDX-License-Identifier: MIT
// Reading checkpoints. Loading always reshards: what a rank asks for is intersected with what the
// saving ranks wrote. Floor 5.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/state.h"
#include "comm/comm.h"
#include "core/file.h"

namespace vt {

/// The step-N directory of the highest step whose manifest verifies: its own checksum, known
/// version, every tensor tiled, every payload file there with its size. Directories that fail are
/// skipped with a warning that says why. Nothing where there is no good one. Never looks at time
/// stamps, *.tmp or *.abandoned-*. Call on one rank and broadcast (load_latest does).
[[nodiscard]] std::optional<fs::path> find_latest(const fs::path& run_dir);

/// `path` itself if it is a checkpoint, else the newest good one of the run's folder it names.
/// kUser if there is neither, saying what it is where that is known (foreign.h); kData if there are
/// some but none is good.
[[nodiscard]] fs::path checkpoint_at(const fs::path& path);

/// Facts of one checkpoint; the manifest is verified. kUser if `dir` is no checkpoint, kData naming
/// it if it is damaged.
[[nodiscard]] CheckpointInfo read_info(const fs::path& dir);

/// Names of all state tensors, sorted.
[[nodiscard]] std::vector<std::string> tensor_names(const fs::path& dir);

struct LoadReport {
    std::vector<std::string> unused;   // in the checkpoint, not asked for
    std::vector<std::string> missing;  // optional and not in the checkpoint
    int64_t bytes_read = 0;            // of tensors
};

/// Fills every state's `local`. Each extent read is compared with its checksum before load returns;
/// after an exception the states hold garbage and must be loaded again or dropped. kData naming the
/// tensor: missing, another shape or dtype, or damaged.
LoadReport load(const fs::path& dir, const std::vector<StateTensor>& states);

/// Every byte of every file against its checksum; kData naming file and tensor.
void verify(const fs::path& dir);

struct Manifest;

// One checkpoint, tensor by tensor. The manifest and the files' headers are verified on opening.
class CheckpointReader {
  public:
    /// kUser if `dir` is no checkpoint, kData if it is damaged.
    explicit CheckpointReader(fs::path dir);
    ~CheckpointReader();
    CheckpointReader(const CheckpointReader&) = delete;
    CheckpointReader& operator=(const CheckpointReader&) = delete;

    [[nodiscard]] const Manifest& manifest() const;
    /// The whole tensor, in its own dtype, compared with its checksums. kData naming it if it is
    /// not there, has another shape or dtype, or is damaged.
    void read(const std::string& name, Tensor out) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

struct Loaded {
    fs::path dir;
    CheckpointInfo info;
    LoadReport report;
};
/// find_latest + accept + load on all ranks of `world` alike: rank 0 chooses, all load, and if any
/// rank finds damage all fall back to the one before, with a warning of the steps lost. `accept`
/// (may be empty) sees the facts before a weight is read and throws to refuse (a changed model,
/// say); that ends the search. Nothing where there is no checkpoint at all; kData if there are some
/// but none is good. After a fall-back, abandon_later(run_dir, info.step) before the first save.
[[nodiscard]] std::optional<Loaded> load_latest(
    const fs::path& run_dir, const std::vector<StateTensor>& states, Group& world,
    const std::function<void(const CheckpointInfo&)>& accept);

}  // namespace vt
