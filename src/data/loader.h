// SPDX-License-Identifier: MIT
// From the cursor to micro-batches in memory: the data set, the order of draws, the step's plan,
// and the prefetching reader.
// Floor 3.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/arena.h"
#include "core/check.h"
#include "core/tensor.h"
#include "data/facts.h"
#include "data/ledger.h"
#include "data/shard.h"

namespace vt {

class ReadWatch;

/// Files that match `pattern` (*, ?, [abc]; relative to base_dir unless absolute), sorted by bytes.
/// kUser naming the pattern when nothing matches or it names a folder.
[[nodiscard]] std::vector<fs::path> expand_globs(const std::string& pattern,
                                                 const fs::path& base_dir);

// How shards are indexed. `program` is run as `program data index-child FILES`.
struct IndexOptions {
    fs::path program = "/proc/self/exe";
    double timeout_s = 60;  // per file, wall clock
    bool cache = true;      // read and write index files beside the shards
    Foreign foreign = {};   // how to read files that are not in our format
};

struct SourceSpec {               // one entry of data.train
    std::vector<fs::path> files;  // resolved, sorted
    double weight = 1.0;          // share of samples, relative to the other entries
    std::string name;             // as the config spells it, for messages
};

// A shard that fails as a whole: it vanished, changed, was cut or forbidden, or its file system
// does not answer. kSystem where a restart may help, else kData.
class FileFault : public Error {
  public:
    /// number: the errno, 0 if the file is there but not the one that was indexed.
    FileFault(std::string message, int32_t file, int64_t samples, int number);
    [[nodiscard]] int32_t file() const noexcept { return file_; }  // Dataset::Sample::file
    [[nodiscard]] int64_t samples() const noexcept { return samples_; }
    [[nodiscard]] bool may_pass() const noexcept { return fault() == Fault::kSystem; }

