// SPDX-License-Identifier: MIT
#include "model/store.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace vt {

ParamStore::ParamStore(const ParamTable& table, const Precision& precision, bool train,
                       const Allocator& allocator)
    : table_(table),
      precision_(precision),
      train_(train),
      master_arena_(std::make_unique<Arena>("master", MemCategory::kMaster, allocator)),
      weights_arena_(std::make_unique<Arena>("weights", MemCategory::kWeights, allocator)),
      grads_arena_(std::make_unique<Arena>("gradients", MemCategory::kGradients, allocator)) {
    declare();
}

void ParamStore::declare() {
    master_.clear();
    copy_.clear();
    grads_.clear();
    for (const ParamRow& row : table_) {
        master_.push_back(master_arena_->alloc(row.name, row.shape, precision_.stat));
        const bool copied = row.matmul && precision_.operand != precision_.stat;
        copy_.push_back(copied ? weights_arena_->alloc(row.name, row.shape, precision_.operand)
                               : Tensor{});
    }
    weights_ = weights_of(master_);
    if (train_ && !table_.empty()) declare_grads();
}

// A matrix that is not trained, and no trained bias beside it: their gradients come of one product.
bool ParamStore::left_out(size_t i) const {
    const ParamRow& row = table_[i];
    if (row.trainable || !row.matmul) return false;
    constexpr std::string_view kWeight = ".weight";
    if (!row.name.ends_with(kWeight)) return true;
    const std::string bias = row.name.substr(0, row.name.size() - kWeight.size()) + ".bias";
    return std::none_of(table_.begin(), table_.end(), [&](const ParamRow& other) {
        return other.trainable && other.name == bias;
    });
}

void ParamStore::declare_grads() {
    // two pieces in turn, since a norm's weight and bias are written by one call
    std::array<int64_t, 2> spare{};
    std::array<Tensor, 2> piece;
    void* first = nullptr;
    const auto take = [&](const std::string& name, const Shape& shape) {
        const Tensor t = grads_arena_->alloc(name, shape, precision_.stat);
        if (first == nullptr) first = t.data;
        return t;
    };
    for (size_t i = 0; i < table_.size(); ++i) {
        const ParamRow& row = table_[i];
        grads_.push_back(row.trainable ? take(row.name, row.shape) : Tensor{});
        if (row.trainable || left_out(i)) continue;
        spare.at(i % 2) = std::max(spare.at(i % 2), row.shape.numel());
    }
    for (size_t k = 0; k < 2; ++k) {
        if (spare.at(k) > 0) piece.at(k) = take("of rows not trained", {spare.at(k)});
    }
    for (size_t i = 0; i < table_.size(); ++i) {
        if (table_[i].trainable || left_out(i)) continue;
        grads_[i] = Tensor(piece.at(i % 2).data, table_[i].shape, precision_.stat);
    }
    flat_grads_ =
        Tensor(first, {div_exact(grads_arena_->mark(), size_of(precision_.stat))}, precision_.stat);
}

void ParamStore::reserve() {
    for (Arena* arena : {master_arena_.get(), weights_arena_.get(), grads_arena_.get()}) {
        arena->reserve();
    }
    declare();
}

Weights ParamStore::weights_of(const std::vector<Tensor>& master) const {
    Weights w;
    for (size_t i = 0; i < table_.size(); ++i) {
        w.master.emplace_back(master[i]);
        w.operand.emplace_back(copy_[i].present() ? copy_[i] : master[i]);
    }
    return w;
}

void ParamStore::init(uint64_t seed, Pool* pool) {
    VT_CHECK(master_arena_->reserved(), "parameters initialised before reserve()");
    constexpr int64_t kPiece = 1 << 16;  // elements; a multiple of 4, the generator's block
    struct Piece {
        size_t row;
        int64_t begin, end;
    };
    std::vector<Piece> pieces;
    for (size_t i = 0; i < table_.size(); ++i) {
        const int64_t n = table_[i].shape.numel();
        for (int64_t b = 0; b < n; b += kPiece) pieces.push_back({i, b, std::min(n, b + kPiece)});
    }
    const auto fill_piece = [&](int64_t k, int /*thread*/) {
        const Piece& p = pieces[static_cast<size_t>(k)];
        const Tensor flat = master_[p.row].view({master_[p.row].numel()});
        init_param_slice(table_[p.row], seed, p.begin, p.end, flat.rows(p.begin, p.end));
    };
    const auto n = static_cast<int64_t>(pieces.size());
    if (pool != nullptr) {
        pool->parallel_for(n, fill_piece);
    } else {
        for (int64_t k = 0; k < n; ++k) fill_piece(k, 0);
    }
}

void ParamStore::zero_grads(const Ctx& ctx) {
    if (flat_grads_.present()) fill(ctx, flat_grads_, 0);
}

Weights ParamStore::show(const Ctx& ctx, const std::vector<Tensor>& master) {
    VT_CHECK(master.size() == table_.size(), "{} tensors for {} parameters", master.size(),
             table_.size());
    for (size_t i = 0; i < table_.size(); ++i) {
        if (copy_[i].present()) cast(ctx, copy_[i], master[i]);
    }
    return weights_of(master);
}

}  // namespace vt
