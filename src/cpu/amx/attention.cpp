// SPDX-License-Identifier: MIT
// bf16 attention on AMX tiles, one block of rows of one head. The rows of the block are the lanes:
// scores are held transposed, (other row, lane), so the softmax needs no horizontal sums, and two
// neighbouring rows of it, rounded and interleaved, already are a tile of the next product.
// Online softmax and recomputation in the backward: Dao 2023, arXiv:2307.08691.
// Compiled once, for machines with AMX (see isa/vec.h). Floor 2.
#include "cpu/amx/tiles.h"
#include "cpu/matmul_kernels.h"

namespace vt::VT_ISA {
namespace {

using kernel::Heads;

constexpr int64_t kLanes = 192;  // rows of a block at most
constexpr int64_t kTile = 128;   // rows of the other side that pass by at a time
static_assert(kLanes % kSide == 0 && kTile % kStep == 0, "whole panels");

constexpr float kLog2E = 1.44269504F, kLn2 = 0.693147181F;

// 2^x for x <= 127; below -126 it stays at 2^-126, which nothing that is summed with 1 can see. NaN
// stays NaN. Least maximal error of a polynomial of degree 5 with 2^0 = 1: 9.2e-8 of the value.
VT_INLINE NF power_of_two(NF x) {
    x = x < splat_native(-126.0F) ? splat_native(-126.0F) : x;
    const NF magic = splat_native(12582912.0F);  // 1.5 * 2^23: adding it rounds to an integer
    const NF t = x + magic;
    const NF r = x - (t - magic);
    NF p = splat_native(1.326472731e-3F);
    p = multiply_add(p, r, splat_native(9.671512991e-3F));
    p = multiply_add(p, r, splat_native(5.550733581e-2F));
    p = multiply_add(p, r, splat_native(2.402224243e-1F));
    p = multiply_add(p, r, splat_native(6.931470037e-1F));
    p = multiply_add(p, r, splat_native(1.0F));
    // the low bits of t are the integer: shifted into the exponent's place they multiply
    return reinterpret_cast<NF>(reinterpret_cast<NU>(p) + (reinterpret_cast<NU>(t) << 23));
}

// a and b rounded to bf16 (ties to even, subnormals to zero as tile products take them), lane by
// lane in turn: a in the even places.
VT_INLINE __m512i round_pair(NF a, NF b) {
    alignas(64) static constexpr uint16_t kTurns[32] = {0,  16, 1,  17, 2,  18, 3,  19, 4,  20, 5,
                                                        21, 6,  22, 7,  23, 8,  24, 9,  25, 10, 26,
                                                        11, 27, 12, 28, 13, 29, 14, 30, 15, 31};
    return _mm512_permutexvar_epi16(_mm512_load_si512(kTurns),
                                    reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(b, a)));
}

// Where the pair of rows (k, k + 1) and the 16 lanes from `half` of a B panel lie.
VT_INLINE uint16_t* pair_at(uint16_t* panel, int64_t k, int64_t half) {
    return panel + k / kStep * kPanelStep + half * 512 + k % kStep * 16;
}

// Rows [0, K) of src as tiles: columns for a product whose sum runs over HD ...
void pack_lanes(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t rows, int64_t HD) {
    const int64_t steps = round_to(HD, kStep) / kStep;
    for (int64_t r = 0; r < rows; r += kSide) {
        for (int64_t i = 0; i < steps; ++i, dst += kPanelStep) {
            pack_b_along(dst, src + r * ld + i * kStep, ld, rows - r, HD - i * kStep);
        }
    }
}
// ... rows for the same ...
void pack_rows(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t rows, int64_t HD) {
    const int64_t steps = round_to(HD, kStep) / kStep;
    for (int64_t r = 0; r < rows; r += kSide) {
        for (int64_t i = 0; i < steps; ++i, dst += kPanelStep) {
            pack_a_along(dst, src + r * ld + i * kStep, ld, rows - r, HD - i * kStep);
        }
    }
}
// ... and across: HD rows for a product whose sum runs over the K rows of src.
void pack_turned(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t K, int64_t HD) {
    for (int64_t d = 0; d < HD; d += kSide) {
        for (int64_t k = 0; k < K; k += kStep, dst += kPanelStep) {
            pack_a_across(dst, src + k * ld + d, ld, HD - d, K - k);
        }
    }
}

// c (+)= A B: panels c[lane / 32][c_rows][32]; M rows, `lanes` lanes, `steps` of the summed index;
// B's panels lie b_panel elements apart.
void panels(float* c, int64_t c_rows, const uint16_t* a, const uint16_t* b, int64_t b_panel,
            int64_t M, int64_t lanes, int64_t steps, bool fresh) {
    for (int64_t n = 0; n < lanes; n += kSide) {
        for (int64_t m = 0; m < M; m += kSide) {
            float* sums = c + n * c_rows + m * kSide;
            tile_product(sums, fresh ? nullptr : sums, a + m / kSide * steps * kPanelStep,
                         b + n / kSide * b_panel, steps, [] {});
        }
    }
}

void clear(float* p, int64_t n) {
    for (int64_t i = 0; i < n; i += kWidth) store_native(p + i, NF{});
}

// dst[r * ld + d] = c[r / 32][d][r % 32] * factor[r], panels `depth` rows deep.
void unpack(void* to, int64_t ld, const float* c, int64_t depth, int64_t rows, int64_t HD,
            const float* factor) {
    auto* dst = static_cast<uint16_t*>(to);
    for (int64_t r = 0; r < rows; r += 16) {
        const float* panel = c + r / kSide * depth * kSide + r % kSide;
        const NF f = load_native(factor + r);
        const int64_t n = rows - r < 16 ? rows - r : 16;
        for (int64_t d = 0; d < HD; d += 16) {
            __m512i t[16];
#pragma GCC unroll 16
            for (int i = 0; i < 16; ++i) {
                t[i] = reinterpret_cast<__m512i>(load_native(panel + (d + i) * kSide) * f);
            }
            transpose(t);
            for (int64_t i = 0; i < n; ++i) {
                const F16 line = {{reinterpret_cast<NF>(t[i])}};
                uint16_t* out = dst + (r + i) * ld + d;
                if (HD - d >= 16) {
                    store(out, line, Whole{});
                } else {
                    store(out, line, Part{static_cast<int>(HD - d)});
                }
            }
        }
    }
}

// One tile's step of the online softmax on 16 lanes: s[k * 32], k < K, are products before scaling;
// 2^(scale s - maximum) goes to the B panel p, rounded; its unrounded sum and the maximum are
// updated. Returns the factor on what was summed under the old maximum.
VT_INLINE NF softmax_step(uint16_t* p, int64_t half, const float* s, int64_t K, NF scale,
                          float* maximum, float* sum) {
    const NF before = load_native(maximum);
    NF m0 = before, m1 = before;
    const int64_t even = K / 2 * 2;
    for (int64_t k = 0; k < even; k += 2) {
        const NF a = load_native(s + k * kSide) * scale;
        const NF b = load_native(s + (k + 1) * kSide) * scale;
        m0 = a > m0 ? a : m0;
        m1 = b > m1 ? b : m1;
    }
    if (even < K) {
        const NF a = load_native(s + even * kSide) * scale;
        m0 = a > m0 ? a : m0;
    }
    const NF now = m0 > m1 ? m0 : m1, less = NF{} - now;
    NF t0 = NF{}, t1 = NF{};
    for (int64_t k = 0; k < even; k += 2) {
        const NF a = power_of_two(multiply_add(load_native(s + k * kSide), scale, less));
        const NF b = power_of_two(multiply_add(load_native(s + (k + 1) * kSide), scale, less));
        t0 += a;
        t1 += b;
        _mm512_storeu_si512(pair_at(p, k, half), round_pair(a, b));
    }
    if (even < K) {
        const NF a = power_of_two(multiply_add(load_native(s + even * kSide), scale, less));
        t0 += a;
        _mm512_storeu_si512(pair_at(p, even, half), round_pair(a, NF{}));
    }
    for (int64_t k = round_to(K, 2); k < round_to(K, kStep); k += 2) {
        _mm512_storeu_si512(pair_at(p, k, half), _mm512_setzero_si512());
    }
    const NF correction = power_of_two(before - now);
    store_native(maximum, now);
    store_native(sum, multiply_add(load_native(sum), correction, t0 + t1));
    return correction;
}

void attention_fwd(const Heads& h, int64_t begin, int64_t end, float* scratch) {
    const TileSetup tiles;
    const int64_t rows = end - begin, lanes = round_to(rows, kSide), HD = h.HD;
    const int64_t depth = round_to(HD, kStep);
    float* s = scratch;
    float* o = s + kTile * kLanes;
    float* maximum = o + depth * kLanes;
    float* sum = maximum + kLanes;
    auto* q = reinterpret_cast<uint16_t*>(sum + kLanes);
    uint16_t* p = q + kLanes * depth;
    uint16_t* k_tile = p + kTile * kLanes;
    uint16_t* v_tile = k_tile + kTile * depth;
    pack_lanes(q, static_cast<const uint16_t*>(h.q) + begin * h.ld, h.ld, rows, HD);
    clear(o, depth * lanes);
    clear(sum, lanes);
    for (int64_t i = 0; i < lanes; ++i) maximum[i] = -__builtin_inff();
    const NF scale = splat_native(h.scale * kLog2E);
    for (int64_t k0 = 0; k0 < h.Sk; k0 += kTile) {
        const int64_t K = h.Sk - k0 < kTile ? h.Sk - k0 : kTile, steps = round_to(K, kStep) / kStep;
        pack_rows(k_tile, static_cast<const uint16_t*>(h.k) + k0 * h.ld, h.ld, K, HD);
        pack_turned(v_tile, static_cast<const uint16_t*>(h.v) + k0 * h.ld, h.ld, K, HD);
        panels(s, kTile, k_tile, q, depth * kSide, K, lanes, depth / kStep, true);
        for (int64_t i = 0; i < lanes; i += 16) {
            const int64_t panel = i / kSide, at = i % kSide;
            const NF correction =
                softmax_step(p + panel * kTile * kSide, at / 16, s + panel * kTile * kSide + at, K,
                             scale, maximum + i, sum + i);
            if (_mm512_cmp_ps_mask(correction, splat_native(1.0F), _CMP_NEQ_UQ) == 0) continue;
            float* out = o + panel * depth * kSide + at;
            for (int64_t d = 0; d < HD; ++d) {
                store_native(out + d * kSide, load_native(out + d * kSide) * correction);
            }
        }
        panels(o, depth, v_tile, p, kTile * kSide, HD, lanes, steps, false);
    }
    for (int64_t i = 0; i < rows; ++i) {
        h.lse[(begin + i) * h.ld_stat] = maximum[i] * kLn2 + __builtin_logf(sum[i]);
        sum[i] = sum[i] == 0.0F ? 0.0F : 1.0F / sum[i];
    }
    unpack(static_cast<uint16_t*>(h.o) + begin * h.ld, h.ld, o, depth, rows, HD, sum);
}

// p = 2^(scale s - lse log2 e) and ds = p (dp - delta) for rows [0, K) of 16 lanes, as tiles. Where
// lse and delta belong to the rows, stride is their distance; where to the lanes, 0. p may be null.
struct Statistics {
    const float* lse;
    const float* delta;
    int64_t stride;
    [[nodiscard]] NF less_lse_of(int64_t k) const { return of(lse, k) * splat_native(-kLog2E); }
    [[nodiscard]] NF delta_of(int64_t k) const { return of(delta, k); }

