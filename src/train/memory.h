// SPDX-License-Identifier: MIT
// Every arena of one training process but the parameters' (model/store.h). The declaring code runs
// on them twice: on measuring arenas (that is `--dry-run`), then on reserved ones. Floor 6.
#pragma once

#include <array>
#include <string>

#include "core/arena.h"

namespace vt {

struct Memory {
    Arena moments{"moments", MemCategory::kMoments};
    Arena ema{"ema", MemCategory::kEma};
    Arena activations{"activations", MemCategory::kActivations};  // of one micro-batch, any shape
    Arena workspace{"workspace",
                    MemCategory::kWorkspace};           // temporaries inside forward and backward
    Arena scratch{"scratch", MemCategory::kWorkspace};  // ops' own, and per-step numbers
    Arena data{"data", MemCategory::kData};             // prefetched batches, validation batches

    // The Activations that last used `activations`, which those of every shape share.
    const void* tenant = nullptr;

    [[nodiscard]] std::array<Arena*, 6> all() {
        return {&moments, &ema, &activations, &workspace, &scratch, &data};
    }
    void reserve() {
        for (Arena* a : all()) a->reserve();
    }
};

}  // namespace vt
