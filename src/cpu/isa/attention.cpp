// SPDX-License-Identifier: MIT
// Attention on one block of rows of one head, in f32 arithmetic on f32 or bf16 operands. The rows
// of the block are the lanes of the vectors: scores are held transposed, (other row, lane), so the
// softmax needs no horizontal sums and its result is already packed for the next product.
// Online softmax and recomputation in the backward: Dao 2023, arXiv:2307.08691.
// Compiled three times (see vec.h). Floor 2.
#include "cpu/isa/exponential.h"
#include "cpu/matmul_kernels.h"

namespace vt::VT_ISA {
namespace {

using kernel::Heads;

constexpr int64_t kLanes = 192;  // rows of a block at most
constexpr int64_t kTile = 96;    // rows of the other side that pass by at a time
static_assert(kLanes % kNr == 0 && kTile % kMr == 0, "whole panels");

// Lane panels (d, lane) of `rows` rows of src, times factor.
template <typename T>
void pack_lanes(float* dst, const T* src, int64_t ld, int64_t rows, int64_t HD, float factor) {
    pack_along<kNr>(dst, src, ld, rows, HD);
    if (factor == 1.0F) return;
    const NF f = splat_native(factor);
    for (int64_t i = 0; i < round_to(rows, kNr) * HD; i += kWidth) {
        store_native(dst + i, load_native(dst + i) * f);
    }
}

// dst[r * ld + d] = panels[(r / kNr)][d][r % kNr] * factor[r]; panels are `depth` deep.
template <typename T>
void unpack_lanes(T* dst, int64_t ld, const float* panels, int64_t depth, int64_t rows, int64_t HD,
                  const float* factor) {
    alignas(64) float line[256 + 16];
    for (int64_t r = 0; r < rows; ++r) {
        const float* src = panels + r / kNr * depth * kNr + r % kNr;
        const float f = factor[r];
        for (int64_t d = 0; d < HD; ++d) line[d] = src[d * kNr] * f;
        each_block(HD, [&](int64_t d, auto w)
                           VT_INLINE_LAMBDA { store(dst + r * ld + d, load(line + d, w), w); });
    }
}

void clear(float* p, int64_t n) {
    for (int64_t i = 0; i < n; ++i) p[i] = 0.0F;
}

// One tile's step of the online softmax on one vector of lanes. s[k * kNr] becomes
// exp(s - maximum); running maximum and sum are updated; returns the factor on what was summed
// under the old maximum.
VT_INLINE NF softmax_step(float* s, int64_t K, float* maximum, float* sum) {
    const NF before = load_native(maximum);
    NF m0 = before, m1 = before;
    int64_t k = 0;
    for (; k + 2 <= K; k += 2) {
        const NF a = load_native(s + k * kNr), b = load_native(s + (k + 1) * kNr);
        m0 = a > m0 ? a : m0;
        m1 = b > m1 ? b : m1;
    }
    for (; k < K; ++k) {
        const NF a = load_native(s + k * kNr);
        m0 = a > m0 ? a : m0;
    }
    const NF now = m0 > m1 ? m0 : m1;
    const NF correction = exponential_native(before - now);
    NF total = NF{};
    for (k = 0; k < K; ++k) {
        const NF e = exponential_native(load_native(s + k * kNr) - now);
        store_native(s + k * kNr, e);
        total += e;
    }
    store_native(maximum, now);
    store_native(sum, multiply_add(load_native(sum), correction, total));
    return correction;
}

template <typename T>
void attention_fwd(const Heads& h, int64_t begin, int64_t end, float* scratch) {
    const int64_t rows = end - begin, lanes = round_to(rows, kNr), HD = h.HD;
    const int64_t depth = round_to(HD, kMr);
    float* q = scratch;
    float* k_tile = q + kLanes * HD;
    float* v_tile = k_tile + kTile * HD;
    float* s = v_tile + depth * kTile;
    float* o = s + kTile * kLanes;
    float* maximum = o + depth * kLanes;
    float* sum = maximum + kLanes;
    pack_lanes(q, static_cast<const T*>(h.q) + begin * h.ld, h.ld, rows, HD, h.scale);
    clear(o, depth * lanes);
    clear(sum, lanes);
    for (int64_t i = 0; i < lanes; ++i) maximum[i] = -__builtin_inff();

    for (int64_t k0 = 0; k0 < h.Sk; k0 += kTile) {
        const int64_t K = h.Sk - k0 < kTile ? h.Sk - k0 : kTile;
        pack_along<kMr>(k_tile, static_cast<const T*>(h.k) + k0 * h.ld, h.ld, K, HD);
        pack_across<kMr>(v_tile, static_cast<const T*>(h.v) + k0 * h.ld, h.ld, HD, K);
        panel_product(s, kTile, k_tile, q, HD, K, lanes, HD, true);
        for (int64_t i = 0; i < lanes; i += kWidth) {
            const int64_t panel = i / kNr, at = i % kNr;
            const NF correction =
                softmax_step(s + panel * kTile * kNr + at, K, maximum + i, sum + i);
            float* out = o + panel * depth * kNr + at;
            for (int64_t d = 0; d < HD; ++d) {
                store_native(out + d * kNr, load_native(out + d * kNr) * correction);
            }
        }
        panel_product(o, depth, v_tile, s, kTile, HD, lanes, K, false);
    }
    for (int64_t i = 0; i < rows; ++i) {
        h.lse[(begin + i) * h.ld_stat] = maximum[i] + __builtin_logf(sum[i]);
        sum[i] = sum[i] == 0.0F ? 0.0F : 1.0F / sum[i];
    }
    unpack_lanes(static_cast<T*>(h.o) + begin * h.ld, h.ld, o, depth, rows, HD, sum);
}

// dq of query rows [begin, end): the lanes are queries, tiles of keys pass by.
template <typename T>
void attention_bwd_q(const Heads& h, int64_t begin, int64_t end, float* scratch) {
    const int64_t rows = end - begin, lanes = round_to(rows, kNr), HD = h.HD;
    const int64_t depth = round_to(HD, kMr);
    float* q = scratch;
    float* dout = q + kLanes * HD;
    float* tile = dout + kLanes * HD;  // of K, V, and K again the other way
    float* across = tile + kTile * HD;
    float* s = across + depth * kTile;
    float* dp = s + kTile * kLanes;
    float* dq = dp + kTile * kLanes;
    float* lse = dq + depth * kLanes;
    float* delta = lse + kLanes;
    pack_lanes(q, static_cast<const T*>(h.q) + begin * h.ld, h.ld, rows, HD, h.scale);
    pack_lanes(dout, static_cast<const T*>(h.dout) + begin * h.ld, h.ld, rows, HD, 1.0F);
    clear(dq, depth * lanes);
    for (int64_t i = 0; i < lanes; ++i) {
        lse[i] = i < rows ? h.lse_in[(begin + i) * h.ld_stat] : 0.0F;
        delta[i] = i < rows ? h.delta[(begin + i) * h.ld_stat] : 0.0F;
    }
    for (int64_t k0 = 0; k0 < h.Sk; k0 += kTile) {
        const int64_t K = h.Sk - k0 < kTile ? h.Sk - k0 : kTile;
        const T* k = static_cast<const T*>(h.k) + k0 * h.ld;
        pack_along<kMr>(tile, k, h.ld, K, HD);
        panel_product(s, kTile, tile, q, HD, K, lanes, HD, true);
        pack_along<kMr>(tile, static_cast<const T*>(h.v) + k0 * h.ld, h.ld, K, HD);
        panel_product(dp, kTile, tile, dout, HD, K, lanes, HD, true);
        for (int64_t i = 0; i < lanes; i += kWidth) {
            const int64_t at = i / kNr * kTile * kNr + i % kNr;
            const NF lse_i = load_native(lse + i), delta_i = load_native(delta + i);
            for (int64_t j = at; j < at + K * kNr; j += kNr) {
                const NF p = exponential_native(load_native(s + j) - lse_i);
                store_native(s + j, p * (load_native(dp + j) - delta_i));
            }
        }
        pack_across<kMr>(across, k, h.ld, HD, K);
        panel_product(dq, depth, across, s, kTile, HD, lanes, K, false);
    }
    for (int64_t i = 0; i < rows; ++i) lse[i] = h.scale;
    unpack_lanes(static_cast<T*>(h.dq) + begin * h.ld, h.ld, dq, depth, rows, HD, lse);
}

// dk and dv of key rows [begin, end): the lanes are keys, tiles of queries pass by.
template <typename T>
void attention_bwd_kv(const Heads& h, int64_t begin, int64_t end, float* scratch) {
    const int64_t rows = end - begin, lanes = round_to(rows, kNr), HD = h.HD;
    const int64_t depth = round_to(HD, kMr);
    float* k = scratch;
    float* v = k + kLanes * HD;
    float* tile = v + kLanes * HD;  // of q, dout, and both again the other way
    float* across = tile + kTile * HD;
    float* p = across + depth * kTile;
    float* ds = p + kTile * kLanes;
    float* dk = ds + kTile * kLanes;
    float* dv = dk + depth * kLanes;
    float* factor = dv + depth * kLanes;
    pack_lanes(k, static_cast<const T*>(h.k) + begin * h.ld, h.ld, rows, HD, h.scale);
    pack_lanes(v, static_cast<const T*>(h.v) + begin * h.ld, h.ld, rows, HD, 1.0F);
    clear(dk, depth * lanes);
    clear(dv, depth * lanes);
    for (int64_t q0 = 0; q0 < h.Sq; q0 += kTile) {
        const int64_t Q = h.Sq - q0 < kTile ? h.Sq - q0 : kTile;
        const T* q = static_cast<const T*>(h.q) + q0 * h.ld;
        const T* dout = static_cast<const T*>(h.dout) + q0 * h.ld;
        pack_along<kMr>(tile, q, h.ld, Q, HD);
        panel_product(p, kTile, tile, k, HD, Q, lanes, HD, true);
        pack_along<kMr>(tile, dout, h.ld, Q, HD);
        panel_product(ds, kTile, tile, v, HD, Q, lanes, HD, true);
        for (int64_t panel = 0; panel < lanes / kNr; ++panel) {
            for (int64_t j = 0; j < Q; ++j) {
                const NF lse = splat_native(h.lse_in[(q0 + j) * h.ld_stat]);
                const NF delta = splat_native(h.delta[(q0 + j) * h.ld_stat]);
                float* p_row = p + (panel * kTile + j) * kNr;
                float* ds_row = ds + (panel * kTile + j) * kNr;
                for (int64_t i = 0; i < kNr; i += kWidth) {
                    const NF e = exponential_native(load_native(p_row + i) - lse);
                    store_native(p_row + i, e);
                    store_native(ds_row + i, e * (load_native(ds_row + i) - delta));
                }
            }
        }
        pack_across<kMr>(across, dout, h.ld, HD, Q);
        panel_product(dv, depth, across, p, kTile, HD, lanes, Q, false);
        pack_across<kMr>(across, q, h.ld, HD, Q);
        panel_product(dk, depth, across, ds, kTile, HD, lanes, Q, false);
    }
    for (int64_t i = 0; i < rows; ++i) factor[i] = h.scale;
    unpack_lanes(static_cast<T*>(h.dk) + begin * h.ld, h.ld, dk, depth, rows, HD, factor);
    for (int64_t i = 0; i < rows; ++i) factor[i] = 1.0F;
    unpack_lanes(static_cast<T*>(h.dv) + begin * h.ld, h.ld, dv, depth, rows, HD, factor);
}

template <typename T>
void attention_delta(float* delta, const void* dout, const void* o, int64_t NH, int64_t HD,
                     int64_t begin, int64_t end) {
    for (int64_t i = begin * NH; i < end * NH; ++i) {
        const T* x = static_cast<const T*>(dout) + i * HD;
        const T* y = static_cast<const T*>(o) + i * HD;
        F16 total = zero();
        each_block(HD, [&](int64_t d, auto w)
                           VT_INLINE_LAMBDA { total = total + load(x + d, w) * load(y + d, w); });
        delta[i] = sum(total);
    }
}

// What the largest of the three (bwd_kv) lays out in its scratch.
int64_t attention_floats(int64_t HD) {
    const int64_t depth = round_to(HD, kMr);
    return 2 * kLanes * HD + kTile * (HD + depth) + 2 * kTile * kLanes + 2 * depth * kLanes +
           2 * kLanes;
}

template <typename T>
void fill_type(kernel::MatmulTable& t, int type) {
    t.attention_fwd[type] = attention_fwd<T>;
    t.attention_bwd_q[type] = attention_bwd_q<T>;
    t.attention_bwd_kv[type] = attention_bwd_kv<T>;
    t.attention_delta[type] = attention_delta<T>;
}

}  // namespace

void fill_attention(kernel::MatmulTable& t) {
    t.attention_rows = kLanes;
    t.attention_floats = attention_floats;
    fill_type<float>(t, 0);
    fill_type<uint16_t>(t, 1);
}

}  // namespace vt::VT_ISA