  private:
    [[nodiscard]] VT_INLINE NF of(const float* x, int64_t k) const {
        return stride == 0 ? load_native(x) : splat_native(x[k * stride]);
    }
};
// Besides, where `rows` is not null, ds goes there as rows of an A operand whose summed index is
// the lane, `steps` steps of 32 lanes, from lane `lane`; lanes that `there` lacks are zero.
struct Rows {
    uint16_t* data = nullptr;
    int64_t steps = 0, lane = 0;
    __mmask16 there = 0;
    [[nodiscard]] VT_INLINE uint16_t* at(int64_t k) const {
        return data + (k / kSide * steps + lane / kStep) * kPanelStep + k % kSide * kStep +
               lane % kStep;
    }
};
VT_INLINE void gradient_step(uint16_t* p, uint16_t* ds, int64_t half, const float* s,
                             const float* dp, int64_t K, NF scale, const Statistics& stat,
                             const Rows& rows) {
    for (int64_t k = 0; k < round_to(K, kStep); k += 2) {
        NF e[2] = {}, g[2] = {};
#pragma GCC unroll 2
        for (int64_t i = 0; i < 2; ++i) {
            if (k + i >= K) continue;
            e[i] = power_of_two(
                multiply_add(load_native(s + (k + i) * kSide), scale, stat.less_lse_of(k + i)));
            g[i] = e[i] * (load_native(dp + (k + i) * kSide) - stat.delta_of(k + i));
        }
        if (p != nullptr) _mm512_storeu_si512(pair_at(p, k, half), round_pair(e[0], e[1]));
        _mm512_storeu_si512(pair_at(ds, k, half), round_pair(g[0], g[1]));
        if (rows.data == nullptr) continue;
        // a lane that is only padding may hold anything, and 0 times infinity would be seen
        const auto both = reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(
            _mm512_maskz_mov_ps(rows.there, g[1]), _mm512_maskz_mov_ps(rows.there, g[0])));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows.at(k)), _mm512_castsi512_si256(both));
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(rows.at(k + 1)),
                            _mm512_extracti64x4_epi64(both, 1));
    }
}

