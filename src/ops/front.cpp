// SPDX-License-Identifier: MIT
// Floor 1. See ops/front.h.
#include "ops/front.h"

#include <cstring>

namespace vt::front {

namespace {

std::string describe(const CTensor& t) {
    return t.present() ? fmt::format("{} {}", t.shape.str(), name_of(t.dtype)) : "absent";
}

std::string describe(DTypes set) {
    std::string s;
    for (const DType t :
         {DType::kF64, DType::kF32, DType::kBF16, DType::kI64, DType::kI32, DType::kU8}) {
        if ((set & only(t)) == 0) continue;
        if (!s.empty()) s += " or ";
        s += name_of(t);
    }
    return s;
}

}  // namespace

Desk::Desk(const Ctx& ctx, const char* op, bool missing) : op_(op) {
    if (missing) {
        raise(Fault::kBug, fmt::format("{}: the backend '{}' has no such op", op,
                                       ctx.ops == nullptr ? "none" : ctx.ops->backend));
    }
    declarations_ = std::strcmp(ctx.ops->backend, "meta") == 0;
}

void Desk::wrong(const char* arg, const CTensor& t, const char* letters, const Shape& want,
                 DTypes dtypes) const {
    if (t.present() && t.shape == want && (dtypes & only(t.dtype)) != 0) {
        raise(Fault::kBug, fmt::format("{}: {} {} has no memory (data is null); only the meta "
                                       "backend runs on declarations",
                                       op_, arg, describe(t)));
    }
    raise(Fault::kBug, fmt::format("{}: {} is {}, want {} = {} {}", op_, arg, describe(t), letters,
                                   want.str(), describe(dtypes)));
}

void Desk::rank(const char* arg, const CTensor& t, const char* letters, int rank) const {
    if (t.present() && t.shape.rank == rank) return;
    raise(Fault::kBug,
          fmt::format("{}: {} is {}, want {} (rank {})", op_, arg, describe(t), letters, rank));
}

void Desk::tensor(const char* arg, const CTensor& t, const char* letters, const Shape& want,
                  DTypes dtypes) const {
    const bool fits = t.present() && t.shape == want && (dtypes & only(t.dtype)) != 0;
    if (fits && (t.data != nullptr || declarations_ || t.numel() == 0)) return;
    wrong(arg, t, letters, want, dtypes);
}

void Desk::optional(const char* arg, const CTensor& t, const char* letters, const Shape& want,
                    DTypes dtypes) const {
    if (t.present()) tensor(arg, t, letters, want, dtypes);
}

void Desk::absent(const char* arg, const CTensor& t, const char* why) const {
    if (!t.present()) return;
    raise(Fault::kBug, fmt::format("{}: {} is {}, want absent: {}", op_, arg, describe(t), why));
}

void Desk::segments(const char* arg, const Segments& seg, const char* letter, int64_t rows) const {
    const auto bad = [&](const std::string& what) {
        raise(Fault::kBug, fmt::format("{}: {} {}", op_, arg, what));
    };
    if (seg.n < 0) bad(fmt::format("has n = {}, want n >= 0", seg.n));
    if (seg.n > 0) {
        if (seg.begin == nullptr) bad("has no begin array");
        if (seg.begin[0] != 0) bad(fmt::format("starts at row {}, want 0", seg.begin[0]));
        for (int64_t i = 0; i < seg.n; ++i) {
            if (seg.begin[i + 1] < seg.begin[i]) {
                bad(fmt::format("begin[{}] = {} < begin[{}] = {}, want ascending", i + 1,
                                seg.begin[i + 1], i, seg.begin[i]));
            }
        }
    }
    if (seg.rows() != rows) {
        bad(fmt::format("covers {} rows, want {} = {}", seg.rows(), letter, rows));
    }
}

void Desk::mod_rows(const Segments& seg, int64_t n_mod) const {
    if (seg.n > 0 && seg.mod_row == nullptr) {
        raise(Fault::kBug, fmt::format("{}: seg has no mod_row array", op_));
    }
    for (int64_t i = 0; i < seg.n; ++i) {
        if (seg.mod_row[i] < 0 || seg.mod_row[i] >= n_mod) {
            raise(Fault::kBug, fmt::format("{}: seg.mod_row[{}] is {}, want [0, n_mod) = [0, {})",
                                           op_, i, seg.mod_row[i], n_mod));
        }
    }
}

void Desk::rule(bool holds, const char* rule, int64_t got, int64_t other) const {
    if (holds) return;
    raise(Fault::kBug, fmt::format("{}: want {}, got {} and {}", op_, rule, got, other));
}

Counted::Counted(const Ctx& ctx, const char* op, const Cost& cost)
    : observer_(ctx.observer), op_(op) {
    if (ctx.count != nullptr) {
        ctx.count->calls += 1;
        ctx.count->flop += cost.flop;
        ctx.count->matmul_flop += cost.matmul;
        ctx.count->bytes += cost.bytes;
    }
    if (observer_ != nullptr) observer_->begin(op, cost.flop, cost.bytes);
}

Counted::~Counted() {
    if (observer_ != nullptr) observer_->end(op_);
}

}  // namespace vt::front