  private:
    int32_t file_;
    int64_t samples_;  // that the index knows in it
};

// Every sample of every source, from the shards' indexes (built by the limited child process and
// cached; no payload is read). Missing, truncated, mixed or contradictory shards: kUser or kData
// naming the file and the fix.
class Dataset {
  public:
    struct Sample {
        int32_t source = 0, file = 0;
        int64_t row = 0;                 // inside the file
        std::array<int64_t, 4> shape{};  // C,T,H,W
    };
    [[nodiscard]] static std::unique_ptr<Dataset> open(const std::vector<SourceSpec>& sources,
                                                       const IndexOptions& options = {});
    virtual ~Dataset() = default;
    [[nodiscard]] virtual const LatentFacts& facts() const = 0;
    [[nodiscard]] virtual int num_sources() const = 0;
    [[nodiscard]] virtual int64_t source_size(int source) const = 0;  // samples
    [[nodiscard]] virtual double source_weight(int source) const = 0;
    /// As the config spells it; for messages and names of metrics.
    [[nodiscard]] virtual std::string source_name(int source) const;
    [[nodiscard]] virtual Sample sample(int source, int64_t index) const = 0;
    [[nodiscard]] virtual std::string sample_id(int source, int64_t index) const = 0;
    /// "clips/0.h5, row 3", as messages name it. Reads nothing.
    [[nodiscard]] virtual std::string sample_place(int source, int64_t index) const;
    [[nodiscard]] virtual std::string caption(int source, int64_t index) const = 0;
    /// All distinct latent shapes, sorted.
    [[nodiscard]] virtual std::vector<std::array<int64_t, 4>> shapes() const = 0;
    /// A hash of facts, files (names, sizes), sample counts and checksums: a data set that changed
    /// since the checkpoint is refused.
    [[nodiscard]] virtual uint64_t fingerprint() const = 0;
    /// pread of one sample: latent (C,T,H,W) and text (text_len, text_dim) zero-padded, converted
    /// to the tensors' dtypes (f32 or bf16), checksum and finiteness verified. Thread-safe. kData
    /// names file, row and reason.
    virtual void read(int source, int64_t index, Tensor latent, Tensor text) const = 0;
    /// read() and sample_id() as a reader under watch does them: FileFault where it is not the
    /// sample but its file that is bad, ReadWatch::Left (see there) if left behind meanwhile.
    virtual void read_watched(int source, int64_t index, Tensor latent, Tensor text,
                              ReadWatch* watch) const;
    [[nodiscard]] virtual std::string sample_id_watched(int source, int64_t index,
                                                        ReadWatch* watch) const;
    /// The embedding of the empty caption, zero-padded to (text_len, text_dim).
    virtual void read_empty_text(Tensor text) const = 0;
};

/// A validation set beside its training set: kData naming a file of each where they were encoded
/// differently; warns where validation samples are training samples. Both from Dataset::open.
void check_held_out(const Dataset& train, const Dataset& valid);

// One training draw. The ordinal is the count of samples consumed since step 0 and keys the draw's
// noise, timestep and caption drop.
struct Draw {
    uint64_t ordinal = 0;
    int32_t source = 0;
    int64_t index = 0;
};

/// Blocks of 65,536 draws, m_d of each by largest remainder, keyed
/// permutation of the block, each source through its own keyed epoch permutation. Pure. With more
/// than one source a call counts through the block so far (milliseconds); Loader remembers instead.
/// `origin` is the ordinal with which the order of this data set began (0 unless the data changed
/// during the run): blocks and epochs are counted from there.
[[nodiscard]] Draw draw_at(const Dataset& data, uint64_t seed, uint64_t ordinal,
                           uint64_t origin = 0);
/// Pure in (seed, ordinal).
[[nodiscard]] bool caption_dropped(uint64_t seed, uint64_t ordinal, double probability);

// A step's micro-batches: slots (offsets from the step's first ordinal) of equal shape, at most
// micro_batch_size each, in a fixed order. Pure; the same on every rank.
struct MicroPlan {
    std::array<int64_t, 4> shape{};
    std::vector<int64_t> slots;
};
[[nodiscard]] std::vector<MicroPlan> plan_step(const Dataset& data, uint64_t seed, uint64_t first,
                                               int64_t global_batch, int64_t micro_batch);

struct MicroBatch {
    std::array<int64_t, 4> shape{};
    std::vector<Draw> draws;  // n, in slot order; a replaced draw keeps its ordinal
    Tensor x0;                // (n,C,T,H,W) f32
    Tensor text;              // (n,text_len,text_dim) f32; dropped captions hold the empty one's
    Tensor ordinals;          // (n) i64
};
// A sample that cannot be had.
struct BadSample {
    Draw draw;  // that asked for it; index is the bad sample, drawn or substituted
    std::string why, id;
    bool of_bad_file = false;  // the file is bad as a whole; id is not known then
};
struct StepBatch {
    uint64_t first = 0;  // cursor before the step
    uint64_t next = 0;   // cursor after it
    std::vector<MicroBatch> micros;
    int64_t replaced = 0;        // draws whose sample is another
    std::vector<BadSample> bad;  // met in this step, by draw (named on stderr the first time)
};

// A batch that grows with the samples consumed: steps of `start` samples first, then `increment`
// more at equal distances, the whole batch from `samples` on. start = 0: no ramp.
struct BatchRamp {
    int64_t start = 0, increment = 0, samples = 0;
    /// The batch of the step whose first draw is `cursor`; pure, never falls. kBug unless `whole`
    /// is `start` and a multiple of `increment`.
    [[nodiscard]] int64_t batch_at(uint64_t cursor, int64_t whole) const;
};

// How often a read is tried before its file counts as bad; the pauses between tries double.
struct RetryOptions {
    int tries = 6;
    double pause_s = 0.1;  // the first: 3.1 s in all
};

struct LoaderOptions {
    uint64_t seed = 1;
    int64_t global_batch_size = 1, micro_batch_size = 1;  // the whole batch, after the ramp
    BatchRamp ramp{};
    [[nodiscard]] int64_t batch_at(uint64_t cursor) const {
        return ramp.batch_at(cursor, global_batch_size);
    }
    uint64_t origin = 0;  // see draw_at; at most the cursor
    double cfg_dropout_prob = 0;
    int reader_threads = 2;
    int prefetch_steps = 2;
    int64_t max_bad_samples = 16;    // more different ones in the whole run: kData
    BadLedger met{};                 // those met before `cursor`
    bool replace_bad_files = false;  // else the first bad file ends the run
    RetryOptions retry{};
    double stall_warn_s = 30;  // a read that takes longer is reported
    double leave_after_s = 2;  // the destructor leaves readers behind that are stuck for longer
};

// Reads some steps ahead in the background. Buffers (prefetch_steps + 1 steps' worth) come from an
// arena of category kData; memory inside a step is not allocated.
class Loader {
  public:
    /// On a measuring arena: declares the buffers only; next() must not be called.
    Loader(const Dataset& data, const LoaderOptions& options, uint64_t cursor, Arena& arena);
    ~Loader();
    Loader(const Loader&) = delete;
    Loader& operator=(const Loader&) = delete;
    /// The next step's data; valid until the next call. Waits if the readers are behind, and says
    /// so on stderr where the file system keeps them; seconds waited are added to *wait. What is
    /// wrong with the step's data is counted, said or thrown here, the same after n steps whatever
    /// the threads did before.
    const StepBatch& next(double* wait);
    /// The same, but null if the data is not there and stop() is true.
    const StepBatch* next_unless(const std::function<bool()>& stop, double* wait);
    /// LoaderOptions::met and what the steps given so far added.
    [[nodiscard]] BadLedger ledger() const;

  private:
    struct Impl;
    std::shared_ptr<Impl> impl_;  // shared with readers that are left behind
};

}  // namespace vt
