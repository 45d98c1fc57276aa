// SPDX-License-Identifier: MIT
// bf16 matrix products on AMX tiles: packing of whole operands, then blocks of the output.
// Compiled once, for machines with AMX (see isa/vec.h and CMakeLists.txt). Floor 2.
#include "cpu/amx/finish.h"
#include "cpu/amx/tiles.h"

namespace vt::VT_ISA {
namespace {

using kernel::Operand;
using kernel::Product;

// A panel of B, 640 deep, is 40 KiB of the 48 of the first cache, while the panels of 256 rows of A
// come by from the second. Longer sums are taken in several passes of about the same depth, the
// sums so far waiting in f32.
constexpr int64_t kBlockSteps = 20;
constexpr int64_t kBlockM = 256, kBlockN = 512;
constexpr int64_t kTile = kSide * kSide;  // floats of a finished tile

const uint16_t* in_panels(const Operand& o, int64_t at, int64_t k) {
    return static_cast<const uint16_t*>(o.data) + (o.across ? k * o.ld + at : at * o.ld + k);
}

// Item of the packing of `rows` rows (of A, or columns of B) and K deep: one panel where k is
// contiguous in the source, one step of k where it is not, so that memory is read along its lines.
template <bool kIsA>
void pack(uint16_t* dst, const Operand& o, int64_t rows, int64_t K, int64_t item) {
    const int64_t steps = round_to(K, kStep) / kStep;
    if (o.across) {
        for (int64_t r = 0; r < rows; r += kSide) {
            uint16_t* d = dst + (r / kSide * steps + item) * kPanelStep;
            const uint16_t* s = in_panels(o, r, item * kStep);
            if constexpr (kIsA) {
                pack_a_across(d, s, o.ld, rows - r, K - item * kStep);
            } else {
                pack_b_across(d, s, o.ld, rows - r, K - item * kStep);
            }
        }
        return;
    }
    const int64_t r = item * kSide;
    for (int64_t i = 0; i < steps; ++i) {
        uint16_t* d = dst + (item * steps + i) * kPanelStep;
        const uint16_t* s = in_panels(o, r, i * kStep);
        if constexpr (kIsA) {
            pack_a_along(d, s, o.ld, rows - r, K - i * kStep);
        } else {
            pack_b_along(d, s, o.ld, rows - r, K - i * kStep);
        }
    }
}

// Finishes the tile before while the next one is multiplied: the tile unit and the vector units
// work side by side only on instructions that are near each other, so a few rows follow every step.
class Finisher {
  public:
    explicit Finisher(const Product& p) : p_(p), finish_(finish_rows_of(p.finish)) {}
    /// Fetches what the finish of the tile at (m, n) will read: its turn is during the next
    /// product.
    void expect(int64_t m, int64_t n) const {
        const bool slope = p_.finish == Finish::kGeluSlope || p_.finish == Finish::kGeluSlopeAdd;
        const bool sum = p_.finish == Finish::kAdd || p_.finish == Finish::kGeluSlopeAdd;
        const int64_t rows = p_.M - m < kSide ? p_.M - m : kSide;
        for (int64_t r = m; r < m + rows; ++r) {
            if (slope) fetch(p_.pre, p_.pre_bf16, r * p_.ld_pre + n);
            if (sum) fetch(p_.y, p_.y_bf16, r * p_.ld + n);
        }
    }
    /// The next tile to finish, 32 x 32 sums at `c`, (m, n) of the block; the one before is done.
    void take(const float* c, int64_t m, int64_t n, int64_t steps) {
        c_ = c;
        m_ = m;
        n_ = n;
        rows_ = p_.M - m < kSide ? p_.M - m : kSide;
        columns_ = p_.N - n < kSide ? p_.N - n : kSide;
        per_step_ = steps < 1 ? kSide : (kSide + steps - 1) / steps;
        row_ = 0;
    }
    VT_INLINE void step() {
        if (row_ < rows_) some(per_step_);
    }
    void rest() { some(rows_ - row_); }

  private:
    static void fetch(const void* p, bool bf16, int64_t at) {
        const char* line = static_cast<const char*>(p) + at * (bf16 ? 2 : 4);
        _mm_prefetch(line, _MM_HINT_T0);
        _mm_prefetch(line + (bf16 ? 63 : 64), _MM_HINT_T0);
        if (!bf16) _mm_prefetch(line + 127, _MM_HINT_T0);
    }
    void some(int64_t n) {
        if (n > rows_ - row_) n = rows_ - row_;
        finish_(p_, c_ + row_ * kSide, m_ + row_, n_, n, columns_);
        row_ += n;
    }
    const Product& p_;
    const FinishRows finish_;
    const float* c_ = nullptr;
    int64_t m_ = 0, n_ = 0, rows_ = 0, columns_ = 0, per_step_ = 0, row_ = 0;
};

void product(const Product& p, const uint16_t* a, const uint16_t* b, float* scratch) {
    const TileSetup tiles;
    const int64_t steps = round_to(p.K, kStep) / kStep, rows = round_to(p.M, kSide);
    float* c = scratch;  // sums of a block between passes: [column / 32][row][32 columns]
    float* tile[2] = {c + kBlockM * kBlockN, c + kBlockM * kBlockN + kTile};
    Finisher finisher(p);
    const int64_t passes = (steps + kBlockSteps - 1) / kBlockSteps;
    const int64_t pass_steps = passes > 1 ? (steps + passes - 1) / passes : steps;
    int64_t i0 = 0, turn = 0;
    do {  // once for K = 0 too: an empty sum is 0
        const int64_t n_steps = steps - i0 < pass_steps ? steps - i0 : pass_steps;
        const bool first = i0 == 0, last = i0 + n_steps == steps;
        for (int64_t n = 0; n < p.N; n += kSide) {
            const uint16_t* b_panel = b + (n / kSide * steps + i0) * kPanelStep;
            for (int64_t m = 0; m < p.M; m += kSide) {
                float* sums = c + n * rows + m * kSide;
                float* out = last ? tile[turn % 2] : sums;
                if (last) finisher.expect(m, n);
                tile_product(out, first ? nullptr : sums, a + (m / kSide * steps + i0) * kPanelStep,
                             b_panel, n_steps, [&]() VT_INLINE_LAMBDA { finisher.step(); });
                if (!last) continue;
                finisher.rest();  // of the tile before
                finisher.take(out, m, n, n_steps);
                ++turn;
            }
        }
        i0 += n_steps;
    } while (i0 < steps);
    finisher.rest();
}

}  // namespace

void fill_linear(kernel::MatmulTable& t) {
    kernel::PackedTable& packed = t.packed;
    packed.side = kSide;
    packed.step = kStep;
    packed.block_m = kBlockM;
    packed.block_n = kBlockN;
    packed.product_floats = kBlockM * kBlockN + 2 * kTile;
    packed.pack_a = pack<true>;
    packed.pack_b = pack<false>;
    packed.product = product;
}

}  // namespace vt::VT_ISA
