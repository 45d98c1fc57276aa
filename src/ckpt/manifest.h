// SPDX-License-Identifier: MIT
// manifest.json: what makes a directory a checkpoint. Floor 5.
//
//   file     = '{"format":"vtrain-checkpoint","version":1,"xxh3":"' hex64(body) '","manifest":'
//              body '}\n'
//   body     = { step, cursor, run_id, config, facts, data_fingerprint, mesh, build,
//                instruction_path, extra, files: [file], tensors: {name: tensor} }
//   file     = { name, bytes, header_bytes, header_xxh3 }        a safetensors file beside it
//   tensor   = { shape, dtype, extents: [extent] }
//   extent   = { rect: [[begin, end] per dim], flat: [begin, end), file: index, offset, xxh3 }
//
// An extent is the elements [flat) of a rectangle, row-major, as contiguous bytes of one file.
// 64-bit integers that JSON readers may round are written as 16 hex digits. Every byte of every
// file belongs to its header or to one extent, so the checksums cover all of them.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "ckpt/state.h"
#include "core/check.h"
#include "core/file.h"

namespace vt {

inline constexpr int64_t kManifestVersion = 1;
inline constexpr const char* kManifestName = "manifest.json";

struct Extent {
    Rect rect;  // one pair per dim
    int64_t flat_begin = 0, flat_end = 0;
    int64_t file = 0;    // index into Manifest::files
    int64_t offset = 0;  // bytes from the start of the file
    uint64_t xxh3 = 0;
    [[nodiscard]] int64_t numel() const { return flat_end - flat_begin; }
};

struct ManifestTensor {
    Shape shape;
    DType dtype = DType::kF32;
    std::vector<Extent> extents;  // none of them empty
};

struct ManifestFile {
    std::string name;
    int64_t bytes = 0;
    int64_t header_bytes = 0;
    uint64_t header_xxh3 = 0;
};

struct Manifest {
    CheckpointInfo info;
    std::vector<ManifestFile> files;
    std::map<std::string, ManifestTensor> tensors;
};

[[nodiscard]] std::string encode(const Manifest& m);

/// Inverse of encode. Checks the checksum, the version and the form of every field, not whether
/// the extents are complete. kData naming `path`.
[[nodiscard]] Manifest decode(const std::string& text, const fs::path& path);

/// Every tensor's extents tile it, and every file's extents tile its payload; else `fault` naming
/// tensor or file and `where`.
void check_complete(const Manifest& m, Fault fault, const std::string& where);

/// Appends another rank's files and extents; kBug if shapes or dtypes differ.
void merge(Manifest& into, const Manifest& part);

/// dir/manifest.json, decoded and complete, and every file there with the stated size. kUser if
/// `dir` is not a directory, kData otherwise.
[[nodiscard]] Manifest read_manifest(const fs::path& dir);

/// Elements of a rectangle.
[[nodiscard]] int64_t numel(const Rect& rect);

}  // namespace vt
