// SPDX-License-Identifier: MIT
// bf16 x bf16 -> f32 products on AMX tiles: how operands are packed, and the 32 x 32 kernel.
//
//   A  panels of 32 rows: [row / 32][k / 32][2 halves][16 rows][32 k], each half one tile
//   B  panels of 32 columns: [column / 32][k / 32][2 halves][16 pairs of k][16 columns][2]
//   C  f32 panels: [column / 32][row][32 columns]
//
// A tile instruction adds 16 pairs of products to each of 16 x 16 sums; four sums with two tiles of
// A and two of B keep the unit busy (two loads for each two products). Each sum runs over k in
// ascending order whatever the blocking. Internal linkage only (see isa/vec.h). Floor 2.
#pragma once

#include "cpu/isa/panel.h"

namespace vt::VT_ISA {
namespace {

constexpr int64_t kSide = 32;                  // rows or columns of a panel
constexpr int64_t kStep = 32;                  // k of one tile
constexpr int64_t kPanelStep = kSide * kStep;  // elements of a panel per kStep

// Eight tiles of 16 rows x 64 bytes on the calling thread while this lives.
class TileSetup {
  public:
    TileSetup() {
        alignas(64) uint8_t config[64] = {};
        config[0] = 1;  // palette
        for (int i = 0; i < 8; ++i) {
            config[16 + 2 * i] = 64;  // bytes of a row, 16 bits each
            config[48 + i] = 16;      // rows
        }
        _tile_loadconfig(config);
        asm volatile("" ::: "memory");
    }
    // work in memory may not be moved past the release, whose asm names no memory
    ~TileSetup() {
        asm volatile("" ::: "memory");
        _tile_release();
    }
    TileSetup(const TileSetup&) = delete;
    TileSetup& operator=(const TileSetup&) = delete;
};

// out (32 x 32) = A panel x B panel over `steps` steps of k, added to `sums` unless that is null;
// the two may be one. Panels as packed; both f32 tiles have rows of 32. A passes by and B stays:
// what is loaded of A asks for no place in the first cache, so that a panel of B that fits is read
// from there again and again. Calls beside() after each step: vector work near enough to the tile
// instructions to run beside them.
template <typename Beside>
VT_INLINE void tile_product(float* out, const float* sums, const uint16_t* a, const uint16_t* b,
                            int64_t steps, const Beside& beside) {
    // the tile instructions do not tell the compiler what they read and write
    asm volatile("" ::: "memory");
    constexpr int64_t kRow = kSide * 4;
    if (sums == nullptr) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    } else {
        _tile_loadd(0, sums, kRow);
        _tile_loadd(1, sums + 16, kRow);
        _tile_loadd(2, sums + 16 * kSide, kRow);
        _tile_loadd(3, sums + 16 * kSide + 16, kRow);
    }
    for (int64_t i = 0; i < steps; ++i) {
        _tile_stream_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + 512, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_stream_loadd(5, a + 512, 64);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
        a += kPanelStep;
        b += kPanelStep;
        beside();
    }
    _tile_stored(0, out, kRow);
    _tile_stored(1, out + 16, kRow);
    _tile_stored(2, out + 16 * kSide, kRow);
    _tile_stored(3, out + 16 * kSide + 16, kRow);
    asm volatile("" ::: "memory");
}

// --- packing: 16 x 16 pairs of bf16 at a time ------------------------------------------------

VT_INLINE __m512i load_row(const uint16_t* p) {
    return _mm512_loadu_si512(p);
}
VT_INLINE __mmask32 first(int64_t n) {
    return n >= 32 ? ~__mmask32{0} : n <= 0 ? __mmask32{0} : (__mmask32{1} << n) - 1;
}

// Transposes 16 x 16 32-bit values.
VT_INLINE void transpose(__m512i (&r)[16]) {
    __m512i t[16];
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) {
        t[2 * i] = _mm512_unpacklo_epi32(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_epi32(r[2 * i], r[2 * i + 1]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        r[4 * i] = _mm512_unpacklo_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 1] = _mm512_unpackhi_epi64(t[4 * i], t[4 * i + 2]);
        r[4 * i + 2] = _mm512_unpacklo_epi64(t[4 * i + 1], t[4 * i + 3]);
        r[4 * i + 3] = _mm512_unpackhi_epi64(t[4 * i + 1], t[4 * i + 3]);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        t[i] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 8] = _mm512_shuffle_i32x4(r[i], r[i + 4], 0xdd);
        t[i + 12] = _mm512_shuffle_i32x4(r[i + 8], r[i + 12], 0xdd);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 4], 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 8], t[i + 12], 0xdd);
    }
}

