// SPDX-License-Identifier: MIT
#include "train/trainer.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

#include "core/hash.h"
#include "core/log.h"
#include "data/facts.h"
#include "fault/signal.h"
#include "meta/meta.h"
#include "model/diffusers.h"
#include "model/registry.h"
#include "prof/machine.h"

namespace vt {

namespace {

// Names a run's lineage of checkpoints; the one number here that is not a function of the seed,
// since two runs of one seed in one folder must be told apart.
std::string new_run_id() {
    uint64_t words[2] = {};
    const fs::path source = "/dev/urandom";
    pread_all(open_read(source), words, sizeof words, 0, source);
    return hex64(words[0]) + hex64(words[1]);
}

ScratchNeed larger(const ScratchNeed& a, const ScratchNeed& b) {
    return {.rows = std::max(a.rows, b.rows),
            .width = std::max(a.width, b.width),
            .head_dim = std::max(a.head_dim, b.head_dim),
            .heads = std::max(a.heads, b.heads),
            .threads = std::max(a.threads, b.threads)};
}

}  // namespace

// What the log reports over an interval.
struct Trainer::Clock {
    double begin = 0;    // of the interval
    double wait = 0;     // seconds of it spent waiting for data
    double outside = 0;  // seconds of it in validation, sampling and saving
    double flop = 0;
    int64_t steps = 0, samples = 0, tokens = 0;
    double loss = 0;  // sum over the interval's steps
    double roof = 0;  // flop/s, measured once
    int64_t bad = 0;  // samples replaced since the start of this process
    void restart() {
        begin = seconds_now();
        wait = outside = flop = loss = 0;
        steps = samples = tokens = 0;
    }
};

Trainer::Trainer(const TrainerInput& input)
    : in_(input), config_(input.config), clock_(std::make_unique<Clock>()) {
    const Precision precision = make_precision(config_.run.precision, config_.model);
    model_ = make_model(config_.model, in_.train.facts(), precision);
    store_ = std::make_unique<ParamStore>(model_->params(), precision, true);
    optim_ = std::make_unique<OptimState>(model_->params(), config_.optim, precision.stat);
    step_ = std::make_unique<Step>(config_, *model_, *store_, *optim_, memory_);
    if (in_.valid != nullptr && config_.log.eval_interval > 0) {
        validator_ = std::make_unique<Validator>(config_, *model_, *in_.valid, memory_);
    }
    if (config_.log.sample_interval > 0) {
        sampler_ = std::make_unique<RunSampler>(
            config_, *model_, in_.valid != nullptr ? *in_.valid : in_.train, memory_);
    }
}

Trainer::~Trainer() = default;

// Everything that lives as long as the run, in both passes.
void Trainer::declare() {
    optim_->declare(memory_.moments, memory_.ema);
    step_->declare();
    if (validator_) validator_->declare();
    ScratchNeed need;
    const auto grow = [&](const Dataset& data) {
        for (const std::array<int64_t, 4>& s : data.shapes()) {
            const BatchShape shape{
                config_.data.micro_batch_size, {s[0], s[1], s[2], s[3]}, data.facts().text_len};
            model_->check(shape);
            need = larger(need, model_->scratch_need(shape));
        }
    };
    grow(in_.train);
    if (validator_) grow(*in_.valid);
    if (sampler_) {
        sampler_->declare();
        need = larger(need, sampler_->scratch_need());
    }
    need.threads = in_.pool.threads();
    ctx_.ops = &in_.backend;
    ctx_.pool = &in_.pool;
    ctx_.count = &count_;
    ctx_.scratch =
        memory_.scratch.alloc("op scratch", {in_.backend.scratch_bytes(need)}, DType::kU8);
}

// On measuring arenas it declares its buffers; on real ones it starts to read.
void Trainer::make_loader() {
    const LoaderOptions options{.seed = static_cast<uint64_t>(config_.run.seed),
                                .global_batch_size = config_.data.global_batch_size,
                                .micro_batch_size = config_.data.micro_batch_size,
                                .cfg_dropout_prob = config_.objective.cfg_dropout_prob,
                                .reader_threads = static_cast<int>(config_.data.reader_threads),
                                .max_bad_samples = config_.data.max_bad_samples};
    loader_ = std::make_unique<Loader>(in_.train, options, cursor_, memory_.data);
}

// One step of every shape, and all that may happen between steps, on declarations.
void Trainer::rehearse(const Ctx& meta) {
    const LatentFacts& facts = in_.train.facts();
    for (const std::array<int64_t, 4>& s : in_.train.shapes()) {
        const int64_t n = config_.data.micro_batch_size;
        StepBatch batch;
        MicroBatch m;
        m.shape = s;
        m.draws.resize(static_cast<size_t>(n));
        m.x0 = Tensor(nullptr, {n, s[0], s[1], s[2], s[3]}, DType::kF32);
        m.text = Tensor(nullptr, {n, facts.text_len, facts.text_dim}, DType::kF32);
        m.ordinals = Tensor(nullptr, {n}, DType::kI64);
        batch.micros.assign(1, m);
        const double before = meta.count->flop;
        (void)step_->run(meta, batch, 1);
        const double executed = meta.count->flop - before;
        plan_.executed_flop_per_step = std::max(
            plan_.executed_flop_per_step, executed / static_cast<double>(n) *
                                              static_cast<double>(config_.data.global_batch_size));
        const LatentShape latent{s[0], s[1], s[2], s[3]};
        plan_.shapes.push_back(
            {s, model_->tokens(latent), 3 * model_->forward_flop({1, latent, facts.text_len})});
    }
    if (validator_) {
        const Weights w = store_->weights();
        (void)validator_->run(meta, w, [] { return false; });
    }
    if (sampler_) sampler_->rehearse(meta, store_->weights());
}

const RunPlan& Trainer::plan() {
    if (plan_.total_bytes > 0) return plan_;
    declare();
    make_loader();
    const Ops meta = meta_ops(in_.backend);
    OpCount count;
    Ctx ctx = ctx_;
    ctx.ops = &meta;
    ctx.count = &count;
    rehearse(ctx);
    plan_.parameters = count_elements(model_->params());
    plan_.tensors = static_cast<int64_t>(model_->params().size());
    const auto add = [&](const Arena& a) {
        plan_.bytes.at(static_cast<size_t>(a.category())) += a.high_water();
        plan_.total_bytes += a.high_water();
    };
    for (const Arena* a : store_->arenas()) add(*a);
    for (const Arena* a : memory_.all()) add(*a);
    plan_.activations = memory_.activations.high_water_list();
    return plan_;
}

std::vector<StateTensor> Trainer::state() const {
    std::vector<StateTensor> out;
    const ParamTable& table = model_->params();
    for (size_t i = 0; i < table.size(); ++i) {
        const auto add = [&](const std::string& kind, const Tensor& t) {
            out.push_back(
                {.name = kind + "/" + table[i].name, .global = t.shape, .local = t, .rect = {}});
        };
        add("model", store_->master()[i]);
        add("adam_m", optim_->m()[i]);
        add("adam_v", optim_->v()[i]);
        for (int64_t k = 0; k < optim_->num_ema(); ++k) {
            add(fmt::format("ema{}", k), optim_->ema(k)[i]);
        }
    }
    return out;
}

// The memory taken, everything in its initial state.
void Trainer::allocate() {
    (void)plan();
    loader_.reset();  // a declaration so far
    store_->reserve();
    memory_.reserve();
    declare();
    if (in_.init_weights) {
        in_.init_weights(*store_);
    } else {
        store_->init(static_cast<uint64_t>(config_.run.seed), &in_.pool);
    }
    optim_->init(ctx_, *store_);
}

namespace {

bool weights_only(const CheckpointInfo& info) {
    return info.extra.count("weights_only") != 0;
}

std::string extra(const CheckpointInfo& info, const char* key) {
    const auto it = info.extra.find(key);
    return it == info.extra.end() ? "" : it->second;
}

}  // namespace

void Trainer::check_resumable(const CheckpointInfo& info) const {
    if (info.data_fingerprint != in_.train.fingerprint() && config_.data.on_change == "refuse" &&
        !weights_only(info)) {
        raise(Fault::kUser,
              fmt::format("the training data is not what the checkpoint of step {} was trained on "
                          "(files, counts or checksums differ)",
                          info.step),
              "put the shards back, or set data.on_change = \"new_epoch\" to go on with the new "
              "data from here");
    }
    if (const std::string sizes = extra(info, "wan_config"); !sizes.empty()) {
        const std::string from = extra(info, "imported_from");
        require_same_sizes(wan_config_from_json(sizes, from),
                           wan_config(config_.model, in_.train.facts()), from);
    }
    if (!info.config.empty() && in_.check_resume) in_.check_resume(info.config);
    if (info.instruction_path != in_.backend.instruction_path && !info.instruction_path.empty()) {
        warn(
            "the checkpoint was written on the instruction path '{}', this machine takes '{}': the "
            "losses agree to rounding, not bit for bit",
            info.instruction_path, in_.backend.instruction_path);
    }
}

// The checkpoint that checkpoint.resume names by its path; nothing for auto and none. A path that
// this run started from before counts as auto: whoever starts the same command again after a
// signal means to go on, not to go back.
std::optional<fs::path> Trainer::resume_source() {
    const std::string& resume = config_.checkpoint.resume;
    if (resume == "auto" || resume == "none") return std::nullopt;
    const std::string origin = fs::weakly_canonical(resume).string();
    if (const std::optional<fs::path> own = find_latest(config_.run.out)) {
        if (extra(read_info(*own), "started_from") == origin) {
            say("this run started from {} before: it goes on from its own newest checkpoint; to go "
                "back there again, take another run.out",
                origin);
            return std::nullopt;
        }
    }
    const fs::path dir = checkpoint_at(resume);
    check_resumable(read_info(dir));
    origin_ = origin;
    return dir;
}

std::vector<int64_t> Trainer::match_emas(const CheckpointInfo& info,
                                         std::vector<StateTensor>& wanted) const {
    const std::vector<double>& decays = config_.optim.ema_decay;
    const std::string stored = extra(info, "ema_decay") + ",";
    std::map<std::string, int64_t> at;  // decay as text -> its number in the checkpoint
    for (size_t begin = 0, end = 0; (end = stored.find(',', begin)) != std::string::npos;
         begin = end + 1) {
        at.emplace(stored.substr(begin, end - begin), static_cast<int64_t>(at.size()));
    }
    std::vector<int64_t> fresh;
    std::vector<std::string> kind;
    for (size_t k = 0; k < decays.size(); ++k) {
        const auto found = at.find(fmt::format("{}", decays[k]));
        if (found == at.end()) fresh.push_back(static_cast<int64_t>(k));
        kind.push_back(found == at.end() ? fmt::format("no-ema{}/", k)
                                         : fmt::format("ema{}/", found->second));
    }
    const std::vector<StateTensor> own = state();
    for (size_t i = 0; i < own.size(); ++i) {
        for (size_t k = 0; k < decays.size(); ++k) {
            const std::string prefix = fmt::format("ema{}/", k);
            if (own[i].name.rfind(prefix, 0) != 0) continue;
            wanted[i].name = kind[k] + own[i].name.substr(prefix.size());
        }
    }
    return fresh;
}

void Trainer::adopt(const Loaded& loaded, const std::vector<int64_t>& fresh_emas) {
    const CheckpointInfo& info = loaded.info;
    start_step_ = saved_step_ = info.step;
    cursor_ = info.cursor;
    if (weights_only(info)) {
        optim_->init(ctx_, *store_);  // zero moments; EMAs start from the loaded weights
        say("weights from {}; optimizer and step start afresh", loaded.dir.string());
        return;
    }
    for (const std::string& name : loaded.report.missing) {
        if (name.rfind("no-ema", 0) == 0) continue;
        raise(Fault::kData, fmt::format("{} has no tensor '{}'", loaded.dir.string(), name));
    }
    say("resumed from {}: step {}, {} samples consumed", loaded.dir.string(), info.step,
        info.cursor);
    if (info.data_fingerprint != in_.train.fingerprint()) {
        say("the training data is not the checkpoint's: going on with it at draw {}", cursor_);
    }
    for (const int64_t k : fresh_emas) {
        optim_->start_ema(ctx_, *store_, k);
        say("the average with decay {} is not in the checkpoint: it starts from the weights",
            config_.optim.ema_decay[static_cast<size_t>(k)]);
    }
}

void Trainer::restore(const std::optional<fs::path>& source) {
    const fs::path out = config_.run.out;
    const bool anew = config_.checkpoint.resume == "none";
    run_id_ = new_run_id();
    std::vector<StateTensor> wanted = state();
    // Imports hold nothing else, and optim.ema_decay may have changed; adopt() tells them apart.
    for (StateTensor& t : wanted) t.optional = t.name.rfind("model/", 0) != 0;
    if (source) {
        const CheckpointInfo info = read_info(*source);
        const std::vector<int64_t> fresh = match_emas(info, wanted);
        adopt({*source, info, load(*source, wanted)}, fresh);
    } else if (!anew) {
        std::vector<int64_t> fresh;
        // Called before a tensor is read, so that names can follow what the checkpoint holds.
        const auto accept = [&](const CheckpointInfo& info) {
            check_resumable(info);
            fresh = match_emas(info, wanted);
        };
        if (const std::optional<Loaded> got = load_latest(out, wanted, in_.world, accept)) {
            adopt(*got, fresh);
            origin_ = extra(got->info, "started_from");
            if (!weights_only(got->info)) run_id_ = got->info.run_id;
        }
    }
    // Anything later belongs to a future that this run does not have.
    for (const fs::path& p : abandon_later(out, start_step_)) {
        warn("a checkpoint later than step {}, where this run starts, is now {}", start_step_,
             p.string());
    }
    if (anew) {
        for (const StepDir& d : step_dirs(out)) (void)abandon(d.path);
    }
    store_->refresh_operands(ctx_);
}

int Trainer::run() {
    // both refuse what cannot work before anything is written
    (void)plan();
    const std::optional<fs::path> source = resume_source();
    const fs::path out = config_.run.out;
    if (fs::exists(out) && !fs::is_directory(out)) {
        raise(Fault::kUser, fmt::format("run.out = \"{}\" is not a folder", out.string()));
    }
    const RunLock lock(out);
    clean_stale(out);
    allocate();
    restore(source);
    write_atomic(out / "config.toml", in_.config_text);
    metrics_ = std::make_unique<MetricsFile>(out / "metrics.jsonl", start_step_);
    events_ = std::make_unique<EventsFile>(out / "tensorboard", start_step_);
    clock_->roof = measure_matmul_rate(ctx_, model_->precision().operand);
    make_loader();  // reads from the restored cursor on
    return loop();
}

int Trainer::loop() {
    const int64_t last = config_.run.train_iters;
    const auto due = [](int64_t step, int64_t interval) {
        return interval > 0 && step % interval == 0;
    };
    if (start_step_ >= last) {
        say("nothing to do: the checkpoint is at step {}, run.train_iters = {}", start_step_, last);
        return 0;
    }
    if (start_step_ == 0) evaluate(0);
    clock_->restart();
    for (int64_t step = start_step_ + 1; step <= last; ++step) {
        if (observer_ != nullptr) observer_->before_step(step);
        const StepBatch* batch = nullptr;
        rescuing(step - 1, [&] { batch = &loader_->next(&clock_->wait); });
        const StepResult r = step_->run(ctx_, *batch, step);
        cursor_ = batch->next;
        clock_->bad += batch->replaced;
        log_step(step, r);
        if (observer_ != nullptr) observer_->after_step(step);

        const double before = seconds_now();
        if (due(step, config_.checkpoint.save_interval) || step == last || stop_requested()) {
            save_checkpoint(step);
        }
        rescuing(step, [&] {
            if (due(step, config_.log.eval_interval) || step == last) evaluate(step);
            if (sampler_ && (due(step, config_.log.sample_interval) || step == last)) {
                draw_samples(step);
            }
        });
        if (stop_requested() && saved_step_ != step) save_checkpoint(step);
        clock_->outside += seconds_now() - before;
        if (stop_requested() && step < last) {
            say("stopping on a signal: saved at step {}; exit code {} asks for a restart{}", step,
                kExitRequeue,
                config_.checkpoint.resume == "none" ? " with checkpoint.resume = \"auto\"" : "");
            return kExitRequeue;
        }
    }
    return 0;
}

// Work that may fail while the state itself is good: what was trained is saved before the error
// goes on.
void Trainer::rescuing(int64_t done, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error&) {
        if (saved_step_ != done && done > start_step_) save_checkpoint(done);
        throw;
    }
}

