// SPDX-License-Identifier: MIT
// The HDF5 library, for describing a shard of unknown origin (in the index child only) and for
// laying out a new one.
// Floor 3.
#include "data/h5.h"

#include <algorithm>
#include <bit>
#include <mutex>
#include <utility>

#include "core/check.h"
#include "data/h5_lib.h"
#include "data/shard_read.h"

namespace vt {

using namespace h5;  // NOLINT: this file is its body

static_assert(std::endian::native == std::endian::little, "shards are little-endian");

namespace {

// --- describing ---------------------------------------------------------------------------------

constexpr int64_t kMaxEmpty = 1 << 26;  // elements of empty_text

// A data set whose bytes lie in one run inside this very file.
struct Table {
    H id, type;
    std::vector<int64_t> dims;
    ByteRange extent;
    [[nodiscard]] int64_t elements() const {
        int64_t n = 1;
        for (const int64_t d : dims) {
            if (__builtin_mul_overflow(n, d, &n)) bad("a data set's size overflows");
        }
        return n;
    }
};

Table open_table(hid_t file, const std::string& name, size_t rank) {
    H id = open_set(file, name);
    H type(H5Dget_type(id.get()), H5Tclose);
    const H plist(H5Dget_create_plist(id.get()), H5Pclose);
    const H space(H5Dget_space(id.get()), H5Sclose);
    if (!type.ok() || !plist.ok() || !space.ok()) {
        bad(fmt::format("data set {}: {}", name, library_reason()));
    }
    if (H5Pget_layout(plist.get()) != H5D_CONTIGUOUS || H5Pget_nfilters(plist.get()) != 0) {
        const bool compact = H5Pget_layout(plist.get()) == H5D_COMPACT;
        const bool filtered = H5Pget_nfilters(plist.get()) != 0;
        bad(fmt::format("data set {} is {}; only contiguous unfiltered data is read", name,
                        compact    ? "compact"
                        : filtered ? "chunked and compressed"
                                   : "chunked"),
            kRepack);
    }
    if (H5Sget_simple_extent_ndims(space.get()) != static_cast<int>(rank)) {
        bad(fmt::format("data set {} does not have {} dims", name, rank));
    }
    std::array<hsize_t, 8> dims{};
    H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
    Table t{.id = std::move(id), .type = std::move(type), .dims = {}, .extent = {}};
    for (size_t i = 0; i < rank; ++i) {
        if (dims.at(i) > (hsize_t{1} << 62)) bad(fmt::format("data set {} is too large", name));
        t.dims.push_back(static_cast<int64_t>(dims.at(i)));
    }
    int64_t bytes = 0;
    if (__builtin_mul_overflow(t.elements(), static_cast<int64_t>(H5Tget_size(t.type.get())),
                               &bytes)) {
        bad(fmt::format("data set {} is too large", name));
    }
    t.extent.bytes = bytes;
    if (bytes > 0) {
        const haddr_t at = H5Dget_offset(t.id.get());
        if (at == HADDR_UNDEF || at > (haddr_t{1} << 62)) {
            bad(fmt::format("data set {} was never written", name), "encode the shard again");
        }
        t.extent.offset = static_cast<int64_t>(at);
    }
    return t;
}

Stored stored_type(const Table& t, const std::string& name) {
    const hid_t type = t.type.get();
    if (H5Tequal(type, H5T_IEEE_F32LE) > 0) return Stored::kF32;
    if (H5Tequal(type, H5T_IEEE_F64LE) > 0) return Stored::kF64;
    if (is_half(type)) return Stored::kF16;
    if (H5Tequal(type, H5T_STD_U16LE) > 0 && H5Aexists(t.id.get(), "dtype") > 0 &&
        text_attribute(t.id.get(), "dtype", name.c_str()) == "bf16") {
        return Stored::kBF16;
    }
    bad(fmt::format("data set {} is not little-endian f32, f16, f64, or uint16 with the attribute "
                    "dtype = \"bf16\"",
                    name),
        H5Tget_order(type) == H5T_ORDER_BE
            ? kRepack
            : "cast it before writing; bf16 is written as its uint16 bits with that attribute");
}

void want_type(const Table& t, hid_t type, const std::string& name, const char* spelled) {
    if (H5Tequal(t.type.get(), type) <= 0) {
        bad(fmt::format("data set {} is not {}", name, spelled), kRepack);
    }
}

// Reads a table at its address, as training will: what the library says and what lies there must
// be the same thing.
template <typename T>
std::vector<T> read_table(const Fd& fd, const fs::path& path, const Table& t, int64_t file_size,
                          const std::string& name) {
    if (t.extent.bytes > file_size || t.extent.offset > file_size - t.extent.bytes) {
        bad(fmt::format("data set {} lies past the file's end", name),
            "the file is truncated or damaged: copy or encode it again");
    }
    std::vector<T> out(static_cast<size_t>(t.elements()));
    pread_all(fd, out.data(), t.extent.bytes, t.extent.offset, path);
    return out;
}

// Flat bytes cut by count+1 offsets, as ids and captions are.
void check_cuts(const Fd& fd, const fs::path& path, hid_t file, int64_t size, int64_t count,
                const std::string& offsets_name, const std::string& bytes_name, ByteRange& offsets,
                ByteRange& bytes) {
    const Table cuts = open_table(file, offsets_name, 1);
    const Table flat = open_table(file, bytes_name, 1);
    want_type(cuts, H5T_STD_I64LE, offsets_name, "int64");
    want_type(flat, H5T_STD_U8LE, bytes_name, "uint8");
    if (cuts.dims[0] != count + 1) {
        bad(fmt::format("{} has {} entries for {} samples; one more than samples is right",
                        offsets_name, cuts.dims[0], count));
    }
    const auto at = read_table<int64_t>(fd, path, cuts, size, offsets_name);
    if (at.front() != 0 || at.back() != flat.dims[0] || !std::is_sorted(at.begin(), at.end())) {
        bad(fmt::format("{} does not rise from 0 to the {} bytes of {}", offsets_name, flat.dims[0],
                        bytes_name));
    }
    offsets = cuts.extent;
    bytes = flat.extent;
}

// A file of the format says so; another is taken only where somebody said what it is.
void check_format(hid_t file, const Foreign& foreign) {
    if (!foreign.empty() && H5Aexists(file, "format") <= 0) return;
    H5G_info_t group;
    if (H5Aexists(file, "format") <= 0 && H5Gget_info(file, &group) >= 0 && group.nlinks == 0) {
        bad("it is an empty HDF5 file: its writer stored nothing", "remove it, or write it again");
    }
    if (H5Aexists(file, "format") <= 0) {
        bad("it has no attribute format: it is not in the shard format",
            "say what it holds (data.names and data.facts, or --map and --facts), or rewrite it "
            "with "
            "`vtrain data repack`; see data/README.md");
    }
    if (text_attribute(file, "format", "the file") != "vtrain-latents") {
        bad("attribute format is not \"vtrain-latents\"", "is it a shard of latents?");
    }
    const int64_t version = integer_attribute(file, "version", 1)[0];
    if (version != 1) {
        bad(fmt::format("format version {} is not known", version), "this vtrain reads version 1");
    }
}

}  // namespace

ShardIndex h5_describe(const fs::path& path, const Foreign& foreign) {
    const std::lock_guard lock(library());
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    const Fd fd = open_read(path);
    ShardIndex x;
    x.stamp = stamp_of(fd, path);
    const H file = open_foreign(path);
    const auto name = [&](const char* ours) { return foreign.name(ours); };
    const auto lacks = [&](const char* ours) {
        return !foreign.empty() && !has_set(file.get(), name(ours));
    };
    x.foreign = hash_of(foreign);
    check_format(file.get(), foreign);
    FactsGiven facts = facts_of(file.get());
    join_facts(facts, foreign.facts, "the file", "what was given for it");
    if (!foreign.empty()) add_known(facts);

    const Table latents = open_table(file.get(), name("latents"), 5);
    if (foreign.layout != "NCTHW") {
        bad(fmt::format("latents of layout {} cannot be read in place", foreign.layout), kRepack);
    }
    x.latent_type = stored_type(latents, name("latents"));
    x.count = latents.dims[0];
    std::copy(latents.dims.begin() + 1, latents.dims.end(), x.shape.begin());
    x.latents = latents.extent;

    // A foreign file may hold (samples, rows, dim): every sample the same number of rows.
    const bool ragged = !lacks("text_offsets");
    const Table text = open_table(file.get(), name("text"), ragged ? 2 : 3);
    x.text_type = stored_type(text, name("text"));
    x.text = text.extent;
    const int64_t dim = text.dims.back();
    if (!foreign.empty() && !facts.text_dim) facts.text_dim = dim;
    x.facts = complete_facts(facts, "as attributes of the file");
    const Table empty = open_table(file.get(), name("empty_text"), 2);
    if (dim != x.facts.text_dim || empty.dims[1] != x.facts.text_dim) {
        bad(fmt::format("text has width {}, empty_text {}, attribute text_dim says {}", dim,
                        empty.dims[1], x.facts.text_dim));
    }

    const int64_t size = x.stamp.size;
    if (ragged) {
        x.text_rows = text.dims[0];
        const Table starts = open_table(file.get(), name("text_offsets"), 1);
        want_type(starts, H5T_STD_I64LE, name("text_offsets"), "int64");
        x.text_start = read_table<int64_t>(fd, path, starts, size, "text_offsets");
    } else {
        if (text.dims[0] != x.count) {
            bad(fmt::format("text has {} entries for {} samples", text.dims[0], x.count));
        }
        if (x.text.bytes > size || x.latents.bytes > size || x.count > size) {
            bad("its data sets lie past the file's end", "copy or encode the file again");
        }
        x.text_rows = text.elements() / std::max<int64_t>(dim, 1);
        for (int64_t i = 0; i <= x.count; ++i) x.text_start.push_back(i * text.dims[1]);
    }
    x.has_checksums = !lacks("checksums");
    if (x.has_checksums) {
        const Table sums = open_table(file.get(), name("checksums"), 1);
        want_type(sums, H5T_STD_U64LE, name("checksums"), "uint64");
        x.checksums = read_table<uint64_t>(fd, path, sums, size, "checksums");
    }
    x.has_ids = !lacks("id_offsets");
    if (x.has_ids) {
        check_cuts(fd, path, file.get(), size, x.count, name("id_offsets"), name("ids"),
                   x.id_offsets, x.ids);
    }
    x.has_captions = !lacks("caption_offsets");
    if (x.has_captions) {
        check_cuts(fd, path, file.get(), size, x.count, name("caption_offsets"), name("captions"),
                   x.caption_offsets, x.captions);
    }

    const Stored empty_type = stored_type(empty, name("empty_text"));
    if (empty.elements() > kMaxEmpty) bad("empty_text is too large");
    const auto raw = static_cast<size_t>(empty.elements());
    x.empty_text.resize(raw);
    if (empty.extent.bytes > size || empty.extent.offset > size - empty.extent.bytes) {
        bad("data set empty_text lies past the file's end");
    }
    std::string bytes(static_cast<size_t>(empty.extent.bytes), '\0');
    pread_all(fd, bytes.data(), empty.extent.bytes, empty.extent.offset, path);
    to_floats(empty_type, bytes.data(), empty.elements(), x.empty_text.data());
    return x;
}

// --- laying out ---------------------------------------------------------------------------------

namespace {

[[noreturn]] void cannot_write(const fs::path& path, const char* what) {
    raise(Fault::kSystem,
          fmt::format("cannot write {} of shard {}: {}", what, path.string(), library_reason()),
          "is the disk full?");
}

// Writes one shard's metadata; every call is checked through one place.
class Layout {
  public:
    explicit Layout(const fs::path& path) : path_(path), file_(create(path)) {}

