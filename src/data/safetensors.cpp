// SPDX-License-Identifier: MIT
#include "data/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <sys/stat.h>
#include <type_traits>
#include <unistd.h>

namespace vt {

using Json = nlohmann::json;

namespace {

struct TypeRow {
    StoredType type;
    const char* name;
    int64_t size;
};
constexpr TypeRow kTypes[] = {
    {StoredType::kF64, "F64", 8},   {StoredType::kF32, "F32", 4}, {StoredType::kF16, "F16", 2},
    {StoredType::kBF16, "BF16", 2}, {StoredType::kI64, "I64", 8}, {StoredType::kI32, "I32", 4},
    {StoredType::kU8, "U8", 1},     {StoredType::kI16, "I16", 2}, {StoredType::kI8, "I8", 1},
    {StoredType::kBool, "BOOL", 1},
};

[[noreturn]] void bad(const fs::path& path, const std::string& what) {
    raise(Fault::kData, fmt::format("{}: not a valid safetensors file: {}", path.string(), what),
          "copy or export the file again");
}
[[noreturn]] void bad(const fs::path& path, const std::string& tensor, const std::string& what) {
    bad(path, fmt::format("tensor '{}': {}", tensor, what));
}

// A non-negative JSON integer that fits int64.
bool get_size(const Json& j, int64_t& out) {
    if (!j.is_number_unsigned()) return false;
    const auto u = j.get<uint64_t>();
    if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    out = static_cast<int64_t>(u);
    return true;
}

// One header entry; offsets are still relative to the end of the header.
StoredTensor parse_entry(const fs::path& path, const std::string& name, const Json& j) {
    if (!j.is_object() || j.size() != 3 || !j.contains("dtype") || !j.contains("shape") ||
        !j.contains("data_offsets")) {
        bad(path, name, "needs exactly dtype, shape and data_offsets");
    }
    StoredTensor t;
    t.name = name;
    const Json& type = j["dtype"];
    if (!type.is_string()) bad(path, name, "dtype is not a string");
    const TypeRow* row = std::find_if(std::begin(kTypes), std::end(kTypes), [&](const TypeRow& r) {
        return type.get_ref<const std::string&>() == r.name;
    });
    if (row == std::end(kTypes)) {
        bad(path, name,
            fmt::format("dtype {} is not one of F64 F32 F16 BF16 I64 I32 I16 I8 U8 BOOL",
                        type.dump()));
    }
    t.type = row->type;
    const Json& shape = j["shape"];
    if (!shape.is_array()) bad(path, name, "shape is not an array");
    if (shape.size() > Shape::kMaxRank) {
        bad(path, name, fmt::format("rank {}, at most {}", shape.size(), Shape::kMaxRank));
    }
    int64_t bytes = row->size;
    for (const Json& d : shape) {
        int64_t dim = 0;
        if (!get_size(d, dim)) bad(path, name, "shape holds something that is not a size");
        if (__builtin_mul_overflow(bytes, dim, &bytes)) bad(path, name, "shape overflows 64 bits");
        t.shape.push(dim);
    }
    // A zero dim hides an overflow of the others from the product above; numel() must not meet it.
    int64_t nonzero = row->size;
    for (int i = 0; i < t.shape.rank; ++i) {
        if (__builtin_mul_overflow(nonzero, std::max<int64_t>(t.shape[i], 1), &nonzero)) {
            bad(path, name, "shape overflows 64 bits");
        }
    }
    const Json& at = j["data_offsets"];
    int64_t end = 0;
    if (!at.is_array() || at.size() != 2 || !get_size(at[0], t.offset) || !get_size(at[1], end)) {
        bad(path, name, "data_offsets is not a pair of sizes");
    }
    if (end < t.offset || end - t.offset != bytes) {
        bad(path, name,
            fmt::format("data_offsets [{},{}) hold {} bytes, {} {} needs {}", t.offset, end,
                        end - t.offset, row->name, t.shape.str(), bytes));
    }
    t.bytes = bytes;
    return t;
}

Json parse_header(const fs::path& path, const std::string& text) {
    if (text.empty() || text[0] != '{') bad(path, "the header does not begin with '{'");
    // Objects: the header, its entries, nothing deeper. A repeated name would silently hide a
    // tensor, so names are collected and compared.
    std::array<std::set<std::string>, 3> seen;
    const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
        if (depth > 3) bad(path, "the header is nested too deeply");
        const auto d = static_cast<size_t>(std::clamp(depth, 0, 2));
        if (event == Json::parse_event_t::object_start) seen.at(std::min<size_t>(d + 1, 2)).clear();
        if (event == Json::parse_event_t::key &&
            !seen.at(d).insert(value.get_ref<const std::string&>()).second) {
            bad(path, fmt::format("name {} appears twice in the header", value.dump()));
        }
        return true;
    };
    try {
        Json header = Json::parse(text, watch);
        if (!header.is_object()) bad(path, "the header is not a JSON object");
        return header;
    } catch (const Json::exception& e) {
        bad(path, fmt::format("the header is not JSON ({})", e.what()));
    }
}

// IEEE half to float, exact.
float half_to_float(uint16_t h) {
    const uint32_t sign = (h & 0x8000U) << 16;
    const uint32_t exponent = (h >> 10) & 0x1fU;
    const uint32_t fraction = h & 0x3ffU;
    if (exponent == 0) {  // zero or subnormal: fraction * 2^-24
        const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
        return sign != 0 ? -magnitude : magnitude;
    }
    const uint32_t e = exponent == 31 ? 255U : exponent + 112U;
    return std::bit_cast<float>(sign | (e << 23) | (fraction << 13));
}

struct Half {
    uint16_t bits;
};

template <typename From, typename To>
To convert(From x) {
    if constexpr (std::is_same_v<From, To>) {
        return x;
    } else if constexpr (std::is_same_v<From, Half>) {
        return convert<float, To>(half_to_float(x.bits));
    } else if constexpr (std::is_same_v<From, bf16>) {
        return convert<float, To>(to_float(x));
    } else if constexpr (std::is_same_v<To, bf16> && std::is_same_v<From, double>) {
        // Rounding double -> float to odd first makes the second rounding the only one.
        auto f = static_cast<float>(x);
        if (std::isfinite(f) && static_cast<double>(f) != x) {
            auto u = std::bit_cast<uint32_t>(f);
            if (std::abs(static_cast<double>(f)) > std::abs(x)) u -= 1;  // now truncated
            f = std::bit_cast<float>(u | 1U);
        }
        return to_bf16(f);
    } else if constexpr (std::is_same_v<To, bf16>) {
        return to_bf16(x);
    } else {
        return static_cast<To>(x);
    }
}

template <typename From, typename To>
void convert_piece(const char* in, char* out, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        From x;
        std::memcpy(&x, in + i * static_cast<int64_t>(sizeof(From)), sizeof x);
        const To y = convert<From, To>(x);
        std::memcpy(out + i * static_cast<int64_t>(sizeof(To)), &y, sizeof y);
    }
}

