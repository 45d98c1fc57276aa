// SPDX-License-Identifier: MIT
// A whole HDF5 file of unknown origin and layout, read in a child process with limits.
// Floor 3.
#pragma once

#include <functional>
#include <string>

#include "data/h5.h"

namespace vt {

/// What `vtrain data h5-child --foreign TEXT FILE` does: limits itself, then writes head and
/// samples to stdout, frame by frame. Returns the exit code; never throws.
int h5_child_main(const std::string& foreign, const std::string& file);

/// Runs the child and hands on what it reads; options.timeout_s is the patience for one sample.
/// kData naming the file for what the child refuses, a crash, a timeout, or sizes that do not fit
/// together; what the callbacks throw passes through.
void read_h5(const fs::path& file, const IndexOptions& options,
             const std::function<void(const H5Head&)>& head,
             const std::function<void(const H5Sample&)>& sample);

}  // namespace vt
