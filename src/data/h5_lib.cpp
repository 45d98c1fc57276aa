// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/h5_lib.h"

#include <algorithm>

namespace vt::h5 {

std::mutex& library() {
    static std::mutex mutex;
    return mutex;
}

std::string library_reason() {
    std::string out;
    H5Ewalk2(
        H5E_DEFAULT, H5E_WALK_UPWARD,
        [](unsigned n, const H5E_error2_t* e, void* to) -> herr_t {
            if (n == 0 && e->desc != nullptr) *static_cast<std::string*>(to) = e->desc;
            return 0;
        },
        &out);
    return out.empty() ? "unknown reason" : out;
}

void bad(std::string message, std::string hint) {
    raise(Fault::kData, std::move(message), std::move(hint));
}

namespace {

constexpr hsize_t kMaxText = 4096;    // bytes of a string attribute
constexpr hsize_t kMaxArray = 65536;  // entries of a numeric attribute

H open_attribute(hid_t object, const char* name, const char* where) {
    if (H5Aexists(object, name) <= 0) bad(fmt::format("{} has no attribute {}", where, name));
    H a(H5Aopen(object, name, H5P_DEFAULT), H5Aclose);
    if (!a.ok()) bad(fmt::format("attribute {}: {}", name, library_reason()));
    return a;
}

}  // namespace

std::string text_attribute(hid_t object, const char* name, const char* where) {
    const H a = open_attribute(object, name, where);
    const H type(H5Aget_type(a.get()), H5Tclose);
    const H space(H5Aget_space(a.get()), H5Sclose);
    if (H5Tget_class(type.get()) != H5T_STRING || H5Sget_simple_extent_npoints(space.get()) != 1) {
        bad(fmt::format("attribute {} is not one string", name));
    }
    if (H5Tis_variable_str(type.get()) > 0) {
        const H memory(H5Tcopy(H5T_C_S1), H5Tclose);
        H5Tset_size(memory.get(), H5T_VARIABLE);
        H5Tset_cset(memory.get(), H5Tget_cset(type.get()));
        char* text = nullptr;
        if (H5Aread(a.get(), memory.get(), &text) < 0 || text == nullptr) {
            bad(fmt::format("attribute {}: {}", name, library_reason()));
        }
        std::string out(text);
        H5free_memory(text);
        if (out.size() > kMaxText) bad(fmt::format("attribute {} is too long", name));
        return out;
    }
    const size_t size = H5Tget_size(type.get());
    if (size == 0 || size > kMaxText) bad(fmt::format("attribute {} is too long", name));
    std::string out(size, '\0');
    if (H5Aread(a.get(), type.get(), out.data()) < 0) {
        bad(fmt::format("attribute {}: {}", name, library_reason()));
    }
    out.resize(std::min(out.find('\0'), size));
    return out;
}

std::vector<double> number_attribute(hid_t object, const char* name) {
    const H a = open_attribute(object, name, "the file");
    const H type(H5Aget_type(a.get()), H5Tclose);
    const H space(H5Aget_space(a.get()), H5Sclose);
    const H5T_class_t kind = H5Tget_class(type.get());
    const hssize_t n = H5Sget_simple_extent_npoints(space.get());
    if ((kind != H5T_FLOAT && kind != H5T_INTEGER) || n < 0 ||
        static_cast<hsize_t>(n) > kMaxArray) {
        bad(fmt::format("attribute {} is not a number or a short array of numbers", name));
    }
    std::vector<double> out(static_cast<size_t>(n));
    if (n > 0 && H5Aread(a.get(), H5T_NATIVE_DOUBLE, out.data()) < 0) {
        bad(fmt::format("attribute {}: {}", name, library_reason()));
    }
    return out;
}

std::vector<int64_t> integer_attribute(hid_t object, const char* name, size_t entries) {
    const H a = open_attribute(object, name, "the file");
    const H type(H5Aget_type(a.get()), H5Tclose);
    const H space(H5Aget_space(a.get()), H5Sclose);
    std::vector<int64_t> out(entries);
    if (H5Sget_simple_extent_npoints(space.get()) != static_cast<hssize_t>(entries)) {
        bad(fmt::format("attribute {} does not have {} entries", name, entries));
    }
    const H5T_class_t kind = H5Tget_class(type.get());
    if (kind == H5T_ENUM && entries == 1 && H5Tget_size(type.get()) == 1) {
        int8_t flag = 0;  // how h5py writes a bool
        if (H5Aread(a.get(), type.get(), &flag) < 0) bad(fmt::format("attribute {}", name));
        out[0] = flag;
        return out;
    }
    if (kind != H5T_INTEGER) bad(fmt::format("attribute {} is not an integer", name));
    if (H5Aread(a.get(), H5T_NATIVE_INT64, out.data()) < 0) {
        bad(fmt::format("attribute {}: {}", name, library_reason()));
    }
    return out;
}

H open_foreign(const fs::path& path) {
    const H access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
    // Read-only mounts and network file systems often refuse locks, and nothing is written here.
    H5Pset_file_locking(access.get(), 0, 1);
    H file(H5Fopen(path.c_str(), H5F_ACC_RDONLY, access.get()), H5Fclose);
    if (!file.ok()) {
        const std::string why = library_reason();
        const bool flag = why.find("h5clear") != std::string::npos ||
                          why.find("already open") != std::string::npos;
        bad(fmt::format("HDF5 cannot open it: {}", why),
            flag ? "its writer did not close it; if the writer is gone, try `h5clear -s FILE`"
                 : "the file is truncated, damaged or no HDF5 file: copy or encode it again");
    }
    return file;
}

bool is_half(hid_t type, bool any_order) {
    size_t sign = 0, exponent = 0, exponent_bits = 0, mantissa = 0, mantissa_bits = 0;
    return H5Tget_class(type) == H5T_FLOAT && H5Tget_size(type) == 2 &&
           (any_order || H5Tget_order(type) == H5T_ORDER_LE) &&
           H5Tget_fields(type, &sign, &exponent, &exponent_bits, &mantissa, &mantissa_bits) >= 0 &&
           sign == 15 && exponent == 10 && exponent_bits == 5 && mantissa == 0 &&
           mantissa_bits == 10 && H5Tget_ebias(type) == 15;
}

FactsGiven facts_of(hid_t file) {
    FactsGiven f;
    const auto there = [&](const char* name) { return H5Aexists(file, name) > 0; };
    const auto one = [&](const char* name, std::optional<int64_t>& to) {
        if (there(name)) to = integer_attribute(file, name, 1)[0];
    };
    if (there("codec")) f.codec = text_attribute(file, "codec", "the file");
    one("channels", f.channels);
    if (there("scale")) {
        const std::vector<int64_t> scale = integer_attribute(file, "scale", 3);
        f.scale = {scale[0], scale[1], scale[2]};
    }
    std::optional<int64_t> normalised;
    one("normalised", normalised);
    if (normalised && *normalised != 0 && *normalised != 1) {
        bad("attribute normalised is not 0 or 1");
    }
    if (normalised) f.normalised = *normalised == 1;
    if (there("mean")) f.mean = number_attribute(file, "mean");
    if (there("std")) f.std = number_attribute(file, "std");
    if (there("text_encoder")) f.text_encoder = text_attribute(file, "text_encoder", "the file");
    one("text_dim", f.text_dim);
    one("text_len", f.text_len);
    if (there("fps")) {
        const std::vector<double> fps = number_attribute(file, "fps");
        if (fps.size() != 1) bad("attribute fps is not one number");
        f.fps = fps[0];
    }
    return f;
}

namespace {

// Whether every step of the path is there; a soft or external link on the way is refused.
bool reachable(hid_t file, const std::string& path) {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
        const std::string step = path.substr(0, end);
        if (H5Lexists(file, step.c_str(), H5P_DEFAULT) <= 0) return false;
        H5L_info_t link;
        if (H5Lget_info(file, step.c_str(), &link, H5P_DEFAULT) < 0 || link.type != H5L_TYPE_HARD) {
            bad(fmt::format("{} is a link to somewhere else", step),
                "write the data into the shard itself");
        }
        if (end == std::string::npos) return true;
    }
}

}  // namespace

bool has_set(hid_t file, const std::string& path) {
    return reachable(file, path);
}

H open_set(hid_t file, const std::string& path) {
    if (!reachable(file, path)) bad(fmt::format("data set {} is missing", path));
    H id(H5Dopen2(file, path.c_str(), H5P_DEFAULT), H5Dclose);
    if (!id.ok()) bad(fmt::format("data set {}: {}", path, library_reason()));
    const H plist(H5Dget_create_plist(id.get()), H5Pclose);
    if (!plist.ok()) bad(fmt::format("data set {}: {}", path, library_reason()));
    if (H5Pget_layout(plist.get()) == H5D_VIRTUAL) {
        bad(fmt::format("data set {} is virtual: its data lies in other files", path),
            "copy it into one file first, e.g. with h5py: out[name] = file[name][...]");
    }
    if (H5Pget_external_count(plist.get()) != 0) {
        bad(fmt::format("data set {} lies in external files", path),
            "write the data into the shard itself");
    }
    return id;
}

}  // namespace vt::h5