using Convert = void (*)(const char*, char*, int64_t);

template <typename From>
Convert converter_from(DType to) {
    switch (to) {
        case DType::kF64:
            return convert_piece<From, double>;
        case DType::kF32:
            return convert_piece<From, float>;
        case DType::kBF16:
            return convert_piece<From, bf16>;
        default:
            return nullptr;
    }
}

Convert converter(StoredType from, DType to) {
    switch (from) {
        case StoredType::kF64:
            return converter_from<double>(to);
        case StoredType::kF32:
            return converter_from<float>(to);
        case StoredType::kF16:
            return converter_from<Half>(to);
        case StoredType::kBF16:
            return converter_from<bf16>(to);
        default:
            return nullptr;
    }
}

}  // namespace

const char* name_of(StoredType t) {
    return kTypes[static_cast<size_t>(t)].name;
}
int64_t size_of(StoredType t) {
    return kTypes[static_cast<size_t>(t)].size;
}
StoredType stored(DType dtype) {
    switch (dtype) {
        case DType::kF64:
            return StoredType::kF64;
        case DType::kF32:
            return StoredType::kF32;
        case DType::kBF16:
            return StoredType::kBF16;
        case DType::kI64:
            return StoredType::kI64;
        case DType::kI32:
            return StoredType::kI32;
        case DType::kU8:
            return StoredType::kU8;
    }
    raise(Fault::kBug, "unknown dtype");
}

// --- reader -----------------------------------------------------------------------------------

