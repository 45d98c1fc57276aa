// SPDX-License-Identifier: MIT
// Memory, execution and judgement of op cases. Every argument lies between guard bands of NaN
// bytes: a write past an end is found in the band, a read past an end makes the result NaN.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "core/pool.h"
#include "tests/ops/cases.h"

namespace vt::test {

// A block of 64-byte aligned bytes (plus `offset`) with a guard band at each end.
class Guarded {
  public:
    static constexpr int64_t kGuard = 256;
    explicit Guarded(int64_t bytes, int64_t offset = 0);
    [[nodiscard]] void* data() const { return data_; }
    [[nodiscard]] int64_t bytes() const { return bytes_; }
    /// Every byte 0xff: NaN in each float format.
    void poison();
    [[nodiscard]] bool guards_whole() const;

  private:
    std::unique_ptr<std::byte[]> block_;
    std::byte* data_;
    int64_t bytes_, total_;
};

// One set of a case's arguments. `odd`: every tensor starts one element past 64-byte alignment.
struct Memory {
    explicit Memory(const Case& c, bool odd = false);
    std::vector<Guarded> blocks;  // one per argument; an alias has none of its own (0 bytes)
    Args args;
};

/// Inputs and presets filled and prepared (by the reference, or on `with`), outputs NaN.
[[nodiscard]] Memory make_inputs(const Case& c, const Ctx* with = nullptr);
/// Copies inputs into `work` and calls the op with a poisoned, guarded scratch. Returns what was
/// damaged (a guard band, an input), or "". `stream` becomes Ctx::stream.
[[nodiscard]] std::string run_case(const Ops& ops, Pool* pool, const Case& c, const Memory& inputs,
                                   Memory& work, void* stream = nullptr);

struct Verdict {
    std::string failure;  // "" or the first wrong element
    double share = 0;     // largest |error| / tolerance
};
/// Judges `got` by `want` (the reference's run of the same inputs).
[[nodiscard]] Verdict judge(const Case& c, const Memory& inputs, const Memory& want,
                            const Memory& got);
/// "" if all outputs have the same bits, else the first argument that differs.
[[nodiscard]] std::string different_bits(const Case& c, const Memory& a, const Memory& b);

}  // namespace vt::test
