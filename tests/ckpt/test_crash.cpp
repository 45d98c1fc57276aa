// SPDX-License-Identifier: MIT
// The process ends, or a system call fails, at every single call of a save: afterwards the newest
// checkpoint is exactly the old one or exactly the new one, and the next save works.
#include <algorithm>
#include <cerrno>
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
using test::Armed;
using test::Call;
using test::Mischief;
using test::State;

namespace {

CheckpointInfo at_step(int64_t step) {
    CheckpointInfo i;
    i.step = step;
    i.run_id = "run-a";
    return i;
}

bool is_temporary(const fs::path& path) {
    return path.filename().string().find(kTempMark) != std::string::npos;
}

void do_save(const fs::path& dir, int64_t step, uint64_t seed) {
    State s(seed);
    save(dir, at_step(step), s.whole(), *self_group());
}

// A run directory before the save under test, what the save writes, and what may be found after it.
struct Scene {
    const char* name;
    int64_t old_step;  // -1: none
    int64_t new_step;
    bool can_exchange;
};
constexpr uint64_t kOld = 5, kNew = 6;
const Scene kScenes[] = {
    {"the first checkpoint", -1, 20, true},
    {"one after another", 10, 20, true},
    {"over one of the same step", 20, 20, true},
};

void prepare(const fs::path& dir, const Scene& scene) {
    fs::remove_all(dir);
    const Armed quiet(Mischief::kNone, -1);
    do_save(dir, 4, 4);  // an older one that is never touched
    if (scene.old_step >= 0) do_save(dir, scene.old_step, kOld);
}

// Seed of the state that the newest checkpoint holds, all of it checked.
uint64_t newest(const fs::path& dir) {
    const auto at = find_latest(dir);
    REQUIRE(at.has_value());
    verify(*at);
    State got(0);
    load(*at, got.whole());
    for (const uint64_t seed : {uint64_t{4}, kOld, kNew}) {
        if (got == State(seed)) return seed;
    }
    return 0;
}

int64_t count_calls(const fs::path& dir, const Scene& scene) {
    prepare(dir, scene);
    const Armed armed(Mischief::kNone, -1, 0, scene.can_exchange);
    do_save(dir, scene.new_step, kNew);
    return static_cast<int64_t>(Armed::calls().size());
}

void save_works_again(const fs::path& dir, int64_t step) {
    const Armed quiet(Mischief::kNone, -1);
    clean_stale(dir);
    for (const auto& e : fs::directory_iterator(dir)) CHECK(!is_temporary(e.path()));
    do_save(dir, step, kNew);
}

}  // namespace

TEST_CASE("crash: the process ends at every call of a save") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    for (const Scene& scene : kScenes) {
        CAPTURE(scene.name);
        const int64_t calls = count_calls(dir, scene);
        CHECK(calls > 20);
        int64_t kept_old = 0, got_new = 0;
        for (int64_t n = 0; n < calls; ++n) {
            CAPTURE(n);
            prepare(dir, scene);
            const pid_t child = ::fork();
            REQUIRE(child >= 0);
            if (child == 0) {
                const Armed armed(Mischief::kExit, n);
                do_save(dir, scene.new_step, kNew);
                ::_exit(0);  // not reached: n is a call of this save
            }
            int status = 0;
            REQUIRE(::waitpid(child, &status, 0) == child);
            REQUIRE(WIFEXITED(status));
            const bool said = WEXITSTATUS(status) == test::kExitSaid;
            REQUIRE((said || WEXITSTATUS(status) == test::kExitQuiet));
            const uint64_t found = newest(dir);
            const uint64_t old_seed = scene.old_step >= 0 ? kOld : 4;
            CHECK((found == old_seed || found == kNew));
            if (said) CHECK(found == kNew);  // "committed" was printed
            (found == kNew ? got_new : kept_old) += 1;
            save_works_again(dir, scene.new_step);
            CHECK(newest(dir) == kNew);
        }
        CHECK(kept_old > 10);
        CHECK(got_new > 0);
    }
}

