// SPDX-License-Identifier: MIT
// What the files that call the HDF5 library share: identifiers that close themselves, its words on
// an error, attributes of unknown origin. Used by h5*.cpp only.
// Floor 3.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <hdf5.h>

#include "core/check.h"
#include "core/file.h"
#include "data/facts.h"

namespace vt::h5 {

// The library may be built without thread safety, so one thread at a time is inside it.
std::mutex& library();

// An identifier that closes itself.
class H {
  public:
    using Close = herr_t (*)(hid_t);
    H() = default;
    H(hid_t id, Close close) : id_(id), close_(close) {}
    ~H() {
        if (id_ >= 0) close_(id_);
    }
    H(H&& o) noexcept : id_(std::exchange(o.id_, -1)), close_(o.close_) {}
    H& operator=(H&&) = delete;
    [[nodiscard]] hid_t get() const { return id_; }
    [[nodiscard]] bool ok() const { return id_ >= 0; }
    hid_t release() { return std::exchange(id_, -1); }

  private:
    hid_t id_ = -1;
    Close close_ = nullptr;
};

/// The innermost message of the library's error stack: that is the one that says what is wrong.
[[nodiscard]] std::string library_reason();

[[noreturn]] void bad(std::string message, std::string hint = "see data/README.md");

inline constexpr const char* kRepack =
    "`vtrain data repack IN.h5 OUT.h5` rewrites it in the form that is read";

/// Opens for reading, without locks; kData with the reason and the fix.
[[nodiscard]] H open_foreign(const fs::path& path);

// Root or data set attributes; kData naming the attribute for a wrong type or size. Strings may be
// of fixed or variable length, scalar or an array of one.
[[nodiscard]] std::string text_attribute(hid_t object, const char* name, const char* where);
[[nodiscard]] std::vector<double> number_attribute(hid_t object, const char* name);
/// Also the bool that h5py writes.
[[nodiscard]] std::vector<int64_t> integer_attribute(hid_t object, const char* name,
                                                     size_t entries);
/// Those facts that the root attributes state.
[[nodiscard]] FactsGiven facts_of(hid_t file);

/// Opens a data set by its path ("latents", "group/latents"), every step of which is a hard link:
/// data in other files, linked, external or virtual, is refused.
[[nodiscard]] H open_set(hid_t file, const std::string& path);
[[nodiscard]] bool has_set(hid_t file, const std::string& path);

/// IEEE half precision, little-endian or, if asked, of either order.
[[nodiscard]] bool is_half(hid_t type, bool any_order = false);

}  // namespace vt::h5
