// SPDX-License-Identifier: MIT
// A PNG encoder: row filters chosen by the smallest sum of absolute differences, DEFLATE with fixed
// Huffman codes and a hash of three-byte strings. PNG specification (ISO/IEC 15948) and RFC 1950,
// 1951.
// Floor 3.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "core/check.h"
#include "data/image.h"

namespace vt {
namespace {

using Bytes = std::string;

constexpr std::array<uint32_t, 256> make_crc_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t n = 0; n < 256; ++n) {
        uint32_t c = n;
        for (int k = 0; k < 8; ++k) c = (c & 1U) != 0 ? 0xedb88320U ^ (c >> 1) : c >> 1;
        table.at(n) = c;
    }
    return table;
}

uint32_t crc32(std::string_view data) {
    static constexpr std::array<uint32_t, 256> kTable = make_crc_table();
    uint32_t c = 0xffffffffU;
    for (const char ch : data) {
        c = kTable[(c ^ static_cast<unsigned char>(ch)) & 0xffU] ^ (c >> 8);
    }
    return c ^ 0xffffffffU;
}

uint32_t adler32(std::string_view data) {
    uint32_t a = 1, b = 0;
    for (const char ch : data) {
        a = (a + static_cast<unsigned char>(ch)) % 65521;
        b = (b + a) % 65521;
    }
    return (b << 16) | a;
}

void put32(Bytes& out, uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>((v >> shift) & 0xffU);
}

class BitWriter {
  public:
    explicit BitWriter(Bytes& out) : out_(out) {}
    void bits(uint32_t value, int count) {  // least significant first
        hold_ |= uint64_t{value} << filled_;
        for (filled_ += count; filled_ >= 8; filled_ -= 8) {
            out_ += static_cast<char>(hold_ & 0xffU);
            hold_ >>= 8;
        }
    }
    void huffman(uint32_t code, int count) {  // most significant first
        uint32_t turned = 0;
        for (int i = 0; i < count; ++i) turned |= ((code >> i) & 1U) << (count - 1 - i);
        bits(turned, count);
    }
    void flush() {
        if (filled_ > 0) bits(0, 8 - filled_);
    }

  private:
    Bytes& out_;
    uint64_t hold_ = 0;
    int filled_ = 0;
};

// RFC 1951, 3.2.6
void put_symbol(BitWriter& w, int symbol) {
    const auto s = static_cast<uint32_t>(symbol);
    if (s < 144) {
        w.huffman(0x30 + s, 8);
    } else if (s < 256) {
        w.huffman(0x190 + s - 144, 9);
    } else if (s < 280) {
        w.huffman(s - 256, 7);
    } else {
        w.huffman(0xc0 + s - 280, 8);
    }
}

// RFC 1951, 3.2.5: codes come in groups of 4 (lengths) or 2 (distances) with one more extra bit
// per group.
void put_length(BitWriter& w, int length) {
    if (length == 258) {
        put_symbol(w, 285);
    } else if (length < 11) {
        put_symbol(w, 257 + length - 3);
    } else {
        int extra = 1, base = 11, symbol = 265;
        while (length >= base + (4 << extra)) {
            base += 4 << extra;
            symbol += 4;
            ++extra;
        }
        put_symbol(w, symbol + ((length - base) >> extra));
        w.bits(static_cast<uint32_t>((length - base) & ((1 << extra) - 1)), extra);
    }
}

void put_distance(BitWriter& w, int distance) {
    if (distance < 5) {
        w.huffman(static_cast<uint32_t>(distance - 1), 5);
        return;
    }
    int extra = 1, base = 5, symbol = 4;
    while (distance >= base + (2 << extra)) {
        base += 2 << extra;
        symbol += 2;
        ++extra;
    }
    w.huffman(static_cast<uint32_t>(symbol + ((distance - base) >> extra)), 5);
    w.bits(static_cast<uint32_t>((distance - base) & ((1 << extra) - 1)), extra);
}

