// SPDX-License-Identifier: MIT
// bf16 matrix products on AMX tiles: packing of whole operands, then blocks of the output.
// Compiled once, for machines with AMX (see isa/vec.h and CMakeLists.txt). Floor 2.
#include "cpu/amx/tiles.h"
#include "cpu/isa/finish.h"

namespace vt::VT_ISA {
namespace {

using kernel::Operand;
using kernel::Product;

// A block of 256 rows of A, 2,048 deep, is 1 MiB of the second cache; panels of B pass by. Longer
// sums are taken in several passes, the sums so far waiting in f32.
constexpr int64_t kBlockSteps = 64;
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
    explicit Finisher(const Product& p) : p_(p) {}
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
    void some(int64_t n) {
        if (n > rows_ - row_) n = rows_ - row_;
        finish_tile(p_, c_ + row_ * kSide, kSide, m_ + row_, n_, n, columns_);
        row_ += n;
    }
    const Product& p_;
    const float* c_ = nullptr;
    int64_t m_ = 0, n_ = 0, rows_ = 0, columns_ = 0, per_step_ = 0, row_ = 0;
};

void product(const Product& p, const uint16_t* a, const uint16_t* b, float* scratch) {
    const TileSetup tiles;
    const int64_t steps = round_to(p.K, kStep) / kStep, rows = round_to(p.M, kSide);
    float* c = scratch;  // sums of a block between passes: [column / 32][row][32 columns]
    float* tile[2] = {c + kBlockM * kBlockN, c + kBlockM * kBlockN + kTile};
    Finisher finisher(p);
    int64_t i0 = 0, turn = 0;
    do {  // once for K = 0 too: an empty sum is 0
        const int64_t n_steps = steps - i0 < kBlockSteps ? steps - i0 : kBlockSteps;
        const bool first = i0 == 0, last = i0 + n_steps == steps;
        for (int64_t n = 0; n < p.N; n += kSide) {
            const uint16_t* b_panel = b + (n / kSide * steps + i0) * kPanelStep;
            for (int64_t m = 0; m < p.M; m += kSide) {
                float* sums = c + n * rows + m * kSide;
                float* out = last ? tile[turn % 2] : sums;
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
