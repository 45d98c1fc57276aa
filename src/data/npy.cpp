// SPDX-License-Identifier: MIT
#include "data/npy.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstring>
#include <sys/stat.h>

#include "core/check.h"
#include "data/shard_read.h"

namespace vt {

namespace {

[[noreturn]] void bad(const std::string& name, const std::string& what, const std::string& hint) {
    raise(Fault::kData, fmt::format("{}: {}", name, what), hint);
}

constexpr const char* kDamaged = "the file is damaged or truncated: copy or save it again";
constexpr int64_t kMaxHeader = int64_t{1} << 20;

uint64_t little(std::string_view bytes, size_t at, size_t n) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; ++i) v |= uint64_t{static_cast<uint8_t>(bytes[at + i])} << (8 * i);
    return v;
}

// The dictionary in the header is a Python literal with three known keys.
class Dict {
  public:
    Dict(std::string_view text, const std::string& name) : text_(text), name_(name) {}

    std::string quoted(std::string_view key) {
        value_of(key);
        const char q = at_ < text_.size() ? text_[at_] : '\0';
        const size_t end = text_.find(q, at_ + 1);
        if ((q != '\'' && q != '"') || end == std::string_view::npos) wrong(key);
        return std::string(text_.substr(at_ + 1, end - at_ - 1));
    }
    bool truth(std::string_view key) {
        value_of(key);
        if (text_.substr(at_).starts_with("True")) return true;
        if (!text_.substr(at_).starts_with("False")) wrong(key);
        return false;
    }
    Shape shape(std::string_view key) {
        value_of(key);
        if (at_ >= text_.size() || text_[at_] != '(') wrong(key);
        const size_t end = text_.find(')', at_);
        if (end == std::string_view::npos) wrong(key);
        Shape out;
        for (size_t i = at_ + 1; i < end;) {
            if (text_[i] == ' ' || text_[i] == ',' || text_[i] == 'L') {
                ++i;
                continue;
            }
            int64_t dim = -1;
            const auto [p, error] = std::from_chars(text_.data() + i, text_.data() + end, dim);
            if (error != std::errc{} || dim < 0 || out.rank == Shape::kMaxRank) wrong(key);
            out.push(dim);
            i = static_cast<size_t>(p - text_.data());
        }
        return out;
    }

  private:
    void value_of(std::string_view key) {
        for (const char q : {'\'', '"'}) {
            const std::string word = q + std::string(key) + q;
            const size_t at = text_.find(word);
            if (at == std::string_view::npos) continue;
            at_ = at + word.size();
            while (at_ < text_.size() && (text_[at_] == ':' || text_[at_] == ' ')) ++at_;
            return;
        }
        wrong(key);
    }
    [[noreturn]] void wrong(std::string_view key) const {
        bad(name_, fmt::format("its npy header has no readable '{}'", key),
            "it must be an array of numbers of at most 6 dims, written by numpy.save");
    }
    std::string_view text_;
    const std::string& name_;
    size_t at_ = 0;
};

StoredType type_of(std::string_view descr, bool two_bytes_are_bf16, const std::string& name) {
    struct Row {
        std::string_view descr;
        StoredType type;
    };
    constexpr std::array<Row, 9> kRows{{{"f8", StoredType::kF64},
                                        {"f4", StoredType::kF32},
                                        {"f2", StoredType::kF16},
                                        {"i8", StoredType::kI64},
                                        {"i4", StoredType::kI32},
                                        {"i2", StoredType::kI16},
                                        {"i1", StoredType::kI8},
                                        {"u1", StoredType::kU8},
                                        {"b1", StoredType::kBool}}};
    const std::string_view kind = descr.empty() ? descr : descr.substr(1);
    for (const Row& r : kRows) {
        if (r.descr == kind) return r.type;
    }
    if (kind == "u2" || kind == "V2") {
        if (two_bytes_are_bf16) return StoredType::kBF16;
        bad(name, fmt::format("its numbers are '{}': two bytes of unknown meaning", descr),
            "if they are bfloat16 say --u2-is-bf16, or save float32 or float16");
    }
    bad(name, fmt::format("its numbers are '{}'", descr),
        "save float64, float32, float16 or integers of 1 to 8 bytes");
}

}  // namespace