// Sixteen rows of up to 32 elements; what is outside reads as zero.
VT_INLINE void load_block(__m512i (&r)[16], const uint16_t* src, int64_t ld, int64_t rows,
                          int64_t n) {
    if (rows >= 16 && n >= 32) {
#pragma GCC unroll 16
        for (int i = 0; i < 16; ++i) r[i] = load_row(src + i * ld);
        return;
    }
    const __mmask32 mask = first(n);
    for (int i = 0; i < 16; ++i) {
        r[i] = i < rows ? _mm512_maskz_loadu_epi16(mask, src + i * ld) : _mm512_setzero_si512();
    }
}
VT_INLINE void store_tile(uint16_t* dst, const __m512i (&r)[16]) {
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) _mm512_store_si512(dst + 32 * i, r[i]);
}
// Rows k, k + 1 of 32 columns become 32 pairs: columns 0..15 in low, 16..31 in high.
VT_INLINE void interleave(__m512i a, __m512i b, __m512i& low, __m512i& high) {
    const __m512i l = _mm512_unpacklo_epi16(a, b), h = _mm512_unpackhi_epi16(a, b);
    const __m512i pick_low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
    const __m512i pick_high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
    low = _mm512_permutex2var_epi64(l, pick_low, h);
    high = _mm512_permutex2var_epi64(l, pick_high, h);
}

// One panel step (32 rows or columns, 32 k) from a source with k contiguous.
// rows, K: how many of them there are.
VT_INLINE void pack_a_along(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t rows,
                            int64_t K) {
    for (int h = 0; h < 2; ++h) {
        __m512i r[16];
        load_block(r, src + 16 * h * ld, ld, rows - 16 * h, K);
        store_tile(dst + 512 * h, r);
    }
}
VT_INLINE void pack_b_along(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t columns,
                            int64_t K) {
    for (int h = 0; h < 2; ++h) {
        __m512i r[16];
        load_block(r, src + 16 * h * ld, ld, columns - 16 * h, K);
        transpose(r);
        store_tile(dst + 512 * h, r);
    }
}
// The same from a source with the kept index contiguous.
VT_INLINE void load_pairs(__m512i (&low)[16], __m512i (&high)[16], const uint16_t* src, int64_t ld,
                          int64_t n, int64_t K) {
    __m512i r[16];
    load_block(r, src, ld, K, n);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) interleave(r[2 * i], r[2 * i + 1], low[i], high[i]);
    load_block(r, src + 16 * ld, ld, K - 16, n);
#pragma GCC unroll 8
    for (int i = 0; i < 8; ++i) interleave(r[2 * i], r[2 * i + 1], low[8 + i], high[8 + i]);
}
VT_INLINE void pack_b_across(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t columns,
                             int64_t K) {
    __m512i low[16], high[16];
    load_pairs(low, high, src, ld, columns, K);
    store_tile(dst, low);
    store_tile(dst + 512, high);
}
VT_INLINE void pack_a_across(uint16_t* dst, const uint16_t* src, int64_t ld, int64_t rows,
                             int64_t K) {
    __m512i low[16], high[16];
    load_pairs(low, high, src, ld, rows, K);
    transpose(low);
    transpose(high);
    store_tile(dst, low);
    store_tile(dst + 512, high);
}

}  // namespace
}  // namespace vt::VT_ISA