void Trainer::save_checkpoint(int64_t step) {
    const std::array<int64_t, 4> shape = in_.train.shapes().front();  // what sampling defaults to
    CheckpointInfo info{
        .step = step,
        .cursor = cursor_,
        .config = in_.config_text,
        .facts_json = facts_json(in_.train.facts()),
        .data_fingerprint = in_.train.fingerprint(),
        .mesh = in_.mesh,
        .build = VTRAIN_BUILD,
        .instruction_path = in_.backend.instruction_path,
        .run_id = run_id_,
        .extra = {{"shape", fmt::format("{}", fmt::join(shape, ","))},
                  {"ema_decay", fmt::format("{}", fmt::join(config_.optim.ema_decay, ","))}}};
    if (!origin_.empty()) info.extra["started_from"] = origin_;
    (void)save(config_.run.out, info, state(), in_.world);
    saved_step_ = step;
    (void)prune(config_.run.out, config_.checkpoint.keep_last, run_id_);
}

void Trainer::evaluate(int64_t step) {
    if (!validator_ || stop_requested()) return;
    const auto stop = [] { return stop_requested(); };
    MetricRow row;
    row.eval = true;
    row.step = step;
    row.train_iters = config_.run.train_iters;
    const std::optional<EvalResult> plain = validator_->run(ctx_, store_->weights(), stop);
    if (!plain) return;
    row.eval_samples = validator_->samples();
    row.loss = plain->loss;
    for (size_t q = 0; q < plain->by_quantile.size(); ++q) {
        row.extra.emplace_back(fmt::format("loss q{}", q), plain->by_quantile[q]);
    }
    for (int64_t k = 0; k < optim_->num_ema(); ++k) {
        const Weights shown = store_->show(ctx_, optim_->ema(k));
        const std::optional<EvalResult> e = validator_->run(ctx_, shown, stop);
        store_->refresh_operands(ctx_);
        if (!e) return;
        row.extra.emplace_back(
            fmt::format("loss ema {}", config_.optim.ema_decay[static_cast<size_t>(k)]), e->loss);
    }
    report(row);
}

