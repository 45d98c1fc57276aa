// SPDX-License-Identifier: MIT
#include "optim/state.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

#include "optim/groups.h"

namespace vt {

OptimState::OptimState(const ParamTable& table, const OptimOptions& options, DType stat)
    : table_(table),
      hyper_(adamw_of(table, options)),
      emas_(all_emas(options)),
      stat_(stat),
      ema_(emas_.size()) {
    set_starts(std::vector<int64_t>(table.size(), 0));
}

void OptimState::declare(Arena& moments, Arena& ema) {
    m_.clear();
    v_.clear();
    for (auto& e : ema_) e.clear();
    for (const ParamRow& row : table_) {
        const bool has = row.trainable;
        m_.push_back(has ? moments.alloc("first moments", row.shape, stat_) : Tensor{});
        v_.push_back(has ? moments.alloc("second moments", row.shape, stat_) : Tensor{});
    }
    for (size_t k = 0; k < ema_.size(); ++k) {
        for (const ParamRow& row : table_) {
            ema_[k].push_back(ema.alloc(fmt::format("ema{}", k), row.shape, stat_));
        }
    }
}

void OptimState::init(const Ctx& ctx, const ParamStore& store) {
    set_starts(std::vector<int64_t>(table_.size(), 0));
    for (size_t i = 0; i < table_.size(); ++i) {
        if (m_[i].present()) fill(ctx, m_[i], 0);
        if (v_[i].present()) fill(ctx, v_[i], 0);
        for (auto& e : ema_) cast(ctx, e[i], store.master()[i]);
    }
}

void OptimState::start_ema(const Ctx& ctx, const ParamStore& store, int64_t k) {
    for (size_t i = 0; i < table_.size(); ++i) {
        cast(ctx, ema_.at(static_cast<size_t>(k))[i], store.master()[i]);
    }
}

// ---------------------------------------------------------------------------------------------
// Where moments began.

std::vector<int64_t> OptimState::starts_of_rows() const {
    std::vector<int64_t> out;
    for (const int64_t k : start_) out.push_back(starts_[static_cast<size_t>(k)]);
    return out;
}

void OptimState::set_starts(const std::vector<int64_t>& of_rows) {
    starts_ = of_rows;
    std::sort(starts_.begin(), starts_.end());
    starts_.erase(std::unique(starts_.begin(), starts_.end()), starts_.end());
    start_.clear();
    for (const int64_t n : of_rows) {
        start_.push_back(std::lower_bound(starts_.begin(), starts_.end(), n) - starts_.begin());
    }
}

void OptimState::start_moments(const Ctx& ctx, int64_t i, int64_t updates) {
    const auto at = static_cast<size_t>(i);
    fill(ctx, m_.at(at), 0);
    fill(ctx, v_.at(at), 0);
    std::vector<int64_t> rows = starts_of_rows();
    rows.at(at) = updates;
    set_starts(rows);
}

std::string OptimState::encode_starts() const {
    std::string out;
    if (starts_ == std::vector<int64_t>{0}) return out;
    const std::vector<int64_t> rows = starts_of_rows();
    for (size_t i = 0, n = 0; i < rows.size(); i += n) {
        n = 1;
        while (i + n < rows.size() && rows[i + n] == rows[i]) ++n;
        out += fmt::format("{}{}x{}", i == 0 ? "" : ",", rows[i], n);
    }
    return out;
}

void OptimState::decode_starts(const std::string& text, const std::string& where) {
    std::vector<int64_t> rows;
    const char *at = text.data(), *const end = at + text.size();
    bool good = true;
    while (good && at != end) {
        int64_t value = 0, count = 0;
        const auto number = [&](int64_t& out) {
            const auto [next, error] = std::from_chars(at, end, out);
            good = good && error == std::errc{} && out >= 0;
            at = next;
        };
        number(value);
        good = good && at != end && *at++ == 'x';
        if (good) number(count);
        good = good && count <= static_cast<int64_t>(table_.size() - rows.size());
        if (good) rows.insert(rows.end(), static_cast<size_t>(count), value);
        if (good && at != end) good = *at++ == ',' && at != end;
    }
    if (text.empty()) rows.assign(table_.size(), 0);
    if (!good || rows.size() != table_.size()) {
        raise(Fault::kData, fmt::format("{}: '{}' does not say where the moments of {} tensors "
                                        "began",
                                        where, text, table_.size()));
    }
    set_starts(rows);
}

// ---------------------------------------------------------------------------------------------

void OptimState::adopt_ema(const Ctx& ctx, ParamStore& store, int64_t k) const {
    for (size_t i = 0; i < table_.size(); ++i) {
        if (!table_[i].trainable) continue;
        cast(ctx, store.master()[i], ema_.at(static_cast<size_t>(k))[i]);
    }
    store.refresh_operands(ctx);
}

void OptimState::update(const Ctx& ctx, ParamStore& store, CTensor scalars, CTensor decays) {
    const auto K = static_cast<int64_t>(ema_.size());
    for (size_t i = 0; i < table_.size(); ++i) {
        const int64_t s = start_[i];
        const CTensor now = scalars.rows(s, s + 1).view({kNumStepScalars});
        if (table_[i].trainable) {
            adamw(ctx, store.master()[i], m_[i], v_[i], store.operand_copy(static_cast<int64_t>(i)),
                  store.grads()[i], now, hyper_[i]);
        }
        for (int64_t k = 0; k < K; ++k) {
            ema_update(ctx, ema_[static_cast<size_t>(k)][i], store.master()[i],
                       decays.rows(k, k + 1), now);
        }
    }
}

}  // namespace vt
