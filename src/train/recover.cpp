// SPDX-License-Identifier: MIT
// When steps go wrong: naming them, and going back to a state that proved good. Floor 6.
#include <algorithm>
#include <cmath>
#include <fmt/format.h>

#include "comm/agree.h"
#include "core/log.h"
#include "fault/checked_ops.h"
#include "train/interval.h"
#include "train/trainer.h"

namespace vt {

namespace {

// "id (draw 45): 0.31, ...", the largest loss first, those that are no number before all.
std::string worst_first(std::vector<SampleLoss> each, const Dataset& data) {
    std::stable_sort(each.begin(), each.end(), [](const SampleLoss& a, const SampleLoss& b) {
        if (std::isnan(a.loss) || std::isnan(b.loss))
            return std::isnan(a.loss) > std::isnan(b.loss);
        return a.loss > b.loss;
    });
    std::string out;
    for (size_t i = 0; i < each.size(); ++i) {
        if (out.size() > 600) return out + fmt::format(" and {} more", each.size() - i);
        std::string id = "?";
        try {
            id = data.sample_id(each[i].draw.source, each[i].draw.index);
        } catch (const Error&) {
            // its file may be gone; the draw still names it
        }
        out += fmt::format("{}{} (draw {}): {}", i == 0 ? "" : ", ", id, each[i].draw.ordinal,
                           value_text(each[i].loss));
    }
    return out;
}

std::string reason(const StepResult& r, const StepLimits& limits) {
    const auto value = [](const char* what, double v, double limit) {
        if (!std::isfinite(v)) return fmt::format("{} {} is not finite", what, value_text(v));
        if (v > limit) return fmt::format("{} {:.4g} is a spike, over {:.4g}", what, v, limit);
        return fmt::format("{} {:.4g}", what, v);
    };
    return value("loss", r.loss, limits.loss) + ", " +
           value("gradient norm", r.grad_norm, limits.grad_norm);
}

constexpr const char* kAdvice =
    "lower optim.lr or optim.clip_grad, lengthen optim.lr_warmup_iters, or look at these samples "
    "with `vtrain data verify` and `vtrain data view`";

}  // namespace

// On record with the names of those that could not be had: the first ones, and how many more.
void Trainer::note_bad_samples(int64_t step, const StepBatch& batch) {
    constexpr size_t kMostNamed = 8;
    std::string text =
        fmt::format("{} sample{} replaced: ", batch.replaced, batch.replaced == 1 ? "" : "s");
    for (size_t i = 0; i < std::min(batch.bad.size(), kMostNamed); ++i) {
        const BadSample& b = batch.bad[i];
        const std::string place = in_.train.sample_place(b.draw.source, b.draw.index);
        text += fmt::format("{}{}{} ({}draw {})", i == 0 ? "" : "; ",
                            b.why.starts_with(place) ? "" : place + ": ", b.why,
                            b.id.empty() ? "" : "id " + b.id + ", ", b.draw.ordinal);
    }
    if (batch.bad.size() > kMostNamed) {
        text += fmt::format("; and {} more", batch.bad.size() - kMostNamed);
    }
    record_->add(EventKind::kBadSample, step, text);
}

// The update of `step` was left out: says so, with the samples and, for the first of a row that is
// not finite, with where that came from.
void Trainer::note_bad_step(int64_t step, const StepResult& r, const StepBatch& batch) {
    // a bad step changes no window, so these are still the limits it was judged by
    last_bad_ = fmt::format("step {}: {}; samples, worst first: {}", step,
                            reason(r, health_.limits()), worst_first(r.each, in_.train));
    const bool counted = config_.health.enabled;
    warn("{}; the update is left out{}", last_bad_,
         counted ? fmt::format(", {} of at most {} in a row", health_.in_a_row(),
                               config_.health.max_consecutive)
                 : "");
    record_->add(EventKind::kSkip, step, last_bad_);
    if (r.verdict == Verdict::kNotFinite && explained_ != health_.first_bad()) {
        explained_ = health_.first_bad();
        explanation_ =
            fmt::format("step {} replayed: {}", step, step_->explain(ctx_, batch, in_.train));
        warn("{}", explanation_);
        record_->add(EventKind::kWarning, step, explanation_);
    }
    if (!counted) raise(Fault::kDiverged, last_bad_ + "; " + explanation_, kAdvice);
}

// Checkpoints of this run to go back to, best first: those that proved good, the newest first. If
// there is none, what there is, the oldest first: the trouble began some time before it showed.
std::vector<fs::path> Trainer::rollback_targets(int64_t step) const {
    std::vector<fs::path> proved, others;
    for (const StepDir& d : step_dirs(config_.run.out)) {
        if (d.step >= step) continue;
        try {
            if (read_info(d.path).run_id != run_id_) continue;
        } catch (const Error& e) {
            if (e.fault() != Fault::kData) throw;
            warn("{}", e.message());
            continue;
        }
        (health_.proved(d.step) ? proved : others).push_back(d.path);
    }
    proved.insert(proved.end(), others.rbegin(), others.rend());
    return proved;
}

// Weights, moments, averages, step and record of health become those of a checkpoint; the cursor
// stays. The result is committed as that step's checkpoint at once: whatever ends the process from
// here on, the samples that did the harm are not met again. Returns the step.
int64_t Trainer::roll_back(int64_t step) {
    std::string why =
        fmt::format("{} bad steps in a row; the last is {}", health_.in_a_row(), last_bad_);
    if (explained_ == health_.first_bad()) why += "; " + explanation_;
    const int64_t times = health_.rollbacks() + 1;
    if (!config_.health.rollback) raise(Fault::kDiverged, why, kAdvice);
    if (times > config_.health.max_rollbacks) {
        raise(Fault::kDiverged, fmt::format("{} rollbacks did not help: {}", times - 1, why),
              kAdvice);
    }
    saver_->drain();  // what is under way belongs to the future that ends here
    std::vector<std::string> found;
    for (const fs::path& p : rollback_targets(step)) found.push_back(p.string());
    const std::string all =
        broadcast_text(in_.world, fmt::format("{}", fmt::join(found, "\n")), 0) + "\n";
    const uint64_t cursor = cursor_;
    for (size_t begin = 0, end = 0; (end = all.find('\n', begin)) != std::string::npos;
         begin = end + 1) {
        const fs::path dir = all.substr(begin, end - begin);
        if (dir.empty()) break;
        std::vector<StateTensor> wanted = state();
        for (StateTensor& t : wanted) t.optional = t.name.rfind("model/", 0) != 0;
        Loaded got{.dir = dir, .info = {}, .report = {}};
        std::vector<int64_t> fresh;
        try {
            agree(in_.world, "load a checkpoint", [&] {
                got.info = read_info(dir);
                fresh = match_emas(got.info, wanted);
                got.report = load(dir, wanted);
            });
        } catch (const Error& e) {
            if (e.fault() != Fault::kData) throw;
            warn("rolling back past {}: {}", dir.string(), e.message());
            continue;
        }
        adopt(got, fresh);
        cursor_ = cursor;
        health_.rolled_back(step, times);
        store_->refresh_operands(ctx_);
        (void)abandon_later(config_.run.out, start_step_);
        metrics_->cut_after(start_step_);
        events_ =
            std::make_unique<EventsFile>(fs::path(config_.run.out) / "tensorboard", start_step_);
        const std::string text =
            fmt::format("from step {} to {}, going on with draw {} (rollback {} of at most {}): {}",
                        step, start_step_, cursor_, times, config_.health.max_rollbacks, why);
        warn("rolled back {}", text);
        record_->add(EventKind::kRollback, start_step_, text);
        saver_->adopt(got.info);
        saver_->save_last(checkpoint_info(start_step_), state());
        explained_ = -1;
        interval_->restart();
        return start_step_;
    }
    raise(Fault::kDiverged, why + "; there is no checkpoint to go back to",
          std::string("set checkpoint.save_interval, so that there is one; ") + kAdvice);
}

}  // namespace vt