NpyHeader parse_npy_header(std::string_view bytes, bool two_bytes_are_bf16,
                           const std::string& name) {
    if (bytes.size() < 10 || !bytes.starts_with("\x93NUMPY")) bad(name, "is no npy file", kDamaged);
    const int version = static_cast<uint8_t>(bytes[6]);
    if (version < 1 || version > 3 || (version > 1 && bytes.size() < 12)) {
        bad(name, fmt::format("has npy version {}", version), "versions 1, 2 and 3 are known");
    }
    const size_t begin = version == 1 ? 10 : 12;
    const auto length = static_cast<int64_t>(little(bytes, 8, version == 1 ? 2 : 4));
    if (length > kMaxHeader || length > static_cast<int64_t>(bytes.size() - begin)) {
        bad(name, fmt::format("its npy header claims {} bytes", length), kDamaged);
    }
    Dict dict(bytes.substr(begin, static_cast<size_t>(length)), name);
    NpyHeader out;
    const std::string descr = dict.quoted("descr");
    out.type = type_of(descr, two_bytes_are_bf16, name);
    out.big_endian = descr[0] == '>' && size_of(out.type) > 1;
    out.shape = dict.shape("shape");
    if (dict.truth("fortran_order") && out.shape.rank > 1) {
        bad(name, "is stored in Fortran order", "save numpy.ascontiguousarray(x)");
    }
    out.data = static_cast<int64_t>(begin) + length;
    out.bytes = size_of(out.type);
    bool fits = true, zero = false;
    for (int i = 0; i < out.shape.rank; ++i) {
        zero |= out.shape[i] == 0;
        fits &= !__builtin_mul_overflow(out.bytes, std::max<int64_t>(out.shape[i], 1), &out.bytes);
    }
    if (!fits) bad(name, "its shape overflows 64 bits", kDamaged);
    if (zero) out.bytes = 0;
    return out;
}

std::vector<ZipMember> parse_zip_tail(std::string_view tail, int64_t file_bytes,
                                      const std::string& name, int64_t* need) {
    *need = 0;
    const auto wrong = [&](const char* what) { bad(name, what, kDamaged); };
    const size_t end = tail.rfind("PK\x05\x06");
    if (end == std::string_view::npos || tail.size() - end < 22) wrong("is no zip file");
    uint64_t entries = little(tail, end + 10, 2), bytes = little(tail, end + 12, 4),
             at = little(tail, end + 16, 4);
    const auto total = static_cast<uint64_t>(file_bytes);
    const uint64_t tail_at = total - tail.size();
    if (entries == 0xffff || bytes == 0xffffffff || at == 0xffffffff) {  // zip64
        if (end < 20 || tail.substr(end - 20, 4) != "PK\x06\x07") wrong("its zip index is broken");
        const uint64_t record = little(tail, end - 20 + 8, 8);
        if (record > total || total - record < 56) wrong("its zip index is broken");
        if (record < tail_at) {
            *need = static_cast<int64_t>(total - record);
            return {};
        }
        const size_t r = record - tail_at;
        if (tail.size() - r < 56 || tail.substr(r, 4) != "PK\x06\x06") {
            wrong("its zip index is broken");
        }
        entries = little(tail, r + 32, 8);
        bytes = little(tail, r + 40, 8);
        at = little(tail, r + 48, 8);
    }
    if (at > total || bytes > total - at || bytes > (uint64_t{1} << 28)) {
        wrong("its zip index is broken");
    }
    if (at < tail_at) {
        *need = static_cast<int64_t>(total - at);
        return {};
    }
    std::string_view list = tail.substr(at - tail_at, bytes);
    std::vector<ZipMember> out;
    for (uint64_t k = 0; k < entries; ++k) {
        if (list.size() < 46 || !list.starts_with("PK\x01\x02")) wrong("its zip index is broken");
        const uint64_t flags = little(list, 8, 2), method = little(list, 10, 2);
        uint64_t stored = little(list, 20, 4), size = little(list, 24, 4);
        const size_t n = little(list, 28, 2), extra = little(list, 30, 2);
        const size_t comment = little(list, 32, 2);
        uint64_t header = little(list, 42, 4);
        if (list.size() < 46 + n + extra + comment) wrong("its zip index is broken");
        ZipMember m{.name = std::string(list.substr(46, n)), .header = 0, .bytes = 0};
        // zip64: the fields that did not fit, in this order
        std::string_view more = list.substr(46 + n, extra);
        while (more.size() >= 4) {
            const size_t id = little(more, 0, 2), len = little(more, 2, 2);
            if (more.size() < 4 + len) break;
            size_t f = 4;
            for (uint64_t* field : {&size, &stored, &header}) {
                if (id == 1 && *field == 0xffffffff && f + 8 <= 4 + len) {
                    *field = little(more, f, 8);
                    f += 8;
                }
            }
            more.remove_prefix(4 + len);
        }
        if (method != 0 || (flags & 1U) != 0) {
            bad(name, fmt::format("member {} is compressed", m.name),
                "save it with numpy.savez instead of numpy.savez_compressed");
        }
        if (stored != size || header > total || size > total) wrong("its zip index is broken");
        m.header = static_cast<int64_t>(header);
        m.bytes = static_cast<int64_t>(size);
        out.push_back(std::move(m));
        list.remove_prefix(46 + n + extra + comment);
    }
    return out;
}

