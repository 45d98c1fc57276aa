// SPDX-License-Identifier: MIT
#include "ckpt/manifest.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "ckpt/foreign.h"
#include "core/hash.h"

namespace vt {

using Json = nlohmann::ordered_json;

namespace {

constexpr std::string_view kHead = R"({"format":"vtrain-checkpoint","version":)";
constexpr std::string_view kHash = R"(,"xxh3":")";
constexpr std::string_view kBody = R"(","manifest":)";
constexpr std::string_view kTail = "}\n";

// Reads fields of one JSON document; every complaint names the file.
class Reader {
  public:
    explicit Reader(const fs::path& path) : path_(path) {}

    [[noreturn]] void bad(const std::string& what) const {
        raise(Fault::kData, fmt::format("{}: {}", path_.string(), what),
              "this checkpoint is damaged; resume from another");
    }
    [[nodiscard]] const Json& field(const Json& j, const char* key) const {
        if (!j.is_object() || !j.contains(key)) bad(fmt::format("field '{}' is missing", key));
        return j[key];
    }
    [[nodiscard]] std::string text(const Json& j, const char* key) const {
        const Json& v = field(j, key);
        if (!v.is_string()) bad(fmt::format("field '{}' is not a string", key));
        return v.get<std::string>();
    }
    [[nodiscard]] int64_t size(const Json& v, const char* key) const {
        if (!v.is_number_unsigned() ||
            v.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
            bad(fmt::format("field '{}' holds something that is not a size", key));
        }
        return v.get<int64_t>();
    }
    [[nodiscard]] int64_t size_at(const Json& j, const char* key) const {
        return size(field(j, key), key);
    }
    [[nodiscard]] const Json& list(const Json& j, const char* key) const {
        const Json& v = field(j, key);
        if (!v.is_array()) bad(fmt::format("field '{}' is not a list", key));
        return v;
    }
    [[nodiscard]] uint64_t hex(const Json& j, const char* key) const {
        const std::string s = text(j, key);
        uint64_t v = 0;
        const auto end = s.data() + s.size();
        const auto got = std::from_chars(s.data(), end, v, 16);
        if (s.size() != 16 || got.ec != std::errc() || got.ptr != end) {
            bad(fmt::format("field '{}' is not 16 hex digits", key));
        }
        return v;
    }
    [[nodiscard]] std::pair<int64_t, int64_t> range(const Json& v, const char* key,
                                                    int64_t limit) const {
        if (!v.is_array() || v.size() != 2) bad(fmt::format("field '{}' is not a pair", key));
        const std::pair<int64_t, int64_t> r{size(v[0], key), size(v[1], key)};
        if (r.first > r.second || r.second > limit) {
            bad(fmt::format("field '{}': [{},{}) is not inside {}", key, r.first, r.second, limit));
        }
        return r;
    }

  private:
    const fs::path& path_;
};

Shape read_shape(const Reader& r, const Json& j) {
    const Json& dims = r.list(j, "shape");
    if (dims.size() > Shape::kMaxRank) r.bad(fmt::format("a shape has {} dims", dims.size()));
    Shape shape;
    int64_t product = 8;  // bytes of the widest element: offsets must not overflow either
    for (const Json& d : dims) {
        const int64_t dim = r.size(d, "shape");
        if (__builtin_mul_overflow(product, std::max<int64_t>(dim, 1), &product)) {
            r.bad("a shape overflows 64 bits");
        }
        shape.push(dim);
    }
    return shape;
}

Extent read_extent(const Reader& r, const Json& j, const Shape& shape) {
    Extent e;
    const Json& rect = r.list(j, "rect");
    if (rect.size() != static_cast<size_t>(shape.rank)) r.bad("a rect lacks dims of its shape");
    for (int d = 0; d < shape.rank; ++d) {
        e.rect.push_back(r.range(rect[static_cast<size_t>(d)], "rect", shape[d]));
    }
    std::tie(e.flat_begin, e.flat_end) = r.range(r.field(j, "flat"), "flat", numel(e.rect));
    e.file = r.size_at(j, "file");
    e.offset = r.size_at(j, "offset");
    e.xxh3 = r.hex(j, "xxh3");
    return e;
}

