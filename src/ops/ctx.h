// SPDX-License-Identifier: MIT
// What every op call is given: the backend's table, its threads, its scratch, and who counts.
// Floor 1.
#pragma once

#include <cstdint>

#include "core/pool.h"
#include "core/tensor.h"

namespace vt {

struct Ops;

// Running totals of what ops were asked to do. One per Ctx; not shared between ranks.
struct OpCount {
    int64_t calls = 0;
    double flop = 0;         // floating-point operations as ops/cost.h defines them
    double matmul_flop = 0;  // the part of flop in matrix products and attention
    double bytes = 0;        // bytes read and written, each tensor once
};

// Optional observer of op calls (the profiler, the meta backend's ledger, traces).
struct OpObserver {
    virtual ~OpObserver() = default;
    virtual void begin(const char* op, double flop, double bytes) = 0;
    virtual void end(const char* op) = 0;
};

// Which part of a model is calling, for messages, traces and profiles. No op reads it.
struct CallSite {
    const char* pass = "";  // "forward" "backward"
    const char* part = "";  // "block" "head" ..., as the model calls its parts
    int64_t block = -1;     // of the part "block"
};

struct Ctx {
    const Ops* ops = nullptr;
    Pool* pool = nullptr;      // the cpu backend's threads; null for meta and cuda
    void* stream = nullptr;    // the order of execution; null on the cpu, where it is program order
    Tensor scratch = {};       // (bytes) u8, at least Ops::scratch_bytes(...); one user at a time
    OpCount* count = nullptr;  // may be null
    OpObserver* observer = nullptr;  // may be null
    CallSite at = {};

    /// The same for calls of another part of the model.
    [[nodiscard]] Ctx in(const char* part, int64_t block = -1) const {
        Ctx c = *this;
        c.at.part = part;
        c.at.block = block;
        return c;
    }
    [[nodiscard]] Ctx in_pass(const char* pass) const {
        Ctx c = *this;
        c.at.pass = pass;
        return c;
    }
};

// A segment is one sample's run of consecutive token rows; rows of all segments of a batch lie one
// after another. n segments cover rows [begin[0], begin[n]). The arrays are in host memory and
// outlive the calls. Segments may be empty. (Packing, context parallelism and buckets all come
// down to such a list.)
struct Segments {
    int64_t n = 0;
    const int64_t* begin = nullptr;  // n + 1 entries, ascending; begin[0] == 0
    const int64_t* mod_row =
        nullptr;  // n entries: which row of a modulation tensor is this segment's
    [[nodiscard]] int64_t rows() const { return n == 0 ? 0 : begin[n]; }
};

}  // namespace vt
