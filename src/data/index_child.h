// SPDX-License-Identifier: MIT
// The child process in which the HDF5 library meets files of unknown origin.
// Floor 3.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "data/index.h"

namespace vt {

/// What `vtrain data index-child --foreign TEXT FILES` does (TEXT: foreign_json, or empty): limits
/// itself (address space, CPU seconds, files, no core, dies with its parent), then describes each
/// file on stdout, frame by frame. Returns the exit code; never throws.
int index_child_main(const std::string& foreign, const std::vector<std::string>& files);

/// Runs several children over `files`, each over some hundreds at a time, and calls
/// done(i, outcome) once per file, from several threads. kSystem if no child can be started at
/// all.
void run_index_children(const std::vector<fs::path>& files, const IndexOptions& options,
                        const std::function<void(size_t, Indexed)>& done);

}  // namespace vt