SafetensorsHeader parse_safetensors_header(const std::string& json, int64_t file_bytes,
                                           const fs::path& name) {
    const int64_t header_end = 8 + narrow<int64_t>(json.size());
    if (header_end > file_bytes) bad(name, "the header is longer than the file");
    SafetensorsHeader out;
    const Json header = parse_header(name, json);
    for (const auto& [key, value] : header.items()) {
        if (key != "__metadata__") {
            out.tensors.push_back(parse_entry(name, key, value));
            continue;
        }
        if (!value.is_object()) bad(name, "__metadata__ is not an object");
        for (const auto& [k, v] : value.items()) {
            if (!v.is_string()) bad(name, fmt::format("__metadata__ '{}' is not a string", k));
            out.metadata[k] = v.get<std::string>();
        }
    }
    std::sort(out.tensors.begin(), out.tensors.end(),
              [](const StoredTensor& a, const StoredTensor& b) {
                  return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
              });
    const int64_t payload = file_bytes - header_end;
    int64_t next = 0;
    for (StoredTensor& t : out.tensors) {
        if (t.offset != next) {
            bad(name, t.name,
                fmt::format("begins at byte {} of the payload, the one before ends at {}", t.offset,
                            next));
        }
        if (t.bytes > payload - next) {
            bad(name, t.name,
                fmt::format("ends at byte {} of a payload of {}", t.offset + t.bytes, payload));
        }
        next += t.bytes;
        t.offset += header_end;
    }
    if (next != payload) bad(name, fmt::format("{} bytes behind the last tensor", payload - next));
    return out;
}

SafetensorsReader::SafetensorsReader(fs::path path)
    : path_(std::move(path)), fd_(open_read(path_)) {
    struct stat st {};
    if (::fstat(fd_.get(), &st) != 0) raise_errno("stat", path_);
    if (!S_ISREG(st.st_mode)) bad(path_, "not a regular file");
    const auto size = static_cast<int64_t>(st.st_size);
    if (size < 8) bad(path_, fmt::format("{} bytes, the header size alone takes 8", size));
    std::array<unsigned char, 8> raw{};
    pread_all(fd_, raw.data(), 8, 0, path_);
    uint64_t n = 0;
    for (size_t i = 0; i < 8; ++i) n |= static_cast<uint64_t>(raw.at(i)) << (8 * i);
    if (n < 2 || n > static_cast<uint64_t>(kMaxHeader) || n > static_cast<uint64_t>(size - 8)) {
        bad(path_,
            fmt::format("header of {} bytes in a file of {} (limit {})", n, size, kMaxHeader));
    }
    std::string text(static_cast<size_t>(n), '\0');
    pread_all(fd_, text.data(), static_cast<int64_t>(n), 8, path_);
    header_ = parse_safetensors_header(text, size, path_);
    for (size_t i = 0; i < header_.tensors.size(); ++i) index_[header_.tensors[i].name] = i;
}

const StoredTensor* SafetensorsReader::find(const std::string& name) const {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &header_.tensors[it->second];
}

const StoredTensor& SafetensorsReader::at(const std::string& name) const {
    const StoredTensor* t = find(name);
    if (t == nullptr) {
        raise(Fault::kData, fmt::format("{} has no tensor '{}'", path_.string(), name));
    }
    return *t;
}

void SafetensorsReader::read(const StoredTensor& t, int64_t first, Tensor out) const {
    const int64_t n = out.numel();
    const int64_t total = t.shape.numel();
    VT_CHECK(0 <= first && first <= total && n <= total - first, "elements [{}, +{}) of {} '{}'",
             first, n, t.shape.str(), t.name);
    const int64_t from_size = size_of(t.type);
    if (stored(out.dtype) == t.type) {
        pread_all(fd_, out.data, n * from_size, t.offset + first * from_size, path_);
        return;
    }
    const Convert fn = converter(t.type, out.dtype);
    if (fn == nullptr) {
        raise(Fault::kData,
              fmt::format("{}: tensor '{}' is {}, cannot be read as {}", path_.string(), t.name,
                          name_of(t.type), name_of(out.dtype)));
    }
    constexpr int64_t kPiece = int64_t{1} << 20;  // elements
    std::vector<char> buffer(static_cast<size_t>(std::min(n, kPiece) * from_size));
    char* to = static_cast<char*>(out.data);
    for (int64_t done = 0; done < n; done += kPiece) {
        const int64_t m = std::min(kPiece, n - done);
        pread_all(fd_, buffer.data(), m * from_size, t.offset + (first + done) * from_size, path_);
        fn(buffer.data(), to + done * size_of(out.dtype), m);
    }
}

