// SPDX-License-Identifier: MIT
// A world of processes over MPI, for tensors in host memory. Present in builds with MPI only.
// Floor 1.
#pragma once

#include "comm/comm.h"

namespace vt {

struct MpiOptions {
    // A longer message travels in pieces of this size: MPI counts with 32-bit integers.
    int64_t piece_bytes = int64_t{1} << 30;
    // How long a rank that ends by an error waits for the others to notice before it ends them.
    double leave_seconds = 10;
};

/// The ranks the launcher started, one process each. Call it once in a process: it initialises MPI
/// (unless that was done) and the last of its groups to go finalises it. Same results, bit for bit,
/// same errors and same contracts as thread_groups (comm/threads.h), but
/// - send does not copy: its buffer belongs to the call until the handle has been waited for;
/// - all calls of this process advance while any thread waits for one of them, and only then;
/// - a rank that ends by an error says so to the others, which raise within a second of waiting for
///   it; those that have not ended leave_seconds later are ended by MPI_Abort.
/// Needs MPI_THREAD_SERIALIZED: any thread may call, one at a time inside MPI.
/// all_reduce moves 2(n-1)/n of x per rank and takes scratch of its size; reduce_scatter (n-1)/n of
/// `in`; broadcast sends x to each rank in turn. Scratch is kept for the next call.
/// kSystem where MPI fails.
[[nodiscard]] std::unique_ptr<Group> mpi_world(const MpiOptions& options = {});

}  // namespace vt
