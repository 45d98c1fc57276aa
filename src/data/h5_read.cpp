// SPDX-License-Identifier: MIT
// Files of any legal layout, sample by sample through the library: what `vtrain data repack` runs
// in the child.
// Floor 3.
#include <algorithm>
#include <array>
#include <cstring>

#include "core/hash.h"
#include "data/h5.h"
#include "data/h5_lib.h"
#include "data/shard_read.h"

namespace vt {

using namespace h5;  // NOLINT: this file is its body

namespace {

constexpr int64_t kMaxRowBytes = int64_t{1} << 30;  // of one sample
constexpr int64_t kMaxCount = int64_t{1} << 28;

// A data set whose rows (entries of dim 0) are read one after another.
struct Rows {
    std::string name;
    H set, type;
    std::vector<int64_t> dims;
    int64_t width = 0;  // bytes per number
    [[nodiscard]] int64_t per_row() const {
        int64_t n = 1;
        for (size_t d = 1; d < dims.size(); ++d) {
            if (__builtin_mul_overflow(n, dims[d], &n)) bad(name + " is too large");
        }
        return n;
    }
    /// Rows [first, first + count) as they are stored.
    [[nodiscard]] std::string read(int64_t first, int64_t count) const {
        std::string out;
        const int64_t n = per_row();
        int64_t bytes = 0;
        if (__builtin_mul_overflow(n, width, &bytes) ||
            __builtin_mul_overflow(bytes, count, &bytes) || bytes > kMaxRowBytes) {
            bad(fmt::format("one sample of {} is larger than 1 GiB", name));
        }
        if (bytes == 0) return out;
        out.resize(static_cast<size_t>(bytes));
        std::array<hsize_t, 8> start{}, size{};
        start[0] = static_cast<hsize_t>(first);
        size[0] = static_cast<hsize_t>(count);
        for (size_t d = 1; d < dims.size(); ++d) size.at(d) = static_cast<hsize_t>(dims[d]);
        const H space(H5Dget_space(set.get()), H5Sclose);
        const H memory(H5Screate_simple(static_cast<int>(dims.size()), size.data(), nullptr),
                       H5Sclose);
        if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, start.data(), nullptr, size.data(),
                                nullptr) < 0 ||
            H5Dread(set.get(), type.get(), memory.get(), space.get(), H5P_DEFAULT, out.data()) <
                0) {
            bad(fmt::format("{}, row {}: {}", name, first, library_reason()),
                "the file is damaged: copy or write it again");
        }
        return out;
    }
};

// Only filters that come with the library and are common; nothing is loaded.
void check_filters(hid_t plist, const std::string& name) {
    const int n = H5Pget_nfilters(plist);
    for (int i = 0; i < n; ++i) {
        unsigned flags = 0, config = 0;
        size_t values = 0;
        std::array<char, 64> text{};
        const H5Z_filter_t id = H5Pget_filter2(plist, static_cast<unsigned>(i), &flags, &values,
                                               nullptr, text.size(), text.data(), &config);
        const bool known =
            id == H5Z_FILTER_DEFLATE || id == H5Z_FILTER_SHUFFLE || id == H5Z_FILTER_FLETCHER32;
        if (!known || H5Zfilter_avail(id) <= 0) {
            bad(fmt::format("data set {} uses filter {} ({})", name, static_cast<int>(id),
                            text.data()),
                "write it again with gzip or without compression, e.g. with h5py");
        }
    }
}

Rows open_rows(hid_t file, const std::string& name) {
    Rows r;
    r.name = name;
    {
        const H plain = open_set(file, name);  // refuses what lies elsewhere
        const H plist(H5Dget_create_plist(plain.get()), H5Pclose);
        check_filters(plist.get(), name);
    }
    // A chunk may hold several samples; it is unpacked once if the cache takes it.
    const H access(H5Pcreate(H5P_DATASET_ACCESS), H5Pclose);
    H5Pset_chunk_cache(access.get(), 521, size_t{1} << 28, 1.0);
    H set(H5Dopen2(file, name.c_str(), access.get()), H5Dclose);
    H type(H5Dget_type(set.get()), H5Tclose);
    const H space(H5Dget_space(set.get()), H5Sclose);
    if (!set.ok() || !type.ok() || !space.ok()) {
        bad(fmt::format("data set {}: {}", name, library_reason()));
    }
    const int rank = H5Sget_simple_extent_ndims(space.get());
    if (rank < 1 || rank > 6) bad(fmt::format("data set {} has {} dims", name, rank));
    std::array<hsize_t, 8> dims{};
    H5Sget_simple_extent_dims(space.get(), dims.data(), nullptr);
    std::vector<int64_t> size;
    for (int d = 0; d < rank; ++d) {
        if (dims.at(static_cast<size_t>(d)) > (hsize_t{1} << 40)) bad(name + " is too large");
        size.push_back(static_cast<int64_t>(dims.at(static_cast<size_t>(d))));
    }
    const auto width = static_cast<int64_t>(H5Tget_size(type.get()));
    return {.name = name,
            .set = std::move(set),
            .type = std::move(type),
            .dims = std::move(size),
            .width = width};
}