void SafetensorsReader::read(const StoredTensor& t, Tensor out) const {
    VT_CHECK(out.numel() == t.shape.numel(), "'{}' {} read into {}", t.name, t.shape.str(),
             out.shape.str());
    read(t, 0, out);
}

// --- writer -----------------------------------------------------------------------------------

SafetensorsWriter::SafetensorsWriter(fs::path path, const std::vector<TensorSpec>& specs,
                                     const std::map<std::string, std::string>& metadata)
    : path_(std::move(path)) {
    std::vector<size_t> order(specs.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return size_of(specs[a].dtype) > size_of(specs[b].dtype);
    });
    auto header = nlohmann::ordered_json::object();
    if (!metadata.empty()) header["__metadata__"] = metadata;
    slots_.resize(specs.size());
    int64_t next = 0;
    std::set<std::string> names;
    for (const size_t i : order) {
        const TensorSpec& s = specs[i];
        VT_CHECK(s.name != "__metadata__" && names.insert(s.name).second, "tensor name '{}' taken",
                 s.name);
        const int64_t end = next + s.shape.numel() * size_of(s.dtype);
        std::vector<int64_t> dims;
        for (int d = 0; d < s.shape.rank; ++d) dims.push_back(s.shape[d]);
        auto& entry = header[s.name];
        entry["dtype"] = name_of(stored(s.dtype));
        entry["shape"] = dims;
        entry["data_offsets"] = {next, end};
        slots_[i] = {s.name, s.dtype, next, next, end};
        next = end;
    }
    std::string text = header.dump();
    text.resize(narrow<size_t>(round_up(narrow<int64_t>(text.size()), 8)), ' ');
    VT_CHECK(narrow<int64_t>(text.size()) <= SafetensorsReader::kMaxHeader, "header of {} bytes",
             text.size());
    for (size_t i = 0; i < 8; ++i) {
        header_ += static_cast<char>((static_cast<uint64_t>(text.size()) >> (8 * i)) & 0xffU);
    }
    header_ += text;
    for (Slot& s : slots_) {
        s.begin += header_bytes();
        s.next += header_bytes();
        s.end += header_bytes();
    }
    file_bytes_ = header_bytes() + next;
    fd_ = create_write(path_);
    try {
        reserve_space(fd_, file_bytes_, path_);
        pwrite_all(fd_, header_.data(), header_bytes(), 0, path_);
    } catch (...) {
        ::unlink(path_.c_str());
        throw;
    }
}

SafetensorsWriter::~SafetensorsWriter() {
    if (!closed_) ::unlink(path_.c_str());
}

void SafetensorsWriter::write(size_t i, CTensor part) {
    Slot& s = slots_.at(i);
    VT_CHECK(part.dtype == s.dtype && part.bytes() <= s.end - s.next,
             "'{}': {} bytes of {} where {} bytes of {} are left", s.name, part.bytes(),
             name_of(part.dtype), s.end - s.next, name_of(s.dtype));
    pwrite_all(fd_, part.data, part.bytes(), s.next, path_);
    // The disk begins at once, beside what is written next, rather than at close(). Only a hint:
    // what goes wrong with these bytes is reported by fsync.
    (void)::sync_file_range(fd_.get(), s.next, part.bytes(), SYNC_FILE_RANGE_WRITE);
    s.next += part.bytes();
}

void SafetensorsWriter::close() {
    for (const Slot& s : slots_) {
        VT_CHECK(s.next == s.end, "'{}' lacks {} bytes", s.name, s.end - s.next);
    }
    fsync_file(fd_, path_);
    fd_.close(path_);
    closed_ = true;
}

void write_safetensors(const fs::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata) {
    std::vector<TensorSpec> specs;
    specs.reserve(tensors.size());
    for (const NamedTensor& t : tensors) {
        specs.push_back({t.name, t.tensor.dtype, t.tensor.shape});
    }
    SafetensorsWriter writer(path, specs, metadata);
    for (size_t i = 0; i < tensors.size(); ++i) writer.write(i, tensors[i].tensor);
    writer.close();
}

}  // namespace vt
