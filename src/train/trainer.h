// SPDX-License-Identifier: MIT
// The training run of one process: plan, memory, resume, the loop, checkpoints, validation.
// Floor 6.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ckpt/load.h"
#include "ckpt/run_dir.h"
#include "ckpt/saver.h"
#include "comm/comm.h"
#include "fault/health.h"
#include "meta/meta.h"
#include "train/breakdown.h"
#include "train/eval.h"
#include "train/events.h"
#include "train/metrics.h"
#include "train/sampling.h"
#include "train/step.h"
#include "train/tensorboard.h"

namespace vt {

struct Interval;  // train/interval.h

// What a Trainer is built from; everything outlives it.
struct TrainerInput {
    const RunConfig& config;
    std::string config_text;  // resolved, canonical TOML; stored with the run and each checkpoint
    std::string mesh;         // Mesh::str()
    const Ops& backend;
    Pool& pool;
    Group& world;
    const Dataset& train;
    const Dataset* valid = nullptr;
    /// Called on resume with the checkpoint's config text; throws kUser if the run may not go on
    /// with the present one, prints what changed otherwise.
    std::function<void(const std::string& old_config)> check_resume;
    /// Initial weights instead of the model's own initialisation (tests); may be empty.
    std::function<void(ParamStore&)> init_weights;
    /// seconds_now() at the start of the process; run.time_limit counts from here. 0: from the
    /// Trainer's construction.
    double begin = 0;
};

// Told where steps begin (before data is asked for) and end (after it is logged).
struct StepObserver {
    virtual ~StepObserver() = default;
    virtual void before_step(int64_t step) = 0;
    virtual void after_step(int64_t step) = 0;
};

// What a run will take, known before anything is allocated.
struct RunPlan {
    int64_t parameters = 0, tensors = 0;
    // How parameters are trained: frozen ones, each of optim.groups, the rest. Empty if all alike.
    struct GroupRow {
        std::string name;  // its patterns; "frozen", "others"
        int64_t parameters = 0, tensors = 0;
        double lr = 0;            // at the peak
        double weight_decay = 0;  // the largest of its tensors'
        int64_t decayed = 0;      // tensors that decay
    };
    std::vector<GroupRow> groups;
    std::array<int64_t, kNumMemCategories> bytes{};  // by category
    int64_t total_bytes = 0;
    struct ShapeRow {
        std::array<int64_t, 4> shape{};
        int64_t tokens = 0;          // per sample
        double flop_per_sample = 0;  // training: 3 x forward
    };
    std::vector<ShapeRow> shapes;
    double executed_flop_per_step = 0;     // of a step of the largest shape, recompute included
    std::array<int64_t, 4> ops_shape{};    // the largest shape
    std::vector<OpTotal> ops;              // of a step of one micro-batch of it
    std::vector<Arena::Item> activations;  // what is alive at the high-water mark
};

class Trainer {
  public:
    explicit Trainer(const TrainerInput& input);
    ~Trainer();
    Trainer(const Trainer&) = delete;
    Trainer& operator=(const Trainer&) = delete;

    /// Runs one step of every shape, validation and sampling on the meta backend over measuring
    /// arenas. No memory of size is taken.
    const RunPlan& plan();

    void observe(StepObserver* observer) { observer_ = observer; }

    /// Trains to run.train_iters. Returns 0, or 75 after saving on a signal. kDiverged when bad
    /// steps go on past what [health] allows.
    int run();
    /// After run() returned 75: by what, and where it was saved.
    [[nodiscard]] const std::string& stopped_by() const { return stopped_by_; }

  private:
    void declare();
    void rehearse(const Ctx& meta);
    void make_loader();
    void allocate();
    [[nodiscard]] std::optional<fs::path> resume_source();
    void restore(const std::optional<fs::path>& source);
    /// Renames the EMAs in `wanted` to those of equal definition in the checkpoint; returns the
    /// numbers of those it lacks.
    std::vector<int64_t> match_emas(const CheckpointInfo& info,
                                    std::vector<StateTensor>& wanted) const;
    void adopt_moments(const Loaded& loaded);
    void adopt(const Loaded& loaded, const std::vector<int64_t>& fresh_emas);
    void adopt_stream(const CheckpointInfo& info, const std::string& where);
    void note_bad_samples(int64_t step, const StepBatch& batch);
    void note_bad_step(int64_t step, const StepResult& r, const StepBatch& batch);
    [[nodiscard]] int64_t roll_back(int64_t step);
    [[nodiscard]] std::vector<fs::path> rollback_targets(int64_t step) const;
    void rescuing(int64_t done, const std::function<void()>& work);
    void check_resumable(const CheckpointInfo& info) const;
    void require_memory();
    int loop();
    [[nodiscard]] bool stopping() const;
    int stop_after(int64_t done);
    [[nodiscard]] CheckpointInfo checkpoint_info(int64_t step) const;
    void evaluate(int64_t step);
    void note_save();
    [[nodiscard]] int64_t sample_ema() const;
    void draw_samples(int64_t step);
    void log_step(int64_t step, const StepResult& r);
    void report(const MetricRow& row);
    [[nodiscard]] std::vector<StateTensor> state() const;
    [[nodiscard]] bool saves_beside() const;
    [[nodiscard]] std::vector<RunPlan::GroupRow> plan_groups() const;

    TrainerInput in_;
    const RunConfig& config_;
    Memory memory_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<ParamStore> store_;
    std::unique_ptr<OptimState> optim_;
    std::unique_ptr<Step> step_;
    std::unique_ptr<Validator> validator_;
    std::unique_ptr<RunSampler> sampler_;
    std::unique_ptr<Loader> loader_;
    RunPlan plan_;
    Ctx ctx_;
    int64_t start_step_ = 0;
    double last_loss_ = 0;
    bool save_due_ = false;  // put off while steps are bad
    int64_t noted_save_ = -1;
    int64_t done_step_ = 0;  // the last whose update is in the weights
    uint64_t cursor_ = 0;
    Health health_;
    int64_t explained_ = -1;  // the row of bad steps that was replayed, by its first
    std::string explanation_;
    std::string last_bad_;       // why the last bad step was left out
    uint64_t order_origin_ = 0;  // the ordinal with which the present data set's order began
    BadLedger bad_samples_;      // met before this process
    StepObserver* observer_ = nullptr;
    std::string stopped_by_;
    std::string run_id_;
    std::string origin_;  // the path this run's first step came from; empty: none
    std::unique_ptr<Interval> interval_;
    std::unique_ptr<MetricsFile> metrics_;
    std::unique_ptr<EventsFile> events_;
    std::unique_ptr<RunEvents> record_;  // events.jsonl
    Breakdown breakdown_;
    Consumed consumed_;
    std::unique_ptr<RunLock> lock_;
    std::unique_ptr<Saver> saver_;  // the first to go: its thread writes under the lock
};

}  // namespace vt
