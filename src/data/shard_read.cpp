// SPDX-License-Identifier: MIT
// One pass over a sample's stored bytes: read a piece, hash it, convert it, test it, while it is in
// the cache.
// Floor 3.
#include "data/shard_read.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "core/check.h"
#include "core/hash.h"

namespace vt {

namespace {

float half_to_float(uint16_t h) {
    const uint32_t sign = static_cast<uint32_t>(h & 0x8000U) << 16;
    const uint32_t rest = h & 0x7fffU;
    if (rest >= 0x7c00U) {  // infinity, NaN
        return std::bit_cast<float>(sign | 0x7f800000U | ((rest & 0x3ffU) << 13));
    }
    if (rest < 0x400U) {  // zero, subnormal: rest * 2^-24, exact
        const float magnitude = static_cast<float>(rest) * 0x1p-24F;
        return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
    }
    return std::bit_cast<float>(sign | ((rest << 13) + (112U << 23)));
}

template <typename T>
T load(const char* p, int64_t i) {
    T v;
    std::memcpy(&v, p + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    return v;
}

// Nonzero if any of n floats is infinite or NaN. Branch-free, so that it vectorises (this file is
// compiled with -O3).
bool any_non_finite(const float* x, int64_t n) {
    uint32_t bad = 0;
    for (int64_t i = 0; i < n; ++i) {
        const uint32_t exponent = std::bit_cast<uint32_t>(x[i]) & 0x7f800000U;
        bad |= static_cast<uint32_t>(exponent == 0x7f800000U);
    }
    return bad != 0;
}

constexpr int64_t kPiece = 1 << 16;  // bytes per pread; on the stack, inside the second-level cache
constexpr int64_t kBlock = 1024;     // floats converted at a time

struct Stream {
    const Fd& fd;
    const fs::path& path;
    ReadWatch* watch;
    Xxh3Stream hash;
    bool finite = true;

    // n stored numbers at `offset` into `to` (elements of dtype).
    void copy(Stored stored, int64_t offset, int64_t n, void* to, DType dtype) {
        std::array<char, kPiece> piece;   // NOLINT: filled by pread
        std::array<float, kBlock> block;  // NOLINT: filled by to_floats
        const int64_t width = size_of(stored), per_piece = kPiece / width;
        for (int64_t done = 0; done < n;) {
            const int64_t count = std::min(per_piece, n - done);
            watched(watch, [&] {
                pread_all(fd, piece.data(), count * width, offset + done * width, path);
            });
            hash.update(piece.data(), count * width);
            for (int64_t i = 0; i < count; i += kBlock) {
                const int64_t m = std::min(kBlock, count - i);
                const char* from = piece.data() + i * width;
                if (dtype == DType::kF32) {
                    float* out = static_cast<float*>(to) + done + i;
                    to_floats(stored, from, m, out);
                    finite &= !any_non_finite(out, m);
                } else {
                    bf16* out = static_cast<bf16*>(to) + done + i;
                    to_floats(stored, from, m, block.data());
                    for (int64_t j = 0; j < m; ++j) {
                        out[j] = to_bf16(block[static_cast<size_t>(j)]);
                        // rounding up may overflow, so the rounded number is tested
                        block[static_cast<size_t>(j)] = to_float(out[j]);
                    }
                    finite &= !any_non_finite(block.data(), m);
                }
            }
            done += count;
        }
    }
};

std::string read_cut(const Fd& fd, const fs::path& path, const ByteRange& offsets,
                     const ByteRange& bytes, int64_t row, ReadWatch* watch) {
    std::array<int64_t, 2> cut{};
    const int64_t at = offsets.offset + row * 8;
    watched(watch, [&] { pread_all(fd, cut.data(), 16, at, path); });
    // the child saw them in order; the file may have changed since
    if (cut[0] < 0 || cut[0] > cut[1] || cut[1] > bytes.bytes) {
        raise(Fault::kData, fmt::format("{}, row {}: string offsets [{}, {}) are out of order",
                                        path.string(), row, cut[0], cut[1]));
    }
    std::string out(static_cast<size_t>(cut[1] - cut[0]), '\0');
    const int64_t begin = bytes.offset + cut[0];
    watched(watch, [&] { pread_all(fd, out.data(), std::ssize(out), begin, path); });
    return out;
}

}  // namespace

void to_floats(Stored stored, const void* from, int64_t n, float* to) {
    if (n == 0) return;  // of no numbers either pointer may be null
    const char* p = static_cast<const char*>(from);
    switch (stored) {
        case Stored::kF32:
            std::memcpy(to, p, static_cast<size_t>(n) * 4);
            return;
        case Stored::kBF16:
            for (int64_t i = 0; i < n; ++i) {
                to[i] = std::bit_cast<float>(static_cast<uint32_t>(load<uint16_t>(p, i)) << 16);
            }
            return;
        case Stored::kF16:
            for (int64_t i = 0; i < n; ++i) to[i] = half_to_float(load<uint16_t>(p, i));
            return;
        case Stored::kF64:
            for (int64_t i = 0; i < n; ++i) to[i] = static_cast<float>(load<double>(p, i));
            return;
    }
}

Fd open_shard(const fs::path& path, const FileStamp& stamp, ReadWatch* watch) {
    Fd fd;
    FileStamp now;
    watched(watch, [&] {
        fd = open_read(path);
        now = stamp_of(fd, path);
    });
    if (now != stamp) {
        raise(Fault::kData, fmt::format("{} is not the file that was indexed", path.string()),
              "shards must not change during a run; start again to index them anew");
    }
    return fd;
}

void read_sample(const Fd& fd, const fs::path& path, const ShardIndex& x, int64_t row,
                 Tensor latent, Tensor text, ReadWatch* watch) {
    const LatentFacts& f = x.facts;
    VT_CHECK(0 <= row && row < x.count, "row {} of {}", row, x.count);
    VT_CHECK((latent.shape == Shape{x.shape[0], x.shape[1], x.shape[2], x.shape[3]}),
             "latent is {}", latent.shape.str());
    VT_CHECK((text.shape == Shape{f.text_len, f.text_dim}), "text is {}", text.shape.str());
    for (const DType t : {latent.dtype, text.dtype}) {
        VT_CHECK(t == DType::kF32 || t == DType::kBF16, "samples are read as {}", name_of(t));
    }
    Stream in{.fd = fd, .path = path, .watch = watch, .hash = {}};
    const int64_t n = x.latent_elements();
    in.copy(x.latent_type, x.latents.offset + row * n * size_of(x.latent_type), n, latent.data,
            latent.dtype);
    const auto r = static_cast<size_t>(row);
    const int64_t begin = x.text_start[r], rows = x.text_start[r + 1] - begin;
    in.copy(x.text_type, x.text.offset + begin * f.text_dim * size_of(x.text_type),
            rows * f.text_dim, text.data, text.dtype);
    const Tensor pad = text.rows(rows, f.text_len);
    if (pad.bytes() > 0) std::memset(pad.data, 0, static_cast<size_t>(pad.bytes()));
    const uint64_t sum = in.hash.digest();
    if (x.has_checksums && sum != x.checksums[r]) {
        raise(Fault::kData,
              fmt::format("{}, row {}: the stored bytes hash to {}, the shard's checksum is {}",
                          path.string(), row, hex64(sum), hex64(x.checksums[r])),
              "copy or encode the shard again; `vtrain data verify` lists all bad samples");
    }
    if (!in.finite) {
        raise(Fault::kData, fmt::format("{}, row {}: holds an infinity or NaN", path.string(), row),
              "the encoder wrote it; encode the sample again or leave it out");
    }
}

std::string read_id(const Fd& fd, const fs::path& path, const ShardIndex& x, int64_t row,
                    ReadWatch* watch) {
    VT_CHECK(0 <= row && row < x.count, "row {} of {}", row, x.count);
    if (!x.has_ids) return fmt::format("{}#{}", path.stem().string(), row);
    return read_cut(fd, path, x.id_offsets, x.ids, row, watch);
}

std::string read_caption(const Fd& fd, const fs::path& path, const ShardIndex& x, int64_t row) {
    VT_CHECK(0 <= row && row < x.count, "row {} of {}", row, x.count);
    if (!x.has_captions) return {};
    return read_cut(fd, path, x.caption_offsets, x.captions, row, nullptr);
}

}  // namespace vt
