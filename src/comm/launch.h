// SPDX-License-Identifier: MIT
// Was this process started by a launcher of parallel jobs, and among how many? Read from the
// environment: MPI is not started. Floor 1.
#pragma once

#include <string>

namespace vt {

struct Launch {
    int ranks = 1;
    int rank = 0;
    std::string found;  // "OMPI_COMM_WORLD_SIZE=2"; empty without a launcher
};

/// Open MPI's mpirun (OMPI_COMM_WORLD_SIZE), MPICH's and its kin's (PMI_SIZE) or srun
/// (SLURM_STEP_NUM_TASKS), whichever is set first in this order. kUser where the variable holds no
/// number of ranks.
[[nodiscard]] Launch launch();

/// launch().ranks: 1 without a launcher.
[[nodiscard]] int launched_ranks();

}  // namespace vt
