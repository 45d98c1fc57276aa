// SPDX-License-Identifier: MIT
// The whole path of every sample, in a file.
// Floor 5.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/file.h"
#include "sample/sampler.h"

namespace vt {

// A safetensors file that is written while the samples are drawn:
//   sigma                 (N+1)           noise level before each step; the last is 0
//   tau                   (N)             timestep given to the model
//   guidance              (N)             w; 1 or less: none
//   sample-000000/x       (N+1,C,T,H,W)   x_t before each step; the last is the sample
//   sample-000000/v       (N,C,T,H,W)     the model's output there, after guidance
// all float32, with a pair x, v for each sample, named by its index. For a flow
// x[k+1] = x[k] + (sigma[k+1] - sigma[k]) v[k] when the solver is euler.
class TrajectoryFile {
  public:
    /// Creates the file and takes its whole size at once. kSystem if that fails.
    TrajectoryFile(const fs::path& path, const Solver& solver, const LatentShape& shape,
                   const std::vector<SampleRequest>& requests);
    ~TrajectoryFile();  // without close(): the file is removed
    TrajectoryFile(const TrajectoryFile&) = delete;
    TrajectoryFile& operator=(const TrajectoryFile&) = delete;

    /// To be called from a Visit, at every step.
    void add(const PathPoint& point);
    /// Appends the finished samples, in the order of the requests, and syncs.
    void close(const std::vector<std::vector<float>>& latents);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace vt