    void text(hid_t object, const char* name, const std::string& value) const {
        const H type(H5Tcopy(H5T_C_S1), H5Tclose);
        H5Tset_size(type.get(), std::max<size_t>(value.size(), 1));
        H5Tset_strpad(type.get(), H5T_STR_NULLPAD);
        H5Tset_cset(type.get(), H5T_CSET_UTF8);
        const H space(H5Screate(H5S_SCALAR), H5Sclose);
        const std::string padded = value.empty() ? std::string(1, '\0') : value;
        attribute(object, name, type.get(), type.get(), space.get(), padded.data());
    }
    void text(const char* name, const std::string& value) const { text(root(), name, value); }
    void integer(const char* name, int64_t value) const {
        const H space(H5Screate(H5S_SCALAR), H5Sclose);
        attribute(root(), name, H5T_STD_I64LE, H5T_NATIVE_INT64, space.get(), &value);
    }
    void number(const char* name, double value) const {
        const H space(H5Screate(H5S_SCALAR), H5Sclose);
        attribute(root(), name, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, space.get(), &value);
    }
    void array(const char* name, hid_t type, hid_t memory, const void* data, size_t n) const {
        const hsize_t dim = n;
        const H space(H5Screate_simple(1, &dim, nullptr), H5Sclose);
        attribute(root(), name, type, memory, space.get(), data);
    }