// Numbers of either byte order as little-endian ones.
struct Numbers {
    Rows rows;
    Stored stored = Stored::kF32;
    bool swapped = false;
    void little(std::string& bytes) const {
        if (!swapped) return;
        for (size_t i = 0; i < bytes.size(); i += static_cast<size_t>(rows.width)) {
            std::reverse(bytes.begin() + static_cast<std::ptrdiff_t>(i),
                         bytes.begin() + static_cast<std::ptrdiff_t>(i) + rows.width);
        }
    }
    [[nodiscard]] std::vector<float> floats(std::string bytes) const {
        little(bytes);
        const int64_t n = static_cast<int64_t>(bytes.size()) / rows.width;
        std::vector<float> out(static_cast<size_t>(n));
        to_floats(stored, bytes.data(), n, out.data());
        return out;
    }
};

Numbers open_numbers(hid_t file, const std::string& name) {
    Numbers n{.rows = open_rows(file, name)};
    const hid_t type = n.rows.type.get();
    const auto is = [&](hid_t le, hid_t be) {
        return H5Tequal(type, le) > 0 || H5Tequal(type, be) > 0;
    };
    n.swapped = H5Tget_order(type) == H5T_ORDER_BE;
    if (is(H5T_IEEE_F32LE, H5T_IEEE_F32BE)) {
        n.stored = Stored::kF32;
    } else if (is(H5T_IEEE_F64LE, H5T_IEEE_F64BE)) {
        n.stored = Stored::kF64;
    } else if (is_half(type, true)) {
        n.stored = Stored::kF16;
    } else if (is(H5T_STD_U16LE, H5T_STD_U16BE) && H5Aexists(n.rows.set.get(), "dtype") > 0 &&
               text_attribute(n.rows.set.get(), "dtype", name.c_str()) == "bf16") {
        n.stored = Stored::kBF16;
    } else {
        bad(fmt::format(
                "data set {} is neither f32, f16, f64 nor uint16 with the attribute dtype = "
                "\"bf16\"",
                name),
            "cast it before writing");
    }
    return n;
}

// A whole data set of integers or booleans.
std::vector<int64_t> integers(hid_t file, const std::string& name, int64_t most) {
    const Rows r = open_rows(file, name);
    int64_t n = 1;
    for (const int64_t d : r.dims) {
        if (__builtin_mul_overflow(n, d, &n) || n > most) bad(name + " is too large");
    }
    std::vector<int64_t> out(static_cast<size_t>(n));
    const H5T_class_t kind = H5Tget_class(r.type.get());
    if (kind == H5T_ENUM && r.width == 1) {  // h5py's bool
        const std::string raw = r.dims.size() == 1 && n == 0 ? "" : r.read(0, r.dims[0]);
        std::copy(raw.begin(), raw.end(), out.begin());
        return out;
    }
    if (kind != H5T_INTEGER && kind != H5T_FLOAT) bad(name + " does not hold numbers");
    if (n > 0 &&
        H5Dread(r.set.get(), H5T_NATIVE_INT64, H5S_ALL, H5S_ALL, H5P_DEFAULT, out.data()) < 0) {
        bad(fmt::format("{}: {}", name, library_reason()));
    }
    return out;
}