Bytes zlib(const Bytes& in) {
    constexpr int64_t kWindow = 32768, kMax = 258;
    constexpr int kTries = 16;
    Bytes out("\x78\x01", 2);
    BitWriter w(out);
    w.bits(1, 1);  // the last block
    w.bits(1, 2);  // fixed codes
    const auto n = static_cast<int64_t>(in.size());
    std::vector<int64_t> head(size_t{1} << 15, -1), before(static_cast<size_t>(n), -1);
    const auto slot = [&](int64_t i) -> int64_t& {
        const auto b = [&](int64_t k) {
            return static_cast<uint32_t>(
                static_cast<unsigned char>(in[static_cast<size_t>(i + k)]));
        };
        return head[((b(0) | (b(1) << 8) | (b(2) << 16)) * 2654435761U) >> 17];
    };
    const auto enter = [&](int64_t i) {
        if (i + 3 > n) return;
        before[static_cast<size_t>(i)] = slot(i);
        slot(i) = i;
    };
    for (int64_t i = 0; i < n;) {
        int64_t best = 0, from = 0;
        if (i + 3 <= n) {
            const int64_t limit = std::min(kMax, n - i);
            int64_t j = slot(i);
            for (int k = 0; k < kTries && j >= 0 && i - j <= kWindow && best < limit; ++k) {
                int64_t len = 0;
                while (len < limit &&
                       in[static_cast<size_t>(j + len)] == in[static_cast<size_t>(i + len)]) {
                    ++len;
                }
                if (len > best) {
                    best = len;
                    from = j;
                }
                j = before[static_cast<size_t>(j)];
            }
        }
        if (best >= 3) {
            put_length(w, static_cast<int>(best));
            put_distance(w, static_cast<int>(i - from));
            for (int64_t k = 0; k < best; ++k) enter(i + k);
            i += best;
        } else {
            put_symbol(w, static_cast<unsigned char>(in[static_cast<size_t>(i)]));
            enter(i++);
        }
    }
    put_symbol(w, 256);
    w.flush();
    put32(out, adler32(in));
    return out;
}

void put_chunk(Bytes& out, std::string_view type, std::string_view data) {
    put32(out, narrow<uint32_t>(static_cast<int64_t>(data.size())));
    const size_t begin = out.size();
    out += type;
    out += data;
    put32(out, crc32(std::string_view(out).substr(begin)));
}

int paeth(int a, int b, int c) {
    const int p = a + b - c, pa = std::abs(p - a), pb = std::abs(p - b), pc = std::abs(p - c);
    if (pa <= pb && pa <= pc) return a;
    return pb <= pc ? b : c;
}

// The five filters of one row; `up` is the row above or zeros.
Bytes filter_row(const uint8_t* row, const uint8_t* up, int64_t bytes) {
    Bytes best;
    int64_t best_cost = -1;
    Bytes line(static_cast<size_t>(bytes + 1), '\0');
    for (int filter = 0; filter < 5; ++filter) {
        line[0] = static_cast<char>(filter);
        int64_t cost = 0;
        for (int64_t i = 0; i < bytes; ++i) {
            const int a = i >= 3 ? row[i - 3] : 0, b = up[i], c = i >= 3 ? up[i - 3] : 0;
            int guess = 0;
            if (filter == 1) guess = a;
            if (filter == 2) guess = b;
            if (filter == 3) guess = (a + b) / 2;
            if (filter == 4) guess = paeth(a, b, c);
            const auto diff = static_cast<unsigned char>((row[i] - guess) & 0xff);
            line[static_cast<size_t>(i + 1)] = static_cast<char>(diff);
            cost += diff < 128 ? diff : 256 - diff;
        }
        if (best_cost < 0 || cost < best_cost) {
            best_cost = cost;
            best = line;
        }
    }
    return best;
}

}  // namespace

std::string encode_png(const uint8_t* rgb, int64_t H, int64_t W) {
    VT_CHECK(H >= 1 && W >= 1, "picture of {}x{}", H, W);
    Bytes header;
    put32(header, narrow<uint32_t>(W));
    put32(header, narrow<uint32_t>(H));
    header += Bytes("\x08\x02\x00\x00\x00", 5);  // 8 bits, RGB, not interlaced
    Bytes raw;
    const std::vector<uint8_t> zeros(static_cast<size_t>(W * 3), 0);
    for (int64_t y = 0; y < H; ++y) {
        raw += filter_row(rgb + y * W * 3, y > 0 ? rgb + (y - 1) * W * 3 : zeros.data(), W * 3);
    }
    Bytes out("\x89PNG\r\n\x1a\n", 8);
    put_chunk(out, "IHDR", header);
    put_chunk(out, "IDAT", zlib(raw));
    put_chunk(out, "IEND", {});
    return out;
}

void write_png(const fs::path& path, const uint8_t* rgb, int64_t H, int64_t W) {
    write_atomic(path, encode_png(rgb, H, W));
}

}  // namespace vt
