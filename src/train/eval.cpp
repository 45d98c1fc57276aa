// SPDX-License-Identifier: MIT
#include "train/eval.h"

#include <algorithm>
#include <map>

#include "core/log.h"
#include "data/patient.h"
#include "ops/ops.h"
#include "ops/transfer.h"

namespace vt {

Validator::Validator(const RunConfig& config, Model& model, const Dataset& data, Memory& memory)
    : config_(config),
      model_(model),
      data_(data),
      memory_(memory),
      objective_(config.objective),
      slots_(model, memory, Recompute::kNone, false),
      stall_(config.data.stall_warn_s) {
    int64_t total = 0;
    for (int s = 0; s < data.num_sources(); ++s) total += data.source_size(s);
    const int64_t want = std::min(config.log.eval_samples, total);
    for (int64_t i = 0; i < want; ++i) {
        int64_t at = i * total / want;  // even spread, ascending, distinct
        int32_t source = 0;
        while (at >= data.source_size(source)) at -= data.source_size(source++);
        picks_.push_back({source, at, data.sample(source, at).shape, i});
    }
    std::stable_sort(picks_.begin(), picks_.end(),
                     [](const Pick& a, const Pick& b) { return a.shape < b.shape; });
}

void Validator::declare() {
    slots_.clear();
    const int64_t n = config_.data.micro_batch_size;
    int64_t largest = 0;
    for (const Pick& p : picks_) {
        largest = std::max(largest, p.shape[0] * p.shape[1] * p.shape[2] * p.shape[3]);
    }
    const LatentFacts& f = data_.facts();
    x0_ = memory_.data.alloc("validation latents", {n * largest}, DType::kF32);
    text_ = memory_.data.alloc("validation text", {n * f.text_len * f.text_dim}, DType::kF32);
    ids_ = memory_.data.alloc("validation ids", {n}, DType::kI64);
}

bool Validator::read(const Pick& pick, const Tensor& latent, const Tensor& text,
                     const std::function<bool()>& stop) {
    return read_patiently(data_, pick.source, pick.index, latent, text, {}, stall_, stop);
}

bool Validator::leave_out_bad(const std::function<bool()>& stop) {
    const LatentFacts& f = data_.facts();
    const Tensor text = text_.rows(0, f.text_len * f.text_dim).view({f.text_len, f.text_dim});
    std::vector<Pick> good;
    struct BadFile {
        std::string why;
        int64_t count = 0;
    };
    std::map<int32_t, BadFile> bad_files;
    int64_t bad = 0;
    for (const Pick& p : picks_) {
        const auto& s = p.shape;
        const Tensor latent = x0_.rows(0, s[0] * s[1] * s[2] * s[3]).view({s[0], s[1], s[2], s[3]});
        const int32_t file = data_.sample(p.source, p.index).file;
        if (const auto it = bad_files.find(file); it != bad_files.end()) {
            ++it->second.count;
            continue;
        }
        try {
            if (!read(p, latent, text, stop)) return false;
            good.push_back(p);
        } catch (const FileFault& e) {
            if (config_.data.on_bad_file == "stop") throw;
            bad_files[file] = {e.message(), 1};
        } catch (const Error& e) {
            if (e.fault() != Fault::kData) throw;
            warn("validation goes on without bad sample {} of {}: {}", ++bad, picks_.size(),
                 e.message());
        }
    }
    for (const auto& [file, what] : bad_files) {
        warn("validation goes on without {} of {} samples, which lie in a bad file: {}", what.count,
             picks_.size(), what.why);
    }
    if (good.empty()) {
        raise(Fault::kData, "no validation sample is good",
              "`vtrain data verify` names what is wrong");
    }
    picks_ = std::move(good);
    return true;
}

std::optional<EvalResult> Validator::run(const Ctx& ctx, const Weights& weights,
                                         const std::function<bool()>& stop) {
    if (!looked_ && x0_.data != nullptr) {
        if (!leave_out_bad(stop)) return std::nullopt;
        looked_ = true;
    }
    const int64_t Q = config_.log.eval_quantiles;
    const LatentFacts& f = data_.facts();
    EvalResult result;
    result.by_quantile.assign(static_cast<size_t>(Q), 0.0);
    for (size_t begin = 0, end = 0; begin < picks_.size(); begin = end) {
        const std::array<int64_t, 4> s = picks_[begin].shape;
        while (end < picks_.size() && picks_[end].shape == s &&
               static_cast<int64_t>(end - begin) < config_.data.micro_batch_size) {
            ++end;
        }
        const auto n = static_cast<int64_t>(end - begin);
        const LatentShape latent{s[0], s[1], s[2], s[3]};
        BatchSlot& slot = slots_.get({n, latent, f.text_len});
        const Tensor x0 = x0_.rows(0, n * latent.numel()).view({n, s[0], s[1], s[2], s[3]});
        const Tensor text =
            text_.rows(0, n * f.text_len * f.text_dim).view({n, f.text_len, f.text_dim});
        const Tensor ids = ids_.rows(0, n);
        for (int64_t i = 0; i < n && x0.data != nullptr; ++i) {
            const Pick& p = picks_[begin + static_cast<size_t>(i)];
            try {
                if (!read(p, x0.rows(i, i + 1).view({s[0], s[1], s[2], s[3]}),
                          text.rows(i, i + 1).view({f.text_len, f.text_dim}), stop)) {
                    return std::nullopt;
                }
            } catch (const Error& e) {
                warn("this validation is left out, since a sample of it went bad: {}", e.message());
                return std::nullopt;
            }
        }
        const LevelDensityPtr density = objective_.density(latent);
        for (int64_t q = 0; q < Q; ++q) {
            if (stop()) return std::nullopt;
            const NoiseLevel level = objective_.at(
                density->quantile((static_cast<double>(q) + 0.5) / static_cast<double>(Q)));
            std::vector<int64_t> id;
            for (size_t i = begin; i < end; ++i) id.push_back(picks_[i].number * Q + q);
            const auto count = static_cast<size_t>(n);
            upload(ctx, ids, id);
            std::vector<float> mix;
            for (size_t i = 0; i < count; ++i) {
                mix.insert(mix.end(), level.mix.begin(), level.mix.end());
            }
            upload(ctx, slot.mix, mix);
            upload(ctx, slot.tau, std::vector<float>(count, level.tau));
            upload(ctx, slot.coef, std::vector<float>(count, 0.0F));
            flow_noise(ctx, slot.xt, slot.target, x0, slot.mix, ids,
                       static_cast<uint64_t>(config_.run.seed), Purpose::kValid);
            model_.forward(ctx, weights, *slot.acts, {slot.xt, slot.tau, text}, slot.v);
            flow_loss(ctx, {}, slot.sse, slot.v, slot.target, slot.coef);
            std::vector<double> sse(count);
            download(ctx, sse, slot.sse);
            for (const double e : sse) {
                result.by_quantile[static_cast<size_t>(q)] += level.weight * e /
                                                              static_cast<double>(latent.numel()) /
                                                              static_cast<double>(picks_.size());
            }
        }
    }
    for (const double q : result.by_quantile) result.loss += q / static_cast<double>(Q);
    return result;
}

}  // namespace vt
