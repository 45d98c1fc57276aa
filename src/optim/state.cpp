// SPDX-License-Identifier: MIT
#include "optim/state.h"

namespace vt {

OptimState::OptimState(const ParamTable& table, const OptimOptions& options, DType stat)
    : table_(table), options_(options), stat_(stat), ema_(options.ema_decay.size()) {}

void OptimState::declare(Arena& moments, Arena& ema) {
    m_.clear();
    v_.clear();
    for (auto& e : ema_) e.clear();
    for (const ParamRow& row : table_) {
        m_.push_back(moments.alloc("first moments", row.shape, stat_));
        v_.push_back(moments.alloc("second moments", row.shape, stat_));
    }
    for (size_t k = 0; k < ema_.size(); ++k) {
        for (const ParamRow& row : table_) {
            ema_[k].push_back(ema.alloc(fmt::format("ema{}", k), row.shape, stat_));
        }
    }
}

void OptimState::init(const Ctx& ctx, const ParamStore& store) {
    for (size_t i = 0; i < table_.size(); ++i) {
        fill(ctx, m_[i], 0);
        fill(ctx, v_[i], 0);
        for (auto& e : ema_) cast(ctx, e[i], store.master()[i]);
    }
}

void OptimState::start_ema(const Ctx& ctx, const ParamStore& store, int64_t k) {
    for (size_t i = 0; i < table_.size(); ++i) {
        cast(ctx, ema_.at(static_cast<size_t>(k))[i], store.master()[i]);
    }
}

void OptimState::update(const Ctx& ctx, ParamStore& store, CTensor scalars, CTensor decays) {
    const auto K = static_cast<int64_t>(ema_.size());
    for (size_t i = 0; i < table_.size(); ++i) {
        const ParamRow& row = table_[i];
        if (!row.trainable) continue;
        const AdamW hyper{.beta1 = options_.adam_beta1,
                          .beta2 = options_.adam_beta2,
                          .eps = options_.adam_eps,
                          .weight_decay = row.decay ? options_.weight_decay : 0.0};
        adamw(ctx, store.master()[i], m_[i], v_[i], store.operand_copy(static_cast<int64_t>(i)),
              store.grads()[i], scalars, hyper);
        for (int64_t k = 0; k < K; ++k) {
            ema_update(ctx, ema_[static_cast<size_t>(k)][i], store.master()[i],
                       decays.rows(k, k + 1), scalars);
        }
    }
}

}  // namespace vt
