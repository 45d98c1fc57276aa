// SPDX-License-Identifier: MIT
// The part of the CUDA runtime that cuda/ uses, on the CPU. A stream is a queue: copies run when
// somebody waits for them (or a kernel follows on their stream), and not before, so that a missing
// wait and a buffer that is used again too early give wrong bytes. Device memory is poisoned.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vt::test::gpu {

struct State {
    std::vector<std::string> calls;  // names, in order
    std::string fail;                // the next call of this name returns cudaErrorMemoryAllocation
    int devices = 1;
    int64_t live = 0;  // device and pinned blocks, streams and events not given back
    struct Launched {
        std::string name;
        double bytes;
    };
    std::vector<Launched> launches;
};
/// The one machine of the process.
State& state();

}  // namespace vt::test::gpu