    // A contiguous data set with its space taken now; data == nullptr leaves the bytes unwritten.
    ByteRange table(const char* name, hid_t type, const std::vector<hsize_t>& dims,
                    const void* data, const char* dtype = nullptr) const {
        const H space(H5Screate_simple(static_cast<int>(dims.size()), dims.data(), nullptr),
                      H5Sclose);
        const H plist(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
        H5Pset_layout(plist.get(), H5D_CONTIGUOUS);
        H5Pset_alloc_time(plist.get(), H5D_ALLOC_TIME_EARLY);
        H5Pset_fill_time(plist.get(), H5D_FILL_TIME_NEVER);
        H5Pset_obj_track_times(plist.get(), false);  // equal contents, equal bytes
        const H set(
            H5Dcreate2(root(), name, type, space.get(), H5P_DEFAULT, plist.get(), H5P_DEFAULT),
            H5Dclose);
        if (!set.ok()) cannot_write(path_, name);
        hsize_t bytes = H5Tget_size(type);
        for (const hsize_t d : dims) bytes *= d;
        if (data != nullptr && bytes > 0 &&
            H5Dwrite(set.get(), type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0) {
            cannot_write(path_, name);
        }
        if (dtype != nullptr) text(set.get(), "dtype", dtype);
        ByteRange out{.offset = 0, .bytes = static_cast<int64_t>(bytes)};
        if (bytes > 0) {
            const haddr_t at = H5Dget_offset(set.get());
            if (at == HADDR_UNDEF) cannot_write(path_, name);
            out.offset = static_cast<int64_t>(at);
        }
        return out;
    }

    void close() {
        if (H5Fclose(file_.release()) < 0) cannot_write(path_, "metadata");
    }

  private:
    [[nodiscard]] hid_t root() const { return file_.get(); }

    static H create(const fs::path& path) {
        H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
        const H access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
        H5Pset_file_locking(access.get(), 0, 1);
        H5Pset_alignment(access.get(), 1 << 16, 4096);  // payload starts on a page
        H file(H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, access.get()), H5Fclose);
        if (!file.ok()) cannot_write(path, "the file");
        return file;
    }

    void attribute(hid_t object, const char* name, hid_t type, hid_t memory, hid_t space,
                   const void* data) const {
        const H a(H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT), H5Aclose);
        if (!a.ok() ||
            (H5Sget_simple_extent_npoints(space) > 0 && H5Awrite(a.get(), memory, data) < 0)) {
            cannot_write(path_, name);
        }
    }

