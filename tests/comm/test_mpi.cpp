// SPDX-License-Identifier: MIT
// The common table of cases over real MPI. Each case starts this program again under mpirun, where
// the same case plays one rank.
#ifdef VTRAIN_HAVE_MPI
#include <filesystem>
#include <functional>

#include <doctest/doctest.h>

#include "comm/launch.h"
#include "comm/mpi.h"
#include "tests/comm/cases.h"
#include "tests/paths.h"

using namespace vt;

namespace {

void on_ranks(int n, const std::string& name, const std::function<void()>& body) {
    if (launched_ranks() > 1) return body();
    if (test::run("mpirun --version").code != 0) {
        MESSAGE("no mpirun on this machine: not run");
        return;
    }
    const test::Ran ran = test::run(
        fmt::format("timeout 100 mpirun --allow-run-as-root --oversubscribe -n {} {} -tc='{}'", n,
                    std::filesystem::read_symlink("/proc/self/exe").string(), name));
    INFO(ran.output);
    CHECK(ran.code == 0);
    int passed = 0;
    for (size_t at = 0; (at = ran.output.find("SUCCESS!", at)) != std::string::npos; ++at) ++passed;
    CHECK(passed == n);
}

// Long messages travel in pieces; most of the table's fit in one.
const MpiOptions kPieces{.piece_bytes = 50'001, .leave_seconds = 10};

}  // namespace

TEST_CASE("mpi: 2 ranks") {
    on_ranks(2, "mpi: 2 ranks", [] { test::check_group(*mpi_world(kPieces)); });
}

TEST_CASE("mpi: 3 ranks") {
    on_ranks(3, "mpi: 3 ranks", [] { test::check_group(*mpi_world(kPieces)); });
}

TEST_CASE("mpi: ranks that call different things all learn which") {
    on_ranks(3, "mpi: ranks that call different*", [] {
        const auto g = mpi_world();
        float x = 1;
        const DType t = g->rank() == 2 ? DType::kI32 : DType::kF32;
        const char* want =
            "group \"world\": rank 0 called all_reduce(sum, f32, 1 elements) while rank 2 called "
            "all_reduce(sum, i32, 1 elements)";
        CHECK_THROWS_WITH_AS(g->all_reduce({&x, {1}, t}, ReduceOp::kSum, nullptr).wait(),
                             doctest::Contains(want), Error);
        CHECK_THROWS_WITH_AS(g->barrier(), doctest::Contains(want), Error);
    });
}

TEST_CASE("mpi: no rank waits for one that has gone") {
    on_ranks(3, "mpi: no rank waits*", [] {
        auto g = mpi_world();
        if (g->rank() == 1) return;
        std::string said;
        try {
            g->barrier();
        } catch (const Error& e) {
            said = e.message();
        }
        INFO(said);
        CHECK(said.find("group \"world\": rank 1 left while rank ") == 0);
    });
}
#endif