ManifestTensor read_tensor(const Reader& r, const Json& j) {
    ManifestTensor t;
    t.shape = read_shape(r, j);
    const std::string name = r.text(j, "dtype");
    const auto dtype = dtype_named(name);
    if (!dtype) r.bad(fmt::format("dtype '{}' is not known", name));
    t.dtype = *dtype;
    for (const Json& e : r.list(j, "extents")) t.extents.push_back(read_extent(r, e, t.shape));
    return t;
}

Manifest read_body(const Reader& r, const Json& body) {
    Manifest m;
    m.info.step = r.size_at(body, "step");
    m.info.cursor = r.hex(body, "cursor");
    m.info.run_id = r.text(body, "run_id");
    m.info.config = r.text(body, "config");
    m.info.facts_json = r.text(body, "facts");
    m.info.data_fingerprint = r.hex(body, "data_fingerprint");
    m.info.mesh = r.text(body, "mesh");
    m.info.build = r.text(body, "build");
    m.info.instruction_path = r.text(body, "instruction_path");
    const Json& extra = r.field(body, "extra");
    if (!extra.is_object()) r.bad("field 'extra' is not an object");
    for (const auto& [key, value] : extra.items()) {
        m.info.extra[key] = r.text(extra, key.c_str());
    }
    for (const Json& f : r.list(body, "files")) {
        ManifestFile file{r.text(f, "name"), r.size_at(f, "bytes"), r.size_at(f, "header_bytes"),
                          r.hex(f, "header_xxh3")};
        if (file.name.empty() || file.name[0] == '.' || file.name.find('/') != std::string::npos) {
            r.bad(fmt::format("'{}' is not the name of a file beside the manifest", file.name));
        }
        m.files.push_back(std::move(file));
    }
    const Json& tensors = r.field(body, "tensors");
    if (!tensors.is_object()) r.bad("field 'tensors' is not an object");
    for (const auto& [name, value] : tensors.items()) {
        ManifestTensor t = read_tensor(r, value);
        for (const Extent& e : t.extents) {
            if (e.file >= narrow<int64_t>(m.files.size())) {
                r.bad(
                    fmt::format("tensor '{}' lies in file {} of {}", name, e.file, m.files.size()));
            }
        }
        m.tensors[name] = std::move(t);
    }
    return m;
}

Json to_json(const ManifestTensor& t) {
    Json j;
    j["shape"] = Json::array();
    for (int d = 0; d < t.shape.rank; ++d) j["shape"].push_back(t.shape[d]);
    j["dtype"] = name_of(t.dtype);
    j["extents"] = Json::array();
    for (const Extent& e : t.extents) {
        Json x;
        x["rect"] = Json::array();
        for (const auto& [begin, end] : e.rect) x["rect"].push_back({begin, end});
        x["flat"] = {e.flat_begin, e.flat_end};
        x["file"] = e.file;
        x["offset"] = e.offset;
        x["xxh3"] = hex64(e.xxh3);
        j["extents"].push_back(std::move(x));
    }
    return j;
}

bool overlap(const Rect& a, const Rect& b) {
    for (size_t d = 0; d < a.size(); ++d) {
        if (a[d].second <= b[d].first || b[d].second <= a[d].first) return false;
    }
    return true;
}

}  // namespace

int64_t numel(const Rect& rect) {
    int64_t n = 1;
    for (const auto& [begin, end] : rect) n *= end - begin;
    return n;
}

