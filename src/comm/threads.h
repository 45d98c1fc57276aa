// SPDX-License-Identifier: MIT
// Ranks as threads of one process: what several ranks do together, without a launcher.
// Floor 1.
#pragma once

#include <functional>

#include "comm/comm.h"

namespace vt {

/// A world of n ranks; element r belongs to the thread of rank r, which must own it (move it there)
/// so that it is destroyed when the thread ends or throws.
/// - Sums run in group-rank order whatever the order of arrival: bits depend on values only.
/// - A call in flight owns its buffers until its handle is waited for; calls of a group are carried
///   out in the order issued. Work is done by those who wait, once all ranks have called. A handle
///   dropped by an exception breaks the world; any other dropped handle waits.
/// - send copies, and completes at once; programs that shall run on MPI too must not rely on it.
/// - kBug on every rank, naming two of them, where ranks call different collectives, or recv
///   disagrees with its send. kSystem where a rank waits for one whose Group is gone, naming it.
///   Either breaks the world: every further call on any of its groups raises the same.
[[nodiscard]] std::vector<std::unique_ptr<Group>> thread_groups(int n);

/// body(world) on n ranks, each in a thread. If it throws on a rank, calls of the other ranks raise
/// an Error of the same fault: "rank R failed: <message>". Returns when all have ended; rethrows
/// the exception of the rank that threw first.
void run_ranks(int n, const std::function<void(Group&)>& body);

}  // namespace vt
