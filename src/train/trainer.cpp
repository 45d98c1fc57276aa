// SPDX-License-Identifier: MIT
#include "train/trainer.h"

#include <algorithm>
#include <fmt/format.h>

#include "core/log.h"
#include "data/facts.h"
#include "fault/signal.h"
#include "model/registry.h"
#include "optim/groups.h"
#include "prof/machine.h"
#include "train/environment.h"
#include "train/interval.h"

namespace vt {

namespace {

ScratchNeed larger(const ScratchNeed& a, const ScratchNeed& b) {
    return {.rows = std::max(a.rows, b.rows),
            .width = std::max(a.width, b.width),
            .head_dim = std::max(a.head_dim, b.head_dim),
            .heads = std::max(a.heads, b.heads),
            .threads = std::max(a.threads, b.threads)};
}

}  // namespace

Trainer::Trainer(const TrainerInput& input)
    : in_(input),
      config_(input.config),
      health_(input.config.health),
      interval_(std::make_unique<Interval>()),
      breakdown_(input.train),
      consumed_(input.train, static_cast<uint64_t>(input.config.run.seed)) {
    if (in_.begin == 0) in_.begin = seconds_now();
    const Precision precision = make_precision(config_.run.precision, config_.model);
    model_ = make_model(config_.model, in_.train.facts(), precision);
    naming_keys(config_, {"optim.freeze"}, [&] {
        store_ = std::make_unique<ParamStore>(with_frozen(model_->params(), config_.optim.freeze),
                                              precision, true);
    });
    naming_keys(config_, {"optim.groups"}, [&] {
        optim_ = std::make_unique<OptimState>(store_->table(), config_.optim, precision.stat);
    });
    step_ = std::make_unique<Step>(config_, *model_, *store_, *optim_, memory_, in_.world);
    if (in_.valid != nullptr && config_.log.eval_interval > 0) {
        validator_ = std::make_unique<Validator>(config_, *model_, *in_.valid, memory_);
    }
    if (config_.log.sample_interval > 0) {
        (void)sample_ema();  // refuses what is not there now, not at the first sample
        sampler_ = std::make_unique<RunSampler>(
            config_, *model_, in_.valid != nullptr ? *in_.valid : in_.train, memory_);
    }
    saver_ = std::make_unique<Saver>(config_.run.out, config_.checkpoint, in_.world);
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
    naming_keys(config_, {"data.train"}, [&] { grow(in_.train); });
    if (validator_) naming_keys(config_, {"data.valid"}, [&] { grow(*in_.valid); });
    if (sampler_) {
        sampler_->declare();
        need = larger(need, sampler_->scratch_need());
    }
    need.threads = in_.pool.threads();
    ctx_.ops = &in_.backend;
    ctx_.pool = &in_.pool;
    ctx_.scratch =
        memory_.scratch.alloc("op scratch", {in_.backend.scratch_bytes(need)}, DType::kU8);
}

// On measuring arenas it declares its buffers; on real ones it starts to read.
void Trainer::make_loader() {
    const std::vector<int64_t>& ramp = config_.data.rampup_batch_size;
    const LoaderOptions options{
        .seed = static_cast<uint64_t>(config_.run.seed),
        .global_batch_size = config_.data.global_batch_size,
        .micro_batch_size = config_.data.micro_batch_size,
        .ramp = ramp.empty() ? BatchRamp{} : BatchRamp{ramp.at(0), ramp.at(1), ramp.at(2)},
        .origin = order_origin_,
        .cfg_dropout_prob = config_.objective.cfg_dropout_prob,
        .reader_threads = static_cast<int>(config_.data.reader_threads),
        .prefetch_steps = static_cast<int>(config_.data.prefetch_steps),
        .max_bad_samples = config_.data.max_bad_samples,
        .met = bad_samples_,
        .replace_bad_files = config_.data.on_bad_file == "replace",
        .stall_warn_s = config_.data.stall_warn_s};
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
        Ledger ledger;
        Ctx watched = meta;
        watched.observer = &ledger;
        (void)step_->run(watched, batch, {});
        const double executed = (meta.count->flop - before) / static_cast<double>(n) *
                                static_cast<double>(config_.data.global_batch_size);
        if (executed > plan_.executed_flop_per_step) {
            plan_.executed_flop_per_step = executed;
            plan_.ops_shape = s;
            plan_.ops = ledger.totals();
        }
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
    plan_.groups = plan_groups();
    const auto add = [&](const Arena& a) {
        plan_.bytes.at(static_cast<size_t>(a.category())) += a.high_water();
        plan_.total_bytes += a.high_water();
    };
    for (const Arena* a : store_->arenas()) add(*a);
    for (const Arena* a : memory_.all()) add(*a);
    if (saves_beside()) {
        saver_->declare(state());
        add(saver_->arena());
    }
    plan_.activations = memory_.activations.high_water_list();
    return plan_;
}

std::vector<RunPlan::GroupRow> Trainer::plan_groups() const {
    const OptimOptions& o = config_.optim;
    if (o.groups.empty() && o.freeze.empty()) return {};
    std::vector<RunPlan::GroupRow> out;
    for (const ParamGroup& g : o.groups) {
        out.push_back({.name = fmt::format("{}", fmt::join(g.params, " ")),
                       .lr = g.lr.value_or(o.lr * g.lr_scale)});
    }
    out.push_back({.name = "others", .lr = o.lr});
    out.push_back({.name = "frozen"});
    const ParamTable& table = store_->table();
    const std::vector<int64_t> group = groups_of(table, o);
    const std::vector<AdamW> hyper = adamw_of(table, o);
    for (size_t i = 0; i < table.size(); ++i) {
        const size_t others = o.groups.size();
        const size_t k = group[i] < 0 ? others : static_cast<size_t>(group[i]);
        RunPlan::GroupRow& row = out[table[i].trainable ? k : others + 1];
        ++row.tensors;
        row.parameters += table[i].shape.numel();
        if (!table[i].trainable || hyper[i].weight_decay == 0) continue;
        ++row.decayed;
        row.weight_decay = hyper[i].weight_decay;
    }
    return out;
}

// Is it worth and possible to keep a copy of the state for saves beside training?
bool Trainer::saves_beside() const {
    const CheckpointOptions& o = config_.checkpoint;
    const bool between = 0 < o.save_interval && o.save_interval < config_.run.train_iters;
    if (o.async != "auto" || !between) return o.async == "on" && between;
    int64_t copy = 0;
    for (const StateTensor& t : state()) copy += t.local.bytes();
    const auto machine = static_cast<double>(machine_memory());
    return machine == 0 || static_cast<double>(plan_.total_bytes + copy) <= 0.8 * machine;
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
        if (optim_->m()[i].present()) {
            add("adam_m", optim_->m()[i]);
            add("adam_v", optim_->v()[i]);
        }
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
    if (saver_->beside()) {
        saver_->reserve();
        saver_->declare(state());
    }
    if (in_.init_weights) {
        in_.init_weights(*store_);
    } else {
        store_->init(static_cast<uint64_t>(config_.run.seed), &in_.pool);
    }
    optim_->init(ctx_, *store_);
}

// A limit of the process is known before the memory is asked for. Address space must be left for
// what is not declared, a stack and an arena of the allocator (64 MiB in glibc) for each thread and
// code that libraries make: oneDNN does not say that it got none, it crashes.
void Trainer::require_memory() {
    constexpr int64_t kLibraries = int64_t{64} << 20, kThread = int64_t{72} << 20;
    // workers, readers, the loader's own and the one that saves
    const int64_t threads = in_.pool.threads() - 1 + config_.data.reader_threads + 2;
    const int64_t beside = kLibraries + threads * kThread;
    const int64_t left = address_space_left();
    if (left < 0 || plan_.total_bytes + beside <= left) return;
    raise(Fault::kSystem,
          fmt::format("the run declares {} bytes of memory and needs {} bytes of address space "
                      "beside them, the process may take {} more (RLIMIT_AS, `ulimit -v`)",
                      plan_.total_bytes, beside, left),
          "raise the limit, or lower data.micro_batch_size or the model's size; `--dry-run` prints "
          "the plan");
}

int Trainer::run() {
    // both refuse what cannot work before anything is written
    (void)plan();
    const std::optional<fs::path> source = resume_source();
    const fs::path out = config_.run.out;
    if (fs::exists(out) && !fs::is_directory(out)) {
        raise(Fault::kUser, fmt::format("run.out = \"{}\" is not a folder", out.string()));
    }
    require_memory();
    lock_ = std::make_unique<RunLock>(out);
    clean_stale(out);
    allocate();
    saver_->check_space(state());
    restore(source);
    write_atomic(out / "config.toml", in_.config_text);
    metrics_ = std::make_unique<MetricsFile>(out / "metrics.jsonl", start_step_);
    events_ = std::make_unique<EventsFile>(out / "tensorboard", start_step_);
    record_ =
        std::make_unique<RunEvents>(out / "events.jsonl", config_.checkpoint.resume == "none");
    done_step_ = start_step_;
    noted_save_ = saver_->committed_step();
    record_->add(start_step_ > 0 ? EventKind::kResume : EventKind::kStart, start_step_,
                 origin_.empty() ? "" : "from " + origin_,
                 environment(in_.backend.instruction_path, in_.pool.threads(), in_.mesh));
    interval_->roof = measure_matmul_rate(ctx_, model_->precision().operand);
    make_loader();  // reads from the restored cursor on
    try {
        const int code = loop();
        record_->add(EventKind::kEnd, done_step_, code == 0 ? "done" : stopped_by_);
        return code;
    } catch (const Error& e) {
        record_->add(EventKind::kEnd, done_step_, e.message());
        throw;
    }
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
    nothing_to_save(false);
    if (start_step_ == 0) evaluate(0);
    interval_->restart();
    for (int64_t step = start_step_ + 1; step <= last; ++step) {
        if (stopping()) return stop_after(step - 1);
        if (observer_ != nullptr) observer_->before_step(step);
        const StepBatch* batch = nullptr;
        const StepLimits limits = health_.limits();
        rescuing(step - 1, [&] {
            batch = loader_->next_unless([this] { return stopping(); }, &interval_->wait);
        });
        if (batch == nullptr) return stop_after(step - 1);  // a signal while the data is not there
        const StepResult r = step_->run(ctx_, *batch, {step, step - 1 - health_.skipped(), limits});
        cursor_ = batch->next;
        interval_->bad += batch->replaced;
        if (!batch->bad.empty()) note_bad_samples(step, *batch);
        health_.note(step, r.verdict, r.loss, r.grad_norm);
        if (r.verdict != Verdict::kGood) note_bad_step(step, r, *batch);
        done_step_ = step;
        log_step(step, r);
        if (observer_ != nullptr) observer_->after_step(step);
        if (health_.exhausted()) {
            step = roll_back(step);  // the samples of the bad steps stay behind
            continue;
        }

        const double before = seconds_now();
        if (r.verdict == Verdict::kGood) last_loss_ = r.loss;
        saver_->poll();
        save_due_ = save_due_ || due(step, config_.checkpoint.save_interval);
        if (step == last || stopping()) {
            saver_->save_last(checkpoint_info(step), state());
        } else if (save_due_ && health_.in_a_row() == 0) {
            save_due_ = false;
            saver_->save(checkpoint_info(step), state(), in_.pool);
        }
        rescuing(step, [&] {
            if (due(step, config_.log.eval_interval) || step == last) evaluate(step);
            if (sampler_ && (due(step, config_.log.sample_interval) || step == last)) {
                draw_samples(step);
            }
        });
        note_save();
        interval_->outside += seconds_now() - before;
    }
    return 0;
}

// On record once it is committed, which for a save beside training is a while after its step.
void Trainer::note_save() {
    const int64_t step = saver_->committed_step();
    if (step >= 0 && step != noted_save_) record_->add(EventKind::kSave, step, step_name(step));
    noted_save_ = step;
}

bool Trainer::stopping() const {
    const double limit = 60 * config_.run.time_limit;
    return stop_requested() || (limit > 0 && seconds_now() - in_.begin >= limit);
}

// On a signal or at the time limit, with `done` steps behind.
int Trainer::stop_after(int64_t done) {
    if (done > start_step_) {
        saver_->save_last(checkpoint_info(done), state());
        note_save();
    }
    stopped_by_ = fmt::format(
        "{}, {} at step {}",
        stop_requested() ? fmt::format("signal {}", stop_signal()) : std::string("run.time_limit"),
        done == 0 ? "nothing to save" : "saved", done);
    record_->add(EventKind::kSignal, done, stopped_by_);
    say("stopping on {}; exit code {} asks for a restart{}", stopped_by_, kExitRequeue,
        config_.checkpoint.resume == "none" ? " with checkpoint.resume = \"auto\"" : "");
    return kExitRequeue;
}

// Work that may fail while the state itself is good: what was trained is saved before the error
// goes on.
void Trainer::rescuing(int64_t done, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error&) {
        try {
            if (done > start_step_) saver_->save_last(checkpoint_info(done), state());
        } catch (const Error& e) {
            warn("{}", e.message());  // the first error is the one to report
        }
        throw;
    }
}