std::string encode(const Manifest& m) {
    Json body;
    body["step"] = m.info.step;
    body["cursor"] = hex64(m.info.cursor);
    body["run_id"] = m.info.run_id;
    body["config"] = m.info.config;
    body["facts"] = m.info.facts_json;
    body["data_fingerprint"] = hex64(m.info.data_fingerprint);
    body["mesh"] = m.info.mesh;
    body["build"] = m.info.build;
    body["instruction_path"] = m.info.instruction_path;
    body["extra"] = Json::object();
    for (const auto& [key, value] : m.info.extra) body["extra"][key] = value;
    body["files"] = Json::array();
    for (const ManifestFile& f : m.files) {
        Json j;
        j["name"] = f.name;
        j["bytes"] = f.bytes;
        j["header_bytes"] = f.header_bytes;
        j["header_xxh3"] = hex64(f.header_xxh3);
        body["files"].push_back(std::move(j));
    }
    body["tensors"] = Json::object();
    for (const auto& [name, t] : m.tensors) body["tensors"][name] = to_json(t);
    // A config or path that is not UTF-8 must not lose the checkpoint: its bad bytes are replaced.
    const std::string text = body.dump(-1, ' ', false, Json::error_handler_t::replace);
    return fmt::format("{}{}{}{}{}{}{}", kHead, kManifestVersion, kHash, hex64(xxh3(text)), kBody,
                       text, kTail);
}

Manifest decode(const std::string& text, const fs::path& path) {
    const Reader r(path);
    std::string_view rest = text;
    const auto skip = [&](std::string_view part) {
        if (rest.substr(0, part.size()) != part) r.bad("not a checkpoint manifest, or damaged");
        rest.remove_prefix(part.size());
    };
    skip(kHead);
    int64_t version = 0;
    const auto got = std::from_chars(rest.data(), rest.data() + rest.size(), version);
    if (got.ec != std::errc()) r.bad("not a checkpoint manifest, or damaged");
    if (version != kManifestVersion) {
        raise(Fault::kData,
              fmt::format("{}: checkpoint format version {}, this build reads version {}",
                          path.string(), version, kManifestVersion),
              version > kManifestVersion ? "a newer vtrain wrote it: use that one"
                                         : "an older vtrain wrote it: use that one");
    }
    rest.remove_prefix(static_cast<size_t>(got.ptr - rest.data()));
    skip(kHash);
    const std::string want(rest.substr(0, 16));
    rest.remove_prefix(want.size());
    skip(kBody);
    if (rest.size() < kTail.size() || rest.substr(rest.size() - kTail.size()) != kTail) {
        r.bad("the manifest is cut short");
    }
    rest.remove_suffix(kTail.size());
    const std::string have = hex64(xxh3(rest));
    if (have != want) {
        r.bad(fmt::format("the manifest's checksum is {}, its bytes give {}", want, have));
    }
    try {
        const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
            if (depth > 8) r.bad("the manifest is nested too deeply");
            return true;
        };
        return read_body(r, Json::parse(rest, shallow));
    } catch (const Json::exception& e) {
        r.bad(fmt::format("the manifest is not JSON ({})", e.what()));
    }
}

static void check_tensor(const std::string& name, const ManifestTensor& t, Fault fault,
                         const std::string& where) {
    const auto fail = [&](const std::string& what) {
        raise(fault, fmt::format("{}: tensor '{}' {}: {}", where, name, t.shape.str(), what));
    };
    std::map<Rect, std::vector<std::pair<int64_t, int64_t>>> by_rect;
    for (const Extent& e : t.extents) {
        if (e.numel() > 0) by_rect[e.rect].emplace_back(e.flat_begin, e.flat_end);
    }
    int64_t total = 0;
    for (auto it = by_rect.begin(); it != by_rect.end(); ++it) {
        for (auto other = std::next(it); other != by_rect.end(); ++other) {
            if (overlap(it->first, other->first)) fail("two parts overlap");
        }
        auto& flats = it->second;
        std::sort(flats.begin(), flats.end());
        int64_t next = 0;
        for (const auto& [begin, end] : flats) {
            if (begin != next) {
                fail(fmt::format("element {} of a part is {}", std::min(begin, next),
                                 begin < next ? "there twice" : "missing"));
            }
            next = end;
        }
        if (next != numel(it->first)) fail(fmt::format("element {} of a part is missing", next));
        total += next;
    }
    if (total != t.shape.numel()) {
        fail(fmt::format("{} elements of {} are there", total, t.shape.numel()));
    }
}