// --- files --------------------------------------------------------------------------------------

bool ArrayFile::is_one(const fs::path& path) {
    const std::string end = path.extension().string();
    return end == ".safetensors" || end == ".npy" || end == ".npz";
}

ArrayFile::ArrayFile(fs::path path, bool two_bytes_are_bf16) : path_(std::move(path)) {
    if (!is_one(path_)) {
        raise(Fault::kUser,
              fmt::format("{}: must end in .safetensors, .npy or .npz", path_.string()),
              "scripts/pack_hdf5.py reads .pt, .parquet and .tar; `vtrain data repack` reads HDF5");
    }
    if (path_.extension() == ".safetensors") {
        const SafetensorsReader file(path_);
        metadata_ = file.metadata();
        for (const StoredTensor& t : file.tensors()) {
            arrays_.push_back({.name = t.name,
                               .type = t.type,
                               .big_endian = false,
                               .shape = t.shape,
                               .offset = t.offset,
                               .bytes = t.bytes});
        }
        fd_ = open_read(path_);
        return;
    }
    fd_ = open_read(path_);
    struct stat st {};
    if (::fstat(fd_.get(), &st) != 0) raise_errno("stat", path_);
    if (!S_ISREG(st.st_mode)) bad(path_.string(), "is not a regular file", "");
    const auto size = static_cast<int64_t>(st.st_size);
    if (path_.extension() == ".npz") {
        open_npz(size, two_bytes_are_bf16);
        return;
    }
    const NpyHeader h = npy_at(0, size, two_bytes_are_bf16, path_.string());
    arrays_.push_back({.name = "",
                       .type = h.type,
                       .big_endian = h.big_endian,
                       .shape = h.shape,
                       .offset = h.data,
                       .bytes = h.bytes});
}

NpyHeader ArrayFile::npy_at(int64_t offset, int64_t end, bool two_bytes_are_bf16,
                            const std::string& name) const {
    std::string head(static_cast<size_t>(std::min<int64_t>(end - offset, 4096)), '\0');
    pread_all(fd_, head.data(), narrow<int64_t>(head.size()), offset, path_);
    const NpyHeader h = parse_npy_header(head, two_bytes_are_bf16, name);
    if (h.bytes > end - offset - h.data) {
        bad(name,
            fmt::format("has {} bytes of numbers, its shape asks for {}", end - offset - h.data,
                        h.bytes),
            kDamaged);
    }
    return h;
}

