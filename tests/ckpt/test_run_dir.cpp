// SPDX-License-Identifier: MIT
// Which directories count, which are removed, and who may write.
#include <cerrno>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;
using doctest::Contains;
using test::Armed;
using test::Mischief;
using test::State;

namespace {

void put(const fs::path& dir, int64_t step, const std::string& run_id) {
    State s(static_cast<uint64_t>(step));
    CheckpointInfo info;
    info.step = step;
    info.run_id = run_id;
    const Armed quiet(Mischief::kNone, -1);
    save(dir, info, s.whole(), *self_group());
}

// Nothing known to be whole before.
std::vector<int64_t> prune_to(const fs::path& dir, int64_t keep_last, const std::string& run_id) {
    std::set<int64_t> verified;
    return prune(dir, {.keep_last = keep_last}, run_id, verified, -1);
}

std::set<std::string> names(const fs::path& dir) {
    std::set<std::string> out;
    for (const auto& e : fs::directory_iterator(dir)) out.insert(e.path().filename().string());
    return out;
}

}  // namespace

TEST_CASE("run dir: only step-N directories are checkpoints, highest number first") {
    const test::TempDir dir;
    put(dir.path(), 10, "a");
    put(dir.path(), 100000000, "a");  // nine digits
    for (const char* name :
         {"step-00000300.tmp", "step-00000301.tmp-0123456789abcdef", "step-00000400.abandoned-1",
          "step-00000500.pruned", "step-600", "step-0000000700", "step-", "step--0000008",
          "step-00000900x", "latest"}) {
        fs::copy(dir / "step-00000010", dir / name, fs::copy_options::recursive);
    }
    put(dir.path(), 20, "a");
    const auto found = step_dirs(dir.path());
    REQUIRE(found.size() == 3);
    CHECK(found[0].step == 100000000);
    CHECK(found[2].step == 10);
    CHECK(find_latest(dir.path()) == dir / "step-100000000");
    // numbers decide, not time stamps
    fs::last_write_time(dir / "step-00000010",
                        fs::file_time_type::clock::now() + std::chrono::hours(24));
    CHECK(find_latest(dir.path()) == dir / "step-100000000");
    const Armed quiet(Mischief::kNone, -1);
    clean_stale(dir.path());
    CHECK(names(dir.path()) ==
          std::set<std::string>{"latest", "step-", "step--0000008", "step-0000000700",
                                "step-00000010", "step-00000020", "step-00000400.abandoned-1",
                                "step-00000900x", "step-100000000", "step-600"});
}

TEST_CASE("run dir: prune keeps the newest good ones of this run and nothing else's business") {
    const test::TempDir dir;
    for (const int64_t step : {10, 20, 30, 40, 50, 60}) put(dir.path(), step, "mine");
    put(dir.path(), 35, "other");
    fs::remove(dir / "step-00000050" / kManifestName);  // damaged: does not count, stays
    CHECK(prune_to(dir.path(), 2, "mine") == std::vector<int64_t>{10, 20, 30});
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000035", "step-00000040",
                                                     "step-00000050", "step-00000060"});
    CHECK(prune_to(dir.path(), 2, "mine").empty());
    CHECK(prune_to(dir.path(), 2, "nobody").empty());
    CHECK_THROWS_AS((void)prune_to(dir.path(), 1, "mine"), Error);
}

TEST_CASE("run dir: a prune that ends at any call leaves whole checkpoints and cleans up later") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    int64_t calls = 0;
    for (int64_t n = -1; n < calls; ++n) {
        CAPTURE(n);
        fs::remove_all(dir);
        for (const int64_t step : {10, 20, 30}) put(dir, step, "a");
        if (n < 0) {
            const Armed counted(Mischief::kNone, -1);
            (void)prune_to(dir, 2, "a");
            calls = static_cast<int64_t>(Armed::calls().size());
            continue;
        }
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const Armed armed(Mischief::kExit, n);
            (void)prune_to(dir, 2, "a");
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WEXITSTATUS(status) == test::kExitQuiet);
        for (const StepDir& d : step_dirs(dir)) CHECK_NOTHROW(verify(d.path));
        const Armed quiet(Mischief::kNone, -1);
        clean_stale(dir);
        (void)prune_to(dir, 2, "a");
        CHECK(names(dir) == std::set<std::string>{"step-00000020", "step-00000030"});
    }
    CHECK(calls >= 5);
}

TEST_CASE("run dir: later steps are abandoned, again and again") {
    const test::TempDir dir;
    for (const int64_t step : {10, 20, 30}) put(dir.path(), step, "a");
    CHECK(abandon_later(dir.path(), 10).size() == 2);
    CHECK(find_latest(dir.path()) == dir / "step-00000010");
    put(dir.path(), 20, "a");
    CHECK(abandon_later(dir.path(), 10) ==
          std::vector<fs::path>{dir / "step-00000020.abandoned-2"});
    CHECK(abandon_later(dir.path(), 10).empty());
    CHECK(abandon_later(dir / "nowhere", 10).empty());
}

TEST_CASE("run dir: a second writer is refused with the pid of the first") {
    const test::TempDir dir;
    const fs::path run = dir / "runs" / "a";
    {
        const RunLock lock(run);
        CHECK_THROWS_WITH_AS(RunLock{run}, Contains(fmt::format("pid {} on", ::getpid()).c_str()),
                             Error);
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            try {
                const RunLock second(run);
            } catch (const Error& e) {
                ::_exit(e.exit_code());
            }
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        CHECK(WEXITSTATUS(status) == 2);
    }
    CHECK_NOTHROW(RunLock{run});
}

TEST_CASE("run dir: abandoning that ends at any call never leaves a later one behind an earlier") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    int64_t calls = 0;
    for (int64_t n = -1; n < calls; ++n) {
        CAPTURE(n);
        fs::remove_all(dir);
        for (const int64_t step : {10, 20, 30, 40}) put(dir, step, "a");
        if (n < 0) {
            const Armed counted(Mischief::kNone, -1);
            (void)abandon_later(dir, 10);
            calls = static_cast<int64_t>(Armed::calls().size());
            continue;
        }
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const Armed armed(Mischief::kExit, n);
            (void)abandon_later(dir, 10);
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WEXITSTATUS(status) == test::kExitQuiet);
        // the highest first: what is left is a run without holes
        int64_t expected = 10;
        const auto left = step_dirs(dir);
        for (auto d = left.rbegin(); d != left.rend(); ++d, expected += 10) {
            CHECK(d->step == expected);
            CHECK_NOTHROW(verify(d->path));
        }
        const Armed quiet(Mischief::kNone, -1);
        (void)abandon_later(dir, 10);
        CHECK(step_dirs(dir).size() == 1);
    }
    CHECK(calls >= 6);
}
