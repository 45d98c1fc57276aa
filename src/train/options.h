// SPDX-License-Identifier: MIT
// [run], [data] and [log]: what the loop itself is told. Floor 6.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ckpt/options.h"
#include "config/field.h"
#include "dist/mesh.h"
#include "fault/options.h"
#include "model/objective.h"
#include "model/options.h"
#include "optim/options.h"

namespace vt {

struct RunOptions {
    std::string name = "run";
    std::string out;  // required: logs, checkpoints, samples; relative to the working directory
    int64_t seed = 1;
    std::string device = "auto";     // cpu | cuda | auto
    std::string precision = "fp32";  // fp32 | bf16
    int64_t train_iters = 0;         // required
    double time_limit = 0;           // minutes; 0: none
    int64_t threads = 0;             // 0: all the process may use
};
[[nodiscard]] std::vector<Field> fields(RunOptions& o);

// One entry of data.train, its path resolved against the config file's folder.
using DataSource = WeightedPath;

struct DataOptions {
    std::vector<DataSource> train;   // required
    std::vector<std::string> valid;  // globs
    std::vector<std::string> names;  // OURS=THEIRS, of data sets in files of another format
    std::string facts;               // JSON file with what such files do not say
    int64_t global_batch_size = 1;
    int64_t micro_batch_size = 1;
    std::vector<int64_t> rampup_batch_size;  // empty, or start, increment, samples
    int64_t reader_threads = 2;
    int64_t prefetch_steps = 2;
    int64_t max_bad_samples = 16;
    std::string on_bad_file = "stop";  // stop | replace
    double stall_warn_s = 30;
    std::string on_change = "refuse";  // refuse | new_epoch
};
[[nodiscard]] std::vector<Field> fields(DataOptions& o);

struct LogOptions {
    int64_t log_interval = 10;
    int64_t eval_interval = 0;    // 0: never
    int64_t eval_samples = 32;    // at most this many validation samples
    int64_t eval_quantiles = 4;   // timestep quantiles per validation sample
    int64_t sample_interval = 0;  // 0: never
    int64_t sample_count = 4;     // captions drawn each time
    int64_t sample_steps = 20;
    double sample_guidance = 3.0;
    std::string sample_solver = "auto";   // auto | euler | unipc | ddim | ddpm
    double sample_shift = 0;              // 0: objective.flow_shift
    std::string sample_weights = "auto";  // auto | raw | ema0 | ema1 | ...
    std::string sample_negative_prompt;
};
[[nodiscard]] std::vector<Field> fields(LogOptions& o);

struct RunConfig {
    RunOptions run;
    ModelOptions model;
    ObjectiveOptions objective;
    DataOptions data;
    OptimOptions optim;
    ParallelOptions parallel;
    CheckpointOptions checkpoint;
    HealthOptions health;
    LogOptions log;
    std::map<std::string, Origin> origins{};  // where each key that was set was set, for messages
};
/// work(); what it refuses as the user's fault or a data file's gets the place in front where the
/// first of `keys` that was set stands: "run.toml:12: ...".
void naming_keys(const RunConfig& c, const std::vector<std::string>& keys,
                 const std::function<void()>& work);

/// All rows of all sections, keys with their section in front ("optim.lr").
[[nodiscard]] std::vector<Field> fields(RunConfig& c);

}  // namespace vt
