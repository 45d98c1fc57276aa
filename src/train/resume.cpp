// SPDX-License-Identifier: MIT
// Where a run begins: its own newest checkpoint, a path, or nothing; what of it may be adopted.
// Floor 6.
#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <map>

#include "core/hash.h"
#include "core/log.h"
#include "model/diffusers.h"
#include "model/registry.h"
#include "optim/groups.h"
#include "train/interval.h"
#include "train/trainer.h"

namespace vt {

namespace {

// Names a run's lineage of checkpoints: two runs of one seed in one folder must be told apart.
std::string new_run_id() {
    return hex64(unique_bits()) + hex64(unique_bits());
}

bool weights_only(const CheckpointInfo& info) {
    return info.extra.count("weights_only") != 0;
}

std::string extra(const CheckpointInfo& info, const char* key) {
    const auto it = info.extra.find(key);
    return it == info.extra.end() ? "" : it->second;
}

// 0 where there is no such entry; kData naming `where` if it is no number >= 0.
uint64_t extra_number(const CheckpointInfo& info, const char* key, const std::string& where) {
    const std::string text = extra(info, key);
    if (text.empty()) return 0;
    uint64_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc{} || end != text.data() + text.size()) {
        raise(Fault::kData, fmt::format("{}: {} = '{}' is no number", where, key, text));
    }
    return out;
}

// "a b c and 40 more"
std::string some_of(const std::vector<std::string>& names) {
    constexpr size_t kShown = 6;
    const size_t n = std::min(names.size(), kShown);
    std::string out = fmt::format("{}", fmt::join(names.data(), names.data() + n, " "));
    return names.size() > n ? out + fmt::format(" and {} more", names.size() - n) : out;
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
    // of weights alone nothing but the sizes has to fit
    if (!info.config.empty() && !weights_only(info) && in_.check_resume) {
        in_.check_resume(info.config);
    }
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
    const std::vector<EmaOptions>& emas = optim_->emas();
    const std::string stored = extra(info, "ema_decay") + ",";
    std::map<std::string, int64_t> at;  // definition -> its number in the checkpoint
    for (size_t begin = 0, end = 0; (end = stored.find(',', begin)) != std::string::npos;
         begin = end + 1) {
        at.emplace(stored.substr(begin, end - begin), static_cast<int64_t>(at.size()));
    }
    std::vector<int64_t> fresh;
    std::vector<std::string> kind;
    for (size_t k = 0; k < emas.size(); ++k) {
        const auto found = at.find(ema_name(emas[k]));
        if (found == at.end()) fresh.push_back(static_cast<int64_t>(k));
        kind.push_back(found == at.end() ? fmt::format("no-ema{}/", k)
                                         : fmt::format("ema{}/", found->second));
    }
    const std::vector<StateTensor> own = state();
    for (size_t i = 0; i < own.size(); ++i) {
        for (size_t k = 0; k < emas.size(); ++k) {
            const std::string prefix = fmt::format("ema{}/", k);
            if (own[i].name.rfind(prefix, 0) != 0) continue;
            wanted[i].name = kind[k] + own[i].name.substr(prefix.size());
        }
    }
    return fresh;
}

// Moments that were not loaded: those of averages come later, those of parameters that were frozen
// then begin at zero now. Any other is missing.
void Trainer::adopt_moments(const Loaded& loaded) {
    const CheckpointInfo& info = loaded.info;
    const std::string where = loaded.dir.string();
    std::vector<std::string> patterns;
    for (std::string left = extra(info, "frozen"); !left.empty();) {
        const size_t end = std::min(left.find('\n'), left.size());
        patterns.push_back(left.substr(0, end));
        left.erase(0, end + 1);
    }
    const ParamTable then = with_frozen(model_->params(), patterns);
    const ParamTable& now = store_->table();
    optim_->decode_starts(extra(info, "moments_from"), where);
    const int64_t updates = info.step - health_.skipped();
    std::vector<std::string> thawed, frozen;
    for (size_t i = 0; i < now.size(); ++i) {
        if (then[i].trainable && !now[i].trainable) frozen.push_back(now[i].name);
        if (then[i].trainable || !now[i].trainable) continue;
        thawed.push_back(now[i].name);
        optim_->start_moments(ctx_, static_cast<int64_t>(i), updates);
    }
    for (const std::string& name : loaded.report.missing) {
        if (name.rfind("no-ema", 0) == 0) continue;
        const std::string param = name.substr(name.find('/') + 1);
        const bool fresh = std::find(thawed.begin(), thawed.end(), param) != thawed.end();
        if (fresh && name.rfind("adam_", 0) == 0) continue;
        raise(Fault::kData, fmt::format("{} has no tensor '{}'", where, name));
    }
    if (!thawed.empty()) {
        warn(
            "{} of {} tensors were frozen in the checkpoint and are trained from here on; their "
            "moments begin at zero, with a bias correction of their own: {}",
            thawed.size(), now.size(), some_of(thawed));
    }
    if (!frozen.empty()) {
        warn(
            "{} of {} tensors were trained in the checkpoint and are frozen from here on; the next "
            "save no longer holds their moments: {}",
            frozen.size(), now.size(), some_of(frozen));
    }
}

void Trainer::adopt(const Loaded& loaded, const std::vector<int64_t>& fresh_emas) {
    const CheckpointInfo& info = loaded.info;
    start_step_ = info.step;
    cursor_ = info.cursor;
    if (weights_only(info)) {
        optim_->init(ctx_, *store_);  // zero moments; EMAs start from the loaded weights
        say("weights from {}; optimizer and step start afresh", loaded.dir.string());
        return;
    }
    if (const std::string health = extra(info, "health"); !health.empty()) health_.decode(health);
    say("resumed from {}: step {}, {} samples consumed", loaded.dir.string(), info.step,
        info.cursor);
    adopt_moments(loaded);
    if (loader_ == nullptr) adopt_stream(info, loaded.dir.string());  // a rollback leaves it alone
    for (const int64_t k : fresh_emas) {
        optim_->start_ema(ctx_, *store_, k);
        say("the average with decay {} is not in the checkpoint: it starts from the weights",
            ema_name(optim_->emas()[static_cast<size_t>(k)]));
    }
}

// Where the stream of samples stands, beside the cursor.
void Trainer::adopt_stream(const CheckpointInfo& info, const std::string& where) {
    order_origin_ = extra_number(info, "order_origin", where);
    bad_samples_ = BadLedger::parse(extra(info, "bad_samples"), where);
    interval_->bad = static_cast<int64_t>(extra_number(info, "replaced_samples", where));
    if (info.data_fingerprint == in_.train.fingerprint()) return;
    order_origin_ = cursor_;
    bad_samples_.begin_new_data();
    say("the training data is not the checkpoint's: a new epoch of it begins at draw {}", cursor_);
}

void Trainer::restore(const std::optional<fs::path>& source) {
    const fs::path out = config_.run.out;
    const bool anew = config_.checkpoint.resume == "none";
    run_id_ = new_run_id();
    std::vector<StateTensor> wanted = state();
    // Imports hold nothing else, and averages or optim.freeze may have changed; adopt() tells them
    // apart.
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
            if (!weights_only(got->info)) {
                run_id_ = got->info.run_id;
                saver_->adopt(got->info);
            }
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

}  // namespace vt