// The scratch of a backward block, the same for both directions.
struct Backward {
    float *s, *dp, *out0, *out1, *first, *second;  // products; sums; a row of lanes each
    uint16_t *lanes0, *lanes1, *p, *ds, *tile0, *tile1;
    Backward(float* scratch, int64_t depth)
        : s(scratch),
          dp(s + kTile * kLanes),
          out0(dp + kTile * kLanes),
          out1(out0 + depth * kLanes),
          first(out1 + depth * kLanes),
          second(first + kLanes),
          lanes0(reinterpret_cast<uint16_t*>(second + kLanes)),
          lanes1(lanes0 + kLanes * depth),
          p(lanes1 + kLanes * depth),
          ds(p + kTile * kLanes),
          tile0(ds + kTile * kLanes),
          tile1(tile0 + kTile * depth) {}
};

// dq of query rows [begin, end): the lanes are queries, tiles of keys pass by.
void attention_bwd_q(const Heads& h, int64_t begin, int64_t end, float* scratch) {
    const TileSetup tiles;
    const int64_t rows = end - begin, lanes = round_to(rows, kSide), HD = h.HD;
    const int64_t depth = round_to(HD, kStep);
    const Backward b(scratch, depth);
    pack_lanes(b.lanes0, static_cast<const uint16_t*>(h.q) + begin * h.ld, h.ld, rows, HD);
    pack_lanes(b.lanes1, static_cast<const uint16_t*>(h.dout) + begin * h.ld, h.ld, rows, HD);
    clear(b.out0, depth * lanes);
    for (int64_t i = 0; i < lanes; ++i) {
        b.first[i] = i < rows ? h.lse_in[(begin + i) * h.ld_stat] : 0.0F;
        b.second[i] = i < rows ? h.delta[(begin + i) * h.ld_stat] : 0.0F;
    }
    const NF scale = splat_native(h.scale * kLog2E);
    for (int64_t k0 = 0; k0 < h.Sk; k0 += kTile) {
        const int64_t K = h.Sk - k0 < kTile ? h.Sk - k0 : kTile, steps = round_to(K, kStep) / kStep;
        const uint16_t* k = static_cast<const uint16_t*>(h.k) + k0 * h.ld;
        pack_rows(b.tile0, k, h.ld, K, HD);
        panels(b.s, kTile, b.tile0, b.lanes0, depth * kSide, K, lanes, depth / kStep, true);
        pack_rows(b.tile1, static_cast<const uint16_t*>(h.v) + k0 * h.ld, h.ld, K, HD);
        panels(b.dp, kTile, b.tile1, b.lanes1, depth * kSide, K, lanes, depth / kStep, true);
        for (int64_t i = 0; i < lanes; i += 16) {
            const int64_t panel = i / kSide * kTile * kSide, at = panel + i % kSide;
            gradient_step(nullptr, b.ds + panel, i % kSide / 16, b.s + at, b.dp + at, K, scale,
                          {b.first + i, b.second + i, 0}, {});
        }
        pack_turned(b.tile0, k, h.ld, K, HD);
        panels(b.out0, depth, b.tile0, b.ds, kTile * kSide, HD, lanes, steps, false);
    }
    for (int64_t i = 0; i < lanes; ++i) b.first[i] = h.scale;
    unpack(static_cast<uint16_t*>(h.dq) + begin * h.ld, h.ld, b.out0, depth, rows, HD, b.first);
}