    const fs::path& path_;
    H file_;
};

}  // namespace

H5Payload h5_create(const fs::path& path, const H5Layout& l) {
    VT_CHECK(l.stored == Stored::kF32 || l.stored == Stored::kBF16, "shards are written as {}",
             name_of(l.stored));
    const std::lock_guard lock(library());
    Layout out(path);
    const LatentFacts& f = l.facts;
    out.text("format", "vtrain-latents");
    out.integer("version", 1);
    out.text("codec", f.codec);
    out.integer("channels", f.channels);
    out.array("scale", H5T_STD_I64LE, H5T_NATIVE_INT64, f.scale.data(), f.scale.size());
    out.integer("normalised", f.normalised ? 1 : 0);
    out.array("mean", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, f.mean.data(), f.mean.size());
    out.array("std", H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, f.std.data(), f.std.size());
    out.text("text_encoder", f.text_encoder);
    out.integer("text_dim", f.text_dim);
    out.integer("text_len", f.text_len);
    out.number("fps", f.fps);

    const bool half = l.stored == Stored::kBF16;
    const hid_t type = half ? H5T_STD_U16LE : H5T_IEEE_F32LE;
    const char* dtype = half ? "bf16" : nullptr;
    const auto n = static_cast<hsize_t>(l.count), dim = static_cast<hsize_t>(f.text_dim);
    const auto rows = static_cast<hsize_t>(l.text_start->back());
    const auto size = [](const auto* v) { return static_cast<hsize_t>(v->size()); };
    H5Payload payload;
    out.table("text_offsets", H5T_STD_I64LE, {n + 1}, l.text_start->data());
    out.table("checksums", H5T_STD_U64LE, {n}, l.checksums->data());
    out.table("id_offsets", H5T_STD_I64LE, {n + 1}, l.id_offsets->data());
    out.table("ids", H5T_STD_U8LE, {size(l.ids)}, l.ids->data());
    out.table("caption_offsets", H5T_STD_I64LE, {n + 1}, l.caption_offsets->data());
    out.table("captions", H5T_STD_U8LE, {size(l.captions)}, l.captions->data());
    const hsize_t row_bytes = dim * static_cast<hsize_t>(size_of(l.stored));
    out.table("empty_text", type, {size(l.empty_text) / row_bytes, dim}, l.empty_text->data(),
              dtype);
    const auto d = [&](size_t i) { return static_cast<hsize_t>(l.shape.at(i)); };
    payload.latents = out.table("latents", type, {n, d(0), d(1), d(2), d(3)}, nullptr, dtype);
    payload.text = out.table("text", type, {rows, dim}, nullptr, dtype);
    out.close();
    return payload;
}

}  // namespace vt
