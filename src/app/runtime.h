// SPDX-License-Identifier: MIT
// From the configuration to what a run stands on: backend, threads, ranks, data sets.
// Floor 7.
#pragma once

#include <memory>
#include <string>

#include "comm/comm.h"
#include "core/pool.h"
#include "data/loader.h"
#include "dist/mesh.h"
#include "ops/ops.h"
#include "train/options.h"

namespace vt {

struct Runtime {
    /// kUser if the device is not in this build, a launcher started more than one rank, the layout
    /// does not fit the ranks, or the data cannot be used. Writes nothing (but the shards' cached
    /// indexes).
    explicit Runtime(const RunConfig& config);

    Pool pool;
    const Ops* ops = nullptr;
    std::unique_ptr<Group> world;
    Mesh mesh;
    std::unique_ptr<Dataset> train;
    std::unique_ptr<Dataset> valid;  // null without data.valid
};

/// The run's training data. kUser or kData with the place of data.train.
[[nodiscard]] std::unique_ptr<Dataset> open_training_data(const RunConfig& config);

/// run.device resolved to a backend's table; kUser if this build lacks it or it lacks ops.
[[nodiscard]] const Ops& backend_for(const std::string& device);
/// The same among these tables (cuda may be null): "auto" takes cuda where its table is complete.
[[nodiscard]] const Ops& choose_backend(const std::string& device, const Ops& cpu, const Ops* cuda);

/// May a run with `now` continue a checkpoint whose resolved configuration was `old_text`? Keys of
/// [model] (but recompute), [objective], run.seed, run.precision and the mixture's weights must be
/// equal: kUser naming each that is not. Every other change is printed.
void check_resumed_config(const std::string& old_text, const RunConfig& now);

}  // namespace vt
