// SPDX-License-Identifier: MIT
// safetensors files: 8 bytes of header size (little-endian), a JSON header, then the tensors' bytes
// back to back. Reader and writer stream: no call holds more than one piece of one tensor.
// Format: https://github.com/huggingface/safetensors#format (read 2026-11-30).
// Floor 3.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/file.h"
#include "core/tensor.h"

namespace vt {

// Element formats the files may hold. Those that DType lacks are read, never written.
enum class StoredType : uint8_t { kF64, kF32, kF16, kBF16, kI64, kI32, kU8, kI16, kI8, kBool };
[[nodiscard]] const char* name_of(StoredType t);  // as in the header: "F64" "F32" "F16" ...
[[nodiscard]] int64_t size_of(StoredType t);      // bytes per element
[[nodiscard]] StoredType stored(DType dtype);

struct StoredTensor {
    std::string name;
    StoredType type = StoredType::kF32;
    Shape shape;
    int64_t offset = 0;  // of the first byte, from the start of the file
    int64_t bytes = 0;
};

// Invariants:
//  1. the tensors, in this order, tile the bytes behind the header without gaps or overlaps, to the
//     last byte of the file;
//  2. bytes == shape.numel() * size_of(type), and no product overflowed.
struct SafetensorsHeader {
    std::vector<StoredTensor> tensors;
    std::map<std::string, std::string> metadata;
};
/// The header's JSON (without the 8 size bytes) of a file of `file_bytes` bytes. Touches no file;
/// `name` is for messages. kData naming file and tensor for a broken rule.
[[nodiscard]] SafetensorsHeader parse_safetensors_header(const std::string& json,
                                                         int64_t file_bytes, const fs::path& name);

// An open file whose header has been checked.
class SafetensorsReader {
  public:
    static constexpr int64_t kMaxHeader = 100'000'000;  // bytes, the format's own limit

    /// kSystem if the file cannot be read, kData naming file and tensor if it breaks a rule.
    explicit SafetensorsReader(fs::path path);

    [[nodiscard]] const fs::path& path() const { return path_; }
    [[nodiscard]] const std::vector<StoredTensor>& tensors() const {
        return header_.tensors;
    }  // by offset
    [[nodiscard]] const std::map<std::string, std::string>& metadata() const {
        return header_.metadata;
    }
    [[nodiscard]] const StoredTensor* find(const std::string& name) const;  // null if absent
    /// kData naming the file if absent.
    [[nodiscard]] const StoredTensor& at(const std::string& name) const;

    /// out (any shape, n elements) out: elements [first, first + n) of t, row-major. Floating
    /// formats convert to each other (rounding to nearest even); integers must match (kData).
    void read(const StoredTensor& t, int64_t first, Tensor out) const;
    /// The whole tensor; out.numel() must be t.shape.numel() (kBug).
    void read(const StoredTensor& t, Tensor out) const;

  private:
    fs::path path_;
    Fd fd_;
    SafetensorsHeader header_;
    std::map<std::string, size_t> index_;
};

struct TensorSpec {
    std::string name;
    DType dtype = DType::kF32;
    Shape shape;
};

// Writes one file of tensors that are all declared first. Wider elements are laid out first, so
// that every tensor starts at a multiple of its element size. The disk space is taken at once, so
// that a full disk shows before the first byte is written.
class SafetensorsWriter {
  public:
    /// Creates (truncates) the file and writes the header. kSystem on I/O errors; kBug on duplicate
    /// names.
    SafetensorsWriter(fs::path path, const std::vector<TensorSpec>& specs,
                      const std::map<std::string, std::string>& metadata);
    ~SafetensorsWriter();  // without close(): the file is removed
    SafetensorsWriter(const SafetensorsWriter&) = delete;
    SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

    /// Appends the elements of `part` (dtype of specs[i]) to tensor i. Tensors in any order.
    void write(size_t i, CTensor part);
    /// kBug unless every tensor is complete. fsync and close, both checked.
    void close();

    [[nodiscard]] int64_t offset(size_t i) const { return slots_[i].begin; }  // from file start
    [[nodiscard]] int64_t file_bytes() const { return file_bytes_; }
    [[nodiscard]] int64_t header_bytes() const { return narrow<int64_t>(header_.size()); }
    [[nodiscard]] const std::string& header() const { return header_; }  // with the 8 size bytes

  private:
    struct Slot {
        std::string name;
        DType dtype;
        int64_t begin, next, end;  // bytes from file start
    };
    fs::path path_;
    Fd fd_;
    std::string header_;
    std::vector<Slot> slots_;
    int64_t file_bytes_ = 0;
    bool closed_ = false;
};

struct NamedTensor {
    std::string name;
    CTensor tensor;
};
/// All of it in one call: writer, write, close.
void write_safetensors(const fs::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace vt
