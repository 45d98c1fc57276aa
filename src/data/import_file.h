// SPDX-License-Identifier: MIT
// One file of an import: which of its arrays are what, and its samples. Used by import.cpp only.
// Floor 3.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "data/captions.h"
#include "data/import.h"
#include "data/npy.h"

namespace vt {

// A file with latents and what belongs to it.
struct ImportInput {
    fs::path path;
    std::string name;  // of its samples: the path inside the searched folder, without the ending
    fs::path text;     // empty: in the same file
};
/// All inputs of the spec in order. kUser for a missing path or when nothing is found.
[[nodiscard]] std::vector<ImportInput> find_inputs(const ImportSpec& spec);

// Captions and ids beside a file: NAME.json, NAME.jsonl, NAME.txt, or inside it.
struct Sidecar {
    std::vector<std::optional<std::string>> captions, ids;
};

class ImportFile {
  public:
    /// Opens headers only. kData or kSystem with the reason.
    ImportFile(ImportInput input, const ImportSpec& spec);
    [[nodiscard]] int64_t count() const { return count_; }
    [[nodiscard]] std::array<int64_t, 4> shape() const { return shape_; }
    [[nodiscard]] int64_t text_dim() const { return text_->shape[text_->shape.rank - 1]; }
    /// Sample `row`, its latent turned to (C,T,H,W) and otherwise as stored, its text without
    /// padding. has_caption: whether any was found. kData naming file and row.
    [[nodiscard]] ShardSample read(int64_t row, const Captions& captions, int64_t text_len,
                                   bool* has_caption) const;

  private:
    void place_latents();
    void place_text();
    [[nodiscard]] std::vector<float> read_text(int64_t row, int64_t text_len) const;
    [[nodiscard]] const Sidecar& sidecar() const;
    [[noreturn]] void bad(int64_t row, const std::string& what, const std::string& hint) const;

    ImportInput input_;
    const ImportSpec& spec_;
    ArrayFile file_;
    std::unique_ptr<ArrayFile> other_;  // with the text
    const ArrayFile::Array* latents_ = nullptr;
    const ArrayFile::Array* text_ = nullptr;
    const ArrayFile::Array* mask_ = nullptr;
    const ArrayFile::Array* lengths_ = nullptr;
    std::array<int64_t, 4> shape_{};
    std::array<int, 4> source_{};  // position of C,T,H,W in the array's dims (without N); -1: none
    int64_t count_ = 1, text_rows_ = 0;
    mutable std::unique_ptr<Sidecar> sidecar_;
};

/// The empty caption's embedding (rows, dim) without padding. `dim` 0: whatever it is.
[[nodiscard]] std::vector<float> read_empty_text(const ImportSpec& spec, int64_t* dim);

}  // namespace vt