void check_complete(const Manifest& m, Fault fault, const std::string& where) {
    std::vector<std::vector<std::pair<int64_t, int64_t>>> spans(m.files.size());  // offset, bytes
    for (const auto& [name, t] : m.tensors) {
        check_tensor(name, t, fault, where);
        for (const Extent& e : t.extents) {
            spans[static_cast<size_t>(e.file)].emplace_back(e.offset, e.numel() * size_of(t.dtype));
        }
    }
    std::set<std::string> names;
    for (size_t i = 0; i < m.files.size(); ++i) {
        const ManifestFile& f = m.files[i];
        if (!names.insert(f.name).second) {
            raise(fault, fmt::format("{}: file {} is listed twice", where, f.name));
        }
        std::sort(spans[i].begin(), spans[i].end());
        int64_t next = f.header_bytes;
        for (const auto& [offset, bytes] : spans[i]) {
            if (offset != next || bytes > f.bytes - offset) {
                raise(fault, fmt::format("{}: file {} has an extent at byte {}, expected at {}",
                                         where, f.name, offset, next));
            }
            next += bytes;
        }
        if (next != f.bytes) {
            raise(fault, fmt::format("{}: file {} has {} bytes, its extents end at {}", where,
                                     f.name, f.bytes, next));
        }
    }
}

void merge(Manifest& into, const Manifest& part) {
    const auto shift = narrow<int64_t>(into.files.size());
    into.files.insert(into.files.end(), part.files.begin(), part.files.end());
    for (const auto& [name, t] : part.tensors) {
        const auto [it, fresh] = into.tensors.try_emplace(name);
        ManifestTensor& mine = it->second;
        if (fresh) {
            mine.shape = t.shape;
            mine.dtype = t.dtype;
        }
        VT_CHECK(mine.shape == t.shape && mine.dtype == t.dtype,
                 "ranks disagree on '{}': {} {} and {} {}", name, name_of(mine.dtype),
                 mine.shape.str(), name_of(t.dtype), t.shape.str());
        for (Extent e : t.extents) {
            e.file += shift;
            mine.extents.push_back(std::move(e));
        }
    }
}

Manifest read_manifest(const fs::path& dir) {
    std::error_code error;
    if (!fs::is_directory(dir, error)) {
        const std::optional<ForeignKind> kind = foreign_kind(dir);
        raise(Fault::kUser,
              fmt::format("{} is {}not a checkpoint directory", dir.string(),
                          kind ? kind->what + ", " : std::string()),
              kind ? kind->hint : std::string());
    }
    const fs::path path = dir / kManifestName;
    if (!fs::is_regular_file(path, error)) {
        if (const std::optional<ForeignKind> kind = foreign_kind(dir)) {
            raise(Fault::kData,
                  fmt::format("{} has no {}: it is {}", dir.string(), kManifestName, kind->what),
                  kind->hint);
        }
        raise(Fault::kData, fmt::format("{} has no {}", dir.string(), kManifestName),
              "not a checkpoint, or one that was not finished");
    }
    Manifest m = decode(read_file(path), path);
    check_complete(m, Fault::kData, path.string());
    for (const ManifestFile& f : m.files) {
        const fs::path file = dir / f.name;
        const auto bytes = fs::file_size(file, error);
        if (error) {
            raise(Fault::kData, fmt::format("{}: {}", file.string(), error.message()),
                  "the manifest names this file; resume from another checkpoint");
        }
        if (bytes != static_cast<uintmax_t>(f.bytes)) {
            raise(
                Fault::kData,
                fmt::format("{} has {} bytes, the manifest says {}", file.string(), bytes, f.bytes),
                "this checkpoint is damaged; resume from another");
        }
    }
    return m;
}

}  // namespace vt