// One string a sample: a data set of strings, or flat bytes with count + 1 offsets.
class Strings {
  public:
    Strings(hid_t file, const std::string& name, const std::string& offsets, int64_t count) {
        if (!has_set(file, name)) return;
        rows_ = std::make_unique<Rows>(open_rows(file, name));
        strings_ = H5Tget_class(rows_->type.get()) == H5T_STRING;
        if (!strings_) {
            if (rows_->dims.size() != 1 || rows_->width != 1) {
                bad(fmt::format("data set {} is neither strings nor bytes", name));
            }
            cuts_ = integers(file, offsets, count + 1);
        }
        const bool fits = strings_ ? rows_->dims.size() == 1 && rows_->dims[0] == count
                                   : narrow<int64_t>(cuts_.size()) == count + 1 &&
                                         cuts_.front() == 0 && cuts_.back() <= rows_->dims[0] &&
                                         std::is_sorted(cuts_.begin(), cuts_.end());
        if (!fits) bad(fmt::format("{} does not fit the {} samples", name, count));
    }
    [[nodiscard]] std::string at(int64_t row) const {
        if (!rows_) return {};
        if (!strings_) {
            const auto r = static_cast<size_t>(row);
            return rows_->read(cuts_[r], cuts_[r + 1] - cuts_[r]);
        }
        if (H5Tis_variable_str(rows_->type.get()) <= 0) {
            std::string out = rows_->read(row, 1);
            out.resize(std::min(out.find('\0'), out.size()));
            while (H5Tget_strpad(rows_->type.get()) == H5T_STR_SPACEPAD && out.ends_with(' ')) {
                out.pop_back();
            }
            return out;
        }
        const hsize_t start = static_cast<hsize_t>(row), one = 1;
        const H space(H5Dget_space(rows_->set.get()), H5Sclose);
        const H memory(H5Screate_simple(1, &one, nullptr), H5Sclose);
        char* text = nullptr;
        if (H5Sselect_hyperslab(space.get(), H5S_SELECT_SET, &start, nullptr, &one, nullptr) < 0 ||
            H5Dread(rows_->set.get(), rows_->type.get(), memory.get(), space.get(), H5P_DEFAULT,
                    &text) < 0) {
            bad(fmt::format("{}, row {}: {}", rows_->name, row, library_reason()));
        }
        std::string out = text == nullptr ? "" : text;
        H5free_memory(text);
        return out;
    }

  private:
    std::unique_ptr<Rows> rows_;
    bool strings_ = false;
    std::vector<int64_t> cuts_;
};

// Text of all samples: ragged rows with offsets, or (samples, rows, dim) with lengths, a mask, or
// zero rows at the end.
class Text {
  public:
    Text(hid_t file, const Foreign& names, int64_t count)
        : numbers_(open_numbers(file, names.name("text"))) {
        const std::vector<int64_t>& dims = numbers_.rows.dims;
        ragged_ = dims.size() == 2;
        if (!ragged_ && (dims.size() != 3 || dims[0] != count)) {
            bad(fmt::format("{} has {} dims, or not {} entries", numbers_.rows.name, dims.size(),
                            count));
        }
        if (ragged_) {
            cuts_ = integers(file, names.name("text_offsets"), count + 1);
            if (narrow<int64_t>(cuts_.size()) != count + 1 || cuts_.front() < 0 ||
                cuts_.back() > dims[0] || !std::is_sorted(cuts_.begin(), cuts_.end())) {
                bad("text_offsets does not rise through the rows of the text");
            }
            return;
        }
        if (has_set(file, names.name("text_lengths"))) {
            lengths_ = integers(file, names.name("text_lengths"), count);
        } else if (has_set(file, names.name("text_mask"))) {
            mask_to_lengths(integers(file, names.name("text_mask"), count * dims[1]), count);
        }
        const bool fits = std::all_of(lengths_.begin(), lengths_.end(),
                                      [&](int64_t n) { return 0 <= n && n <= dims[1]; });
        if (!fits || (!lengths_.empty() && narrow<int64_t>(lengths_.size()) != count)) {
            bad("the lengths of the texts do not fit the text");
        }
    }
    [[nodiscard]] int64_t dim() const { return numbers_.rows.dims.back(); }
    /// As stored, and with it all bytes a checksum covers.
    [[nodiscard]] std::string raw(int64_t row) const {
        const auto r = static_cast<size_t>(row);
        if (ragged_) return numbers_.rows.read(cuts_[r], cuts_[r + 1] - cuts_[r]);
        return numbers_.rows.read(row, 1);
    }
    [[nodiscard]] std::vector<float> floats(const std::string& raw, int64_t row) const {
        std::vector<float> out = numbers_.floats(raw);
        if (ragged_) return out;
        if (!lengths_.empty()) {
            out.resize(static_cast<size_t>(lengths_[static_cast<size_t>(row)] * dim()));
            return out;
        }
        trim(out, dim());
        return out;
    }
    static void trim(std::vector<float>& rows, int64_t dim) {
        const auto end = std::find_if(rows.rbegin(), rows.rend(), [](float v) { return v != 0; });
        const int64_t used = rows.rend() - end;
        rows.resize(static_cast<size_t>(round_up(used, std::max<int64_t>(dim, 1))));
    }

  private:
    void mask_to_lengths(const std::vector<int64_t>& mask, int64_t count) {
        const int64_t len = numbers_.rows.dims[1];
        if (narrow<int64_t>(mask.size()) != count * len) bad("the mask does not fit the text");
        for (int64_t i = 0; i < count; ++i) {
            const auto begin = mask.begin() + i * len, end = begin + len;
            const auto stop = std::find(begin, end, 0);
            if (std::any_of(stop, end, [](int64_t v) { return v != 0; })) {
                bad(fmt::format("the mask of sample {} marks rows behind unmarked ones", i),
                    "text is padded at its end");
            }
            lengths_.push_back(stop - begin);
        }
    }
    Numbers numbers_;
    bool ragged_ = true;
    std::vector<int64_t> cuts_, lengths_;
};