void Trainer::draw_samples(int64_t step) {
    const bool averaged = optim_->num_ema() > 0;
    const Weights w = averaged ? store_->show(ctx_, optim_->ema(0)) : store_->weights();
    const auto stop = [] { return stop_requested(); };
    const std::optional<fs::path> dir = sampler_->run(ctx_, w, step, stop);
    if (averaged) store_->refresh_operands(ctx_);
    if (!dir) return;
    say(" samples of step {} ({}): {}", step, averaged ? "first EMA" : "weights", dir->string());
}

void Trainer::report(const MetricRow& row) {
    print_line(console_line(row));
    metrics_->append(row);
    events_->append(row);
}

void Trainer::log_step(int64_t step, const StepResult& r) {
    Clock& c = *clock_;
    ++c.steps;
    c.samples += r.samples;
    c.tokens += r.tokens;
    c.flop += r.model_flop;
    c.loss += r.loss;
    const int64_t last = config_.run.train_iters;
    if (step % config_.log.log_interval != 0 && step != last && step != start_step_ + 1) return;

    const double seconds = seconds_now() - c.begin - c.outside;
    const double per_step = seconds / static_cast<double>(c.steps);
    MetricRow row;
    row.step = step;
    row.train_iters = last;
    row.consumed_samples = static_cast<int64_t>(cursor_);
    row.step_ms = 1e3 * per_step;
    row.lr = r.lr;
    row.global_batch_size = r.samples;
    row.loss = r.loss;
    row.grad_norm = r.grad_norm;
    row.bad_samples = c.bad;
    row.samples_per_s = static_cast<double>(c.samples) / seconds;
    row.tokens_per_s = static_cast<double>(c.tokens) / seconds;
    row.tflops = c.flop / seconds / 1e12;
    row.roof_percent = 100 * c.flop / seconds / c.roof;
    row.data_wait_percent = 100 * c.wait / seconds;
    row.memory_gib = static_cast<double>(process_memory().resident) / (1 << 30);
    row.seconds_left = per_step * static_cast<double>(last - step);
    row.extra.emplace_back("loss mean", c.loss / static_cast<double>(c.steps));
    report(row);
    c.restart();
}

}  // namespace vt