void ArrayFile::open_npz(int64_t size, bool two_bytes_are_bf16) {
    const std::string name = path_.string();
    std::vector<ZipMember> members;
    for (int64_t want = std::min<int64_t>(size, 65557 + 20); want > 0;) {
        std::string tail(static_cast<size_t>(want), '\0');
        pread_all(fd_, tail.data(), want, size - want, path_);
        int64_t need = 0;
        members = parse_zip_tail(tail, size, name, &need);
        if (need > (int64_t{1} << 28)) bad(name, "its zip index is too long", kDamaged);
        want = need > want ? need : 0;
    }
    if (size == 0) bad(name, "is empty", kDamaged);
    for (const ZipMember& m : members) {
        std::array<char, 30> local{};
        if (m.header > size - 30) bad(name, "its zip index is broken", kDamaged);
        pread_all(fd_, local.data(), 30, m.header, path_);
        const std::string_view l(local.data(), local.size());
        if (!l.starts_with("PK\x03\x04")) bad(name, "its zip index is broken", kDamaged);
        const int64_t begin = m.header + 30 + static_cast<int64_t>(little(l, 26, 2)) +
                              static_cast<int64_t>(little(l, 28, 2));
        if (begin > size || m.bytes > size - begin) {
            bad(name, fmt::format("member {} ends past the file", m.name), kDamaged);
        }
        std::string inside = m.name;
        if (inside.ends_with(".npy")) inside.resize(inside.size() - 4);
        const NpyHeader h = npy_at(begin, begin + m.bytes, two_bytes_are_bf16,
                                   fmt::format("{}, member {}", name, m.name));
        arrays_.push_back({.name = std::move(inside),
                           .type = h.type,
                           .big_endian = h.big_endian,
                           .shape = h.shape,
                           .offset = begin + h.data,
                           .bytes = h.bytes});
    }
}

namespace {

template <typename From, typename To>
void convert(const char* from, int64_t n, To* to) {
    for (int64_t i = 0; i < n; ++i) {
        From v;
        std::memcpy(&v, from + i * static_cast<int64_t>(sizeof v), sizeof v);
        to[i] = static_cast<To>(v);
    }
}

void turn_bytes(char* p, int64_t n, int64_t width) {
    for (int64_t i = 0; i < n; ++i) std::reverse(p + i * width, p + (i + 1) * width);
}

// False for floating formats.
template <typename To>
bool convert_integers(StoredType type, const char* from, int64_t n, To* to) {
    switch (type) {
        case StoredType::kI64:
            convert<int64_t>(from, n, to);
            return true;
        case StoredType::kI32:
            convert<int32_t>(from, n, to);
            return true;
        case StoredType::kI16:
            convert<int16_t>(from, n, to);
            return true;
        case StoredType::kI8:
            convert<int8_t>(from, n, to);
            return true;
        case StoredType::kU8:
        case StoredType::kBool:
            convert<uint8_t>(from, n, to);
            return true;
        default:
            return false;
    }
}

Stored floating(StoredType type) {
    switch (type) {
        case StoredType::kF64:
            return Stored::kF64;
        case StoredType::kF16:
            return Stored::kF16;
        case StoredType::kBF16:
            return Stored::kBF16;
        default:
            return Stored::kF32;
    }
}

}  // namespace

template <typename T>
void ArrayFile::read_as(const Array& a, int64_t first, int64_t n, T* to) const {
    const int64_t total = a.shape.numel(), width = size_of(a.type);
    VT_CHECK(0 <= first && first <= total && n >= 0 && n <= total - first,
             "elements [{}, +{}) of {} '{}'", first, n, a.shape.str(), a.name);
    constexpr int64_t kPiece = 8192;  // elements
    std::vector<char> piece(static_cast<size_t>(std::min(n, kPiece) * width));
    std::array<float, kPiece> block;  // NOLINT: filled by to_floats
    for (int64_t done = 0; done < n; done += kPiece) {
        const int64_t m = std::min(kPiece, n - done);
        pread_all(fd_, piece.data(), m * width, a.offset + (first + done) * width, path_);
        if (a.big_endian) turn_bytes(piece.data(), m, width);
        if (convert_integers(a.type, piece.data(), m, to + done)) continue;
        to_floats(floating(a.type), piece.data(), m, block.data());
        for (int64_t i = 0; i < m; ++i) {
            const float v = block[static_cast<size_t>(i)];
            if constexpr (std::is_same_v<T, float>) {
                to[done + i] = v;
            } else {
                if (v != std::floor(v) || std::fabs(v) > 0x1p53F) {
                    bad(path_.string(), fmt::format("'{}' holds {}, no whole number", a.name, v),
                        "");
                }
                to[done + i] = static_cast<T>(v);
            }
        }
    }
}

void ArrayFile::read(const Array& a, int64_t first, int64_t n, float* to) const {
    read_as(a, first, n, to);
}
void ArrayFile::read(const Array& a, int64_t first, int64_t n, int64_t* to) const {
    read_as(a, first, n, to);
}

}  // namespace vt