CheckpointInfo Trainer::checkpoint_info(int64_t step) const {
    const std::array<int64_t, 4> shape = in_.train.shapes().front();  // what sampling defaults to
    std::vector<std::string> ema_names;
    for (const EmaOptions& e : optim_->emas()) ema_names.push_back(ema_name(e));
    CheckpointInfo info{.step = step,
                        .cursor = cursor_,
                        .config = in_.config_text,
                        .facts_json = facts_json(in_.train.facts()),
                        .data_fingerprint = in_.train.fingerprint(),
                        .mesh = in_.mesh,
                        .build = VTRAIN_BUILD,
                        .instruction_path = in_.backend.instruction_path,
                        .run_id = run_id_,
                        .extra = {{"shape", fmt::format("{}", fmt::join(shape, ","))},
                                  {"ema_decay", fmt::format("{}", fmt::join(ema_names, ","))},
                                  {"health", health_.encode()},
                                  {"loss", fmt::format("{}", last_loss_)}}};
    if (!origin_.empty()) info.extra["started_from"] = origin_;
    if (const std::vector<std::string>& freeze = config_.optim.freeze; !freeze.empty()) {
        info.extra["frozen"] = fmt::format("{}", fmt::join(freeze, "\n"));
    }
    if (const std::string from = optim_->encode_starts(); !from.empty()) {
        info.extra["moments_from"] = from;
    }
    if (order_origin_ > 0) info.extra["order_origin"] = fmt::format("{}", order_origin_);
    if (const BadLedger met = loader_->ledger(); met.total() > 0) {
        info.extra["bad_samples"] = met.text();
        info.extra["replaced_samples"] = fmt::format("{}", interval_->bad);
    }
    return info;
}

}  // namespace vt
