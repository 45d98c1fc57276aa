// SPDX-License-Identifier: MIT
// Reading samples from file systems that fail for a while, or hang.
// Floor 3.
#pragma once

#include <functional>
#include <string>

#include "data/loader.h"
#include "data/watch.h"

namespace vt {

// How a read went that was not the first try.
struct Retried {
    int tries = 1;
    std::string why;  // the last failure; empty after one try
};

/// data.read_watched, tried again after growing pauses while the fault may pass and `watch` is not
/// giving up. Throws what the last try threw.
Retried read_retrying(const Dataset& data, int source, int64_t index, Tensor latent, Tensor text,
                      ReadWatch& watch, const RetryOptions& retry);

/// The same for a caller that has nothing else to do, in a thread of its own: a stall is reported,
/// and false is returned if stop() turns true before the sample is there (it may be empty). The
/// tensors are not written after the return, whatever the file system does.
[[nodiscard]] bool read_patiently(const Dataset& data, int source, int64_t index, Tensor latent,
                                  Tensor text, const RetryOptions& retry, StallReport& report,
                                  const std::function<bool()>& stop);

}  // namespace vt
