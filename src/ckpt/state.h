// SPDX-License-Identifier: MIT
// What a checkpoint holds: named state tensors, each rank's own part of them, and the facts of the
// run. Floor 5.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace vt {

// Begin and end of every dim: the part of a global tensor that tp or ep cut out.
using Rect = std::vector<std::pair<int64_t, int64_t>>;

// One rank's part of one state tensor: the elements [flat_begin, flat_end), row-major, of a
// rectangle of the global tensor. `local` is host memory of exactly those elements.
//
// Names: "model/<param>" (f32 master), "adam_m/<param>", "adam_v/<param>", "ema<k>/<param>".
//
// On saving, the parts of all ranks must tile the global tensor: each element exactly once. A
// tensor that several ranks hold whole is written in shares (share_of). On loading, parts may
// overlap: every rank gets what it asks for, whatever the layout that saved it.
struct StateTensor {
    std::string name;
    Shape global;
    Tensor local{};  // one rank: whole. Read by save, overwritten by load
    Rect rect{};     // empty: the whole tensor
    int64_t flat_begin = 0;
    int64_t flat_end = -1;  // -1: to the end of the rectangle
    bool optional = false;  // load: a checkpoint without it is accepted, `local` stays as it is
};

/// Elements of the rectangle and the flat range with the defaults filled in; kBug if they do not
/// fit the global shape or `local`.
[[nodiscard]] StateTensor resolved(StateTensor t);

/// The index-th of `count` nearly equal flat parts of a tensor that `count` ranks hold alike.
[[nodiscard]] StateTensor share_of(const StateTensor& t, int64_t index, int64_t count);

struct CheckpointInfo {
    int64_t step = 0;
    uint64_t cursor = 0;                  // draws consumed since step 0
    std::string config;                   // resolved run.toml
    std::string facts_json;               // codec and embedder facts of the data
    uint64_t data_fingerprint = 0;        // of the training set's index
    std::string mesh;                     // "dp=4 cp=1 tp=2 pp=1 ep=1 zero=1"
    std::string build, instruction_path;  // VTRAIN_BUILD; "avx2" ...
    std::string run_id;                   // lineage: kept by a run that resumes in place
    std::map<std::string, std::string> extra;
};

}  // namespace vt