TEST_CASE("crash: every call of a save fails once; old checkpoints stay, the next save works") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    struct Way {
        Mischief mischief;
        int error_number;
        const char* text;
    };
    const Way ways[] = {{Mischief::kErrno, ENOSPC, "No space left on device"},
                        {Mischief::kErrno, EIO, "Input/output error"},
                        {Mischief::kShort, 0, "No space left on device"}};
    for (const Scene& scene : kScenes) {
        CAPTURE(scene.name);
        const int64_t calls = count_calls(dir, scene);
        for (const Way& way : ways) {
            int64_t failed = 0;
            for (int64_t n = 0; n < calls; ++n) {
                CAPTURE(n);
                prepare(dir, scene);
                bool threw = false;
                {
                    const Armed armed(way.mischief, n, way.error_number);
                    try {
                        do_save(dir, scene.new_step, kNew);
                    } catch (const Error& e) {
                        threw = true;
                        CHECK(e.fault() == Fault::kSystem);
                        CHECK_MESSAGE(e.message().find(way.text) != std::string::npos, e.message());
                        CHECK_MESSAGE(e.message().find(dir.string()) != std::string::npos,
                                      e.message());
                    }
                }
                const uint64_t found = newest(dir);
                const uint64_t old_seed = scene.old_step >= 0 ? kOld : 4;
                if (threw) {
                    ++failed;
                    CHECK((found == old_seed || found == kNew));
                    // whatever failed before the rename leaves no half-written directory behind
                    if (found == old_seed) {
                        for (const auto& e : fs::directory_iterator(dir)) {
                            CHECK(!is_temporary(e.path()));
                        }
                    }
                } else {
                    CHECK(found == kNew);
                }
                CHECK(fs::exists(dir / step_name(4) / kManifestName));
                save_works_again(dir, scene.new_step);
                CHECK(newest(dir) == kNew);
            }
            CHECK(failed >= (way.mischief == Mischief::kErrno ? 12 : 6));
        }
    }
}

TEST_CASE("crash: the order of calls that makes a committed checkpoint durable") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    prepare(dir, kScenes[1]);
    std::vector<Call> calls;
    {
        const Armed armed(Mischief::kNone, -1);
        do_save(dir, 20, kNew);
        calls = Armed::calls();
    }
    const auto made =
        std::find_if(calls.begin(), calls.end(), [](const Call& c) { return c.what == "mkdir"; });
    REQUIRE(made != calls.end());
    const std::string tmp = made->path;
    CHECK(is_temporary(tmp));
    const std::string payload = tmp + "/rank-00000.safetensors", manifest = tmp + "/manifest.json";
    const auto first = [&](const char* what, const std::string& path) {
        for (size_t i = 0; i < calls.size(); ++i) {
            if (calls[i].what == what && calls[i].path == path) return static_cast<int>(i);
        }
        FAIL("no " << what << " of " << path);
        return -1;
    };
    const auto last = [&](const char* what, const std::string& path) {
        for (size_t i = calls.size(); i-- > 0;) {
            if (calls[i].what == what && calls[i].path == path) return static_cast<int>(i);
        }
        FAIL("no " << what << " of " << path);
        return -1;
    };
    CHECK(first("reserve", payload) < first("write", payload));
    CHECK(last("write", payload) < first("fsync", payload));
    CHECK(first("fsync", payload) < first("close", payload));
    CHECK(first("close", payload) < first("open", manifest));
    CHECK(last("write", manifest) < first("fsync", manifest));
    CHECK(first("fsync", manifest) < first("fsync", tmp));
    CHECK(first("fsync", tmp) < first("rename", tmp));
    CHECK(first("rename", tmp) < first("fsync", dir.string()));
    CHECK(first("fsync", dir.string()) < first("write", "stdout"));
}

TEST_CASE("crash: without the exchange call, one of the same step is set aside first") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    const Scene scene{"no exchange", 20, 20, false};
    prepare(dir, scene);
    {
        const Armed armed(Mischief::kNone, -1, 0, false);
        do_save(dir, 20, kNew);
    }
    CHECK(newest(dir) == kNew);
    State old_state(0);
    load(dir / "step-00000020.abandoned-1", old_state.whole());
    CHECK(old_state == State(kOld));
    // the second rename fails: the first is undone
    prepare(dir, scene);
    int64_t second = -1;
    {
        const Armed armed(Mischief::kNone, -1, 0, false);
        do_save(dir, 20, kNew);
        for (size_t i = 0; i < Armed::calls().size(); ++i) {
            if (Armed::calls()[i].what == "rename") second = static_cast<int64_t>(i);
        }
    }
    prepare(dir, scene);
    {
        const Armed armed(Mischief::kErrno, second, EIO, false);
        CHECK_THROWS_AS(do_save(dir, 20, kNew), Error);
    }
    CHECK(newest(dir) == kOld);
    CHECK_FALSE(fs::exists(dir / "step-00000020.abandoned-1"));
}