// (C,T,H,W) of a row whose dims lie in the order of `layout` (N first, left out here).
std::vector<float> turned(const std::vector<float>& from, const std::string& order,
                          const std::vector<int64_t>& dims, const std::array<int64_t, 4>& shape) {
    if (order == "CTHW" || order == "CHW") return from;
    std::array<int64_t, 4> stride{};
    for (size_t k = 0; k < 4; ++k) {
        const size_t at = order.find("CTHW"[k]);
        if (at == std::string::npos) continue;
        int64_t step = 1;
        for (size_t d = at + 2; d < dims.size(); ++d) step *= dims[d];
        stride.at(k) = step;
    }
    std::vector<float> out;
    out.reserve(from.size());
    for (int64_t c = 0; c < shape[0]; ++c) {
        for (int64_t t = 0; t < shape[1]; ++t) {
            for (int64_t h = 0; h < shape[2]; ++h) {
                for (int64_t w = 0; w < shape[3]; ++w) {
                    out.push_back(from[static_cast<size_t>(c * stride[0] + t * stride[1] +
                                                           h * stride[2] + w * stride[3])]);
                }
            }
        }
    }
    return out;
}

}  // namespace

void h5_read_all(const fs::path& path, const Foreign& foreign,
                 const std::function<void(const H5Head&)>& on_head,
                 const std::function<void(const H5Sample&)>& on_sample) {
    const std::lock_guard lock(library());
    H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
    H5PLset_loading_state(0);
    const H file = open_foreign(path);
    const auto name = [&](const char* ours) { return foreign.name(ours); };
    const Numbers latents = open_numbers(file.get(), name("latents"));
    const std::vector<int64_t>& dims = latents.rows.dims;
    if (dims.size() != foreign.layout.size()) {
        bad(fmt::format("{} has {} dims, the layout {} has {} letters", latents.rows.name,
                        dims.size(), foreign.layout, foreign.layout.size()),
            "say the order of its dims with --layout");
    }
    H5Head head;
    head.facts = facts_of(file.get());
    head.count = dims[0];
    head.stored = latents.stored;
    if (head.count > kMaxCount) bad("too many samples for one file");
    const std::string order = foreign.layout.substr(1);
    for (size_t k = 0; k < 4; ++k) {
        const size_t at = order.find("CTHW"[k]);
        head.shape.at(k) = at == std::string::npos ? 1 : dims[at + 1];
    }
    const Text text(file.get(), foreign, head.count);
    head.text_dim = text.dim();
    std::vector<int64_t> sums;
    head.has_checksums = has_set(file.get(), name("checksums"));
    if (head.has_checksums) {
        const Rows r = open_rows(file.get(), name("checksums"));
        if (r.dims.size() != 1 || r.dims[0] != head.count ||
            H5Tget_class(r.type.get()) != H5T_INTEGER || r.width != 8) {
            bad("checksums are not one uint64 a sample");
        }
        sums.resize(static_cast<size_t>(head.count));
        if (head.count > 0 && H5Dread(r.set.get(), H5T_NATIVE_UINT64, H5S_ALL, H5S_ALL, H5P_DEFAULT,
                                      sums.data()) < 0) {
            bad(fmt::format("checksums: {}", library_reason()));
        }
    }
    head.has_empty = has_set(file.get(), name("empty_text"));
    if (head.has_empty) {
        const Numbers empty = open_numbers(file.get(), name("empty_text"));
        if (empty.rows.dims.size() != 2 || empty.rows.dims[1] != head.text_dim) {
            bad("empty_text has not the width of the text");
        }
        head.empty_text = empty.floats(empty.rows.read(0, empty.rows.dims[0]));
        Text::trim(head.empty_text, head.text_dim);
    }
    const Strings ids(file.get(), name("ids"), name("id_offsets"), head.count);
    const Strings captions(file.get(), name("captions"), name("caption_offsets"), head.count);
    on_head(head);
    for (int64_t i = 0; i < head.count; ++i) {
        H5Sample s;
        const std::string latent = latents.rows.read(i, 1), words = text.raw(i);
        s.id = ids.at(i);
        s.caption = captions.at(i);
        if (head.has_checksums) {
            Xxh3Stream hash;
            hash.update(latent.data(), narrow<int64_t>(latent.size()));
            hash.update(words.data(), narrow<int64_t>(words.size()));
            s.damaged = hash.digest() != static_cast<uint64_t>(sums[static_cast<size_t>(i)]);
        }
        s.latent = turned(latents.floats(latent), order, dims, head.shape);
        s.text = text.floats(words, i);
        on_sample(s);
    }
}

}  // namespace vt
