// SPDX-License-Identifier: MIT
// bf16 matrix products on AMX tiles: packing of whole operands, then blocks of the output.
// Compiled once, for machines with AMX (see isa/vec.h and CMakeLists.txt). Floor 2.
#include "cpu/amx/tiles.h"
#include "cpu/isa/finish.h"

namespace vt::VT_ISA {
namespace {

using kernel::Operand;
using kernel::Product;

// Steps of k that a block takes at a time: a panel of B (32 KiB) stays in the first cache while the
// panels of A pass by; A and the sums of a block stay in the second.
constexpr int64_t kBlockSteps = 16;
constexpr int64_t kBlockM = 256, kBlockN = 512;

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

// a: packed panels, or null where p.a has k contiguous and is packed here, block by block.
void product(const Product& p, const uint16_t* a, const uint16_t* b, float* scratch) {
    const TileSetup tiles;
    const int64_t steps = round_to(p.K, kStep) / kStep, rows = round_to(p.M, kSide);
    float* c = scratch;
    auto* a_block = reinterpret_cast<uint16_t*>(c + kBlockM * kBlockN);
    int64_t i0 = 0;
    do {  // once for K = 0 too: an empty sum is 0
        const int64_t n_steps = steps - i0 < kBlockSteps ? steps - i0 : kBlockSteps;
        const bool fresh = i0 == 0, last = i0 + n_steps == steps;
        const uint16_t* panels = a == nullptr ? a_block : a + i0 * kPanelStep;
        const int64_t panel_ld = (a == nullptr ? n_steps : steps) * kPanelStep;
        if (a == nullptr) {
            for (int64_t m = 0; m < p.M; m += kSide) {
                for (int64_t i = 0; i < n_steps; ++i) {
                    const int64_t k = (i0 + i) * kStep;
                    pack_a_along(a_block + (m / kSide * n_steps + i) * kPanelStep,
                                 in_panels(p.a, m, k), p.a.ld, p.M - m, p.K - k);
                }
            }
        }
        for (int64_t n = 0; n < p.N; n += kSide) {
            const uint16_t* b_panel = b + (n / kSide * steps + i0) * kPanelStep;
            for (int64_t m = 0; m < p.M; m += kSide) {
                float* sums = c + n * rows + m * kSide;
                tile_product(sums, kSide, panels + m / kSide * panel_ld, kStep, kPanelStep,
                             kPanelStep / 2, b_panel, n_steps, fresh);
                if (!last) continue;
                finish_tile(p, sums, kSide, m, n, p.M - m < kSide ? p.M - m : kSide,
                            p.N - n < kSide ? p.N - n : kSide);
            }
        }
        i0 += n_steps;
    } while (i0 < steps);
}

}  // namespace

void fill_linear(kernel::MatmulTable& t) {
    kernel::PackedTable& packed = t.packed;
    packed.side = kSide;
    packed.step = kStep;
    packed.block_m = kBlockM;
    packed.block_n = kBlockN;
    packed.product_floats = kBlockM * kBlockN + kBlockM * kBlockSteps * kStep / 2;
    packed.pack_a = pack<true>;
    packed.pack_b = pack<false>;
    packed.product = product;
}

}  // namespace vt::VT_ISA