// Where a pass over blocks of keys leaves dq: sums dq[d / 32][row][d % 32], `depth` rounded up.
struct Queries {
    float* dq = nullptr;                          // null: not asked for
    uint16_t *turned = nullptr, *rows = nullptr;  // of k (B operand), of ds (A operand)
    int64_t length = 0;                           // rows of a panel of dq
};

// dk and dv of key rows [begin, end): the lanes are keys, tiles of queries pass by.
void keys_block(const Heads& h, int64_t begin, int64_t end, const Backward& b, const Queries& out) {
    const int64_t rows = end - begin, lanes = round_to(rows, kSide), HD = h.HD;
    const int64_t depth = round_to(HD, kStep), key_steps = lanes / kStep;
    const auto* keys = static_cast<const uint16_t*>(h.k) + begin * h.ld;
    pack_lanes(b.lanes0, keys, h.ld, rows, HD);
    pack_lanes(b.lanes1, static_cast<const uint16_t*>(h.v) + begin * h.ld, h.ld, rows, HD);
    for (int64_t d = 0; out.dq != nullptr && d < HD; d += kSide) {
        for (int64_t k = 0; k < lanes; k += kStep) {
            pack_b_across(out.turned + (d / kSide * key_steps + k / kStep) * kPanelStep,
                          keys + k * h.ld + d, h.ld, HD - d, rows - k);
        }
    }
    clear(b.out0, depth * lanes);
    clear(b.out1, depth * lanes);
    const NF scale = splat_native(h.scale * kLog2E);
    for (int64_t q0 = 0; q0 < h.Sq; q0 += kTile) {
        const int64_t Q = h.Sq - q0 < kTile ? h.Sq - q0 : kTile, steps = round_to(Q, kStep) / kStep;
        const uint16_t* q = static_cast<const uint16_t*>(h.q) + q0 * h.ld;
        const uint16_t* dout = static_cast<const uint16_t*>(h.dout) + q0 * h.ld;
        pack_rows(b.tile0, q, h.ld, Q, HD);
        panels(b.s, kTile, b.tile0, b.lanes0, depth * kSide, Q, lanes, depth / kStep, true);
        pack_rows(b.tile1, dout, h.ld, Q, HD);
        panels(b.dp, kTile, b.tile1, b.lanes1, depth * kSide, Q, lanes, depth / kStep, true);
        for (int64_t i = 0; i < lanes; i += 16) {
            const int64_t panel = i / kSide * kTile * kSide, at = panel + i % kSide;
            const auto there = static_cast<__mmask16>(first(rows - i));
            gradient_step(b.p + panel, b.ds + panel, i % kSide / 16, b.s + at, b.dp + at, Q, scale,
                          {h.lse_in + q0 * h.ld_stat, h.delta + q0 * h.ld_stat, h.ld_stat},
                          {out.rows, key_steps, i, there});
        }
        pack_turned(b.tile0, q, h.ld, Q, HD);
        panels(b.out0, depth, b.tile0, b.ds, kTile * kSide, HD, lanes, steps, false);
        pack_turned(b.tile1, dout, h.ld, Q, HD);
        panels(b.out1, depth, b.tile1, b.p, kTile * kSide, HD, lanes, steps, false);
        if (out.dq == nullptr) continue;
        panels(out.dq + q0 * kSide, out.length, out.rows, out.turned, lanes * kSide, Q, depth,
               key_steps, begin == 0);
    }
    for (int64_t i = 0; i < lanes; ++i) {
        b.first[i] = h.scale;
        b.second[i] = 1.0F;
    }
    unpack(static_cast<uint16_t*>(h.dk) + begin * h.ld, h.ld, b.out0, depth, rows, HD, b.first);
    unpack(static_cast<uint16_t*>(h.dv) + begin * h.ld, h.ld, b.out1, depth, rows, HD, b.second);
}
void attention_bwd_kv(const Heads& h, int64_t begin, int64_t end, float* scratch) {
    const TileSetup tiles;
    keys_block(h, begin, end, Backward(scratch, round_to(h.HD, kStep)), {});
}

