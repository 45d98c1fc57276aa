// SPDX-License-Identifier: MIT
// Arrays of files other programs write, under one roof: safetensors, NumPy's .npy, and .npz without
// compression. Headers are checked before anything of size is allocated; values are read in pieces.
// Format of npy: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html
// (2026-11-30) Floor 3.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"
#include "core/tensor.h"
#include "data/safetensors.h"

namespace vt {

// What the first bytes of a .npy file say.
struct NpyHeader {
    StoredType type = StoredType::kF32;
    bool big_endian = false;
    Shape shape;
    int64_t data = 0;   // where the numbers begin, from the first byte of the header
    int64_t bytes = 0;  // of all numbers
};
/// `bytes` begins with the header and may go on. `two_bytes_are_bf16` says what uint16 and void2
/// numbers are (NumPy itself has no bfloat16). Touches no file. kData with the reason; `name` is
/// for messages.
[[nodiscard]] NpyHeader parse_npy_header(std::string_view bytes, bool two_bytes_are_bf16,
                                         const std::string& name);

// One member of a .npz (zip) file.
struct ZipMember {
    std::string name;
    int64_t header = 0;  // of its local header
    int64_t bytes = 0;
};
/// The members listed in the last bytes of a zip file: `tail` ends with the file, which has
/// `file_bytes` bytes; *need is set where more of the tail is asked for (then the list is empty).
/// Compressed or encrypted members are refused (kData).
[[nodiscard]] std::vector<ZipMember> parse_zip_tail(std::string_view tail, int64_t file_bytes,
                                                    const std::string& name, int64_t* need);

// Named arrays of one file. Thread-safe once open.
class ArrayFile {
  public:
    struct Array {
        std::string name;  // "" in a .npy
        StoredType type = StoredType::kF32;
        bool big_endian = false;
        Shape shape;
        int64_t offset = 0, bytes = 0;
    };
    /// By the ending of the name: .safetensors, .npy, .npz. kUser for another, kData or kSystem
    /// naming the file if it cannot be understood or read.
    explicit ArrayFile(fs::path path, bool two_bytes_are_bf16 = false);

    [[nodiscard]] const fs::path& path() const { return path_; }
    [[nodiscard]] const std::vector<Array>& arrays() const { return arrays_; }
    /// safetensors' own texts; empty elsewhere.
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const { return metadata_; }

    /// n numbers from element `first`, row-major. Integers become floats (exact up to 2^24).
    void read(const Array& a, int64_t first, int64_t n, float* to) const;
    /// The same for integers and booleans; floats must be whole numbers (kData).
    void read(const Array& a, int64_t first, int64_t n, int64_t* to) const;

    /// Whether the ending is one of ours.
    [[nodiscard]] static bool is_one(const fs::path& path);

  private:
    void open_npz(int64_t size, bool two_bytes_are_bf16);
    [[nodiscard]] NpyHeader npy_at(int64_t offset, int64_t end, bool two_bytes_are_bf16,
                                   const std::string& name) const;
    template <typename T>
    void read_as(const Array& a, int64_t first, int64_t n, T* to) const;

    fs::path path_;
    Fd fd_;
    std::vector<Array> arrays_;
    std::map<std::string, std::string> metadata_;
};

}  // namespace vt