// All three gradients of one head in one pass: scores and their gradient are computed once where
// attention_bwd_q and attention_bwd_kv compute them twice, five products instead of seven. dq sums
// over keys in the same groups of 32 in the same order, so the bits are those of the two.
void attention_bwd(const Heads& h, float* scratch) {
    const TileSetup tiles;
    const int64_t HD = h.HD, depth = round_to(HD, kStep);
    const Backward b(scratch, depth);
    Queries out;
    out.turned = b.tile1 + kTile * depth;
    out.rows = out.turned + kLanes * depth;
    out.dq = reinterpret_cast<float*>(out.rows + kTile * kLanes);
    out.length = round_to(h.Sq, kSide);
    if (h.Sk == 0) clear(out.dq, out.length * depth);
    for (int64_t k = 0; k < h.Sk; k += kLanes) {
        keys_block(h, k, h.Sk - k < kLanes ? h.Sk : k + kLanes, b, out);
    }
    for (int64_t r = 0; r < h.Sq; ++r) {
        each_block(HD, [&](int64_t d, auto w) VT_INLINE_LAMBDA {
            const float* sums = out.dq + d / kSide * out.length * kSide + r * kSide + d % kSide;
            store(static_cast<uint16_t*>(h.dq) + r * h.ld + d, load(sums, Whole{}) * splat(h.scale),
                  w);
        });
    }
}

// What Backward lays out, which is more than the forward needs; bf16 elements are half a float.
int64_t own_floats(int64_t HD) {
    const int64_t depth = round_to(HD, kStep);
    return 2 * kTile * kLanes + 2 * depth * kLanes + 2 * kLanes +
           (2 * kLanes * depth + 2 * kTile * kLanes + 2 * kTile * depth) / 2;
}
int64_t one_pass_floats(int64_t HD, int64_t Sq) {
    const int64_t depth = round_to(HD, kStep);
    return own_floats(HD) + (kLanes * depth + kTile * kLanes) / 2 + round_to(Sq, kSide) * depth;
}

}  // namespace

void fill_attention(kernel::MatmulTable& t) {
    t.attention_bf16_floats = own_floats;
    t.attention_fwd[1] = attention_fwd;
    t.attention_bwd_q[1] = attention_bwd_q;
    t.attention_bwd_kv[1] = attention_bwd_kv;
    t.attention_bwd_bf16 = attention_bwd;
    t.attention_bwd_floats = one_pass_floats;
}

}  // namespace vt::VT_ISA
