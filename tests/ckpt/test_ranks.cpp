// SPDX-License-Identifier: MIT
// Several ranks save and load together; what fails on one ends the attempt on all.
#include <algorithm>
#include <atomic>
#include <cerrno>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "comm/agree.h"
#include "comm/threads.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;
using test::Armed;
using test::Mischief;
using test::State;

namespace {

CheckpointInfo at_step(int64_t step) {
    CheckpointInfo i;
    i.step = step;
    return i;
}

std::vector<StateTensor> shares(State& s, const Group& world) {
    auto states = s.whole();
    for (StateTensor& t : states) t = share_of(t, world.rank(), world.size());
    return states;
}

}  // namespace

TEST_CASE("ranks: what 4 save, 1, 3 and 7 load, bit for bit") {
    const test::TempDir dir;
    State saved(9);
    run_ranks(4, [&](Group& world) {
        const Armed quiet(Mischief::kNone, -1);
        save(dir.path(), at_step(3), shares(saved, world), world);
    });
    const fs::path at = dir / "step-00000003";
    CHECK(find_latest(dir.path()) == at);
    CHECK_NOTHROW(verify(at));
    CHECK(fs::exists(at / "rank-00003.safetensors"));
    for (const int ranks : {1, 3, 7}) {
        State got(0);
        std::atomic<int> steps{0};
        run_ranks(ranks, [&](Group& world) {
            const auto loaded = load_latest(dir.path(), shares(got, world), world, {});
            if (loaded) steps += static_cast<int>(loaded->info.step);
        });
        CHECK(got == saved);
        CHECK(steps == 3 * ranks);
    }
}

TEST_CASE("ranks: a failing call on any rank fails the save on all, naming the rank") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    State old_state(8), saved(9), got(0);
    for (int culprit = 0; culprit < 3; ++culprit) {
        for (const int64_t n : {0, 2, 5, 8}) {
            CAPTURE(culprit);
            CAPTURE(n);
            fs::remove_all(dir);
            run_ranks(3, [&](Group& world) {
                const Armed quiet(Mischief::kNone, -1);
                save(dir, at_step(3), shares(old_state, world), world);
            });
            std::array<std::string, 3> said;
            run_ranks(3, [&](Group& world) {
                const auto r = static_cast<size_t>(world.rank());
                const bool bad = world.rank() == culprit;
                const Armed armed(bad ? Mischief::kErrno : Mischief::kNone, n, ENOSPC);
                try {
                    save(dir, at_step(4), shares(saved, world), world);
                } catch (const Error& e) {
                    said.at(r) = e.message();
                    if (e.fault() != Fault::kSystem) said.at(r) = "wrong fault";
                }
            });
            for (int r = 0; r < 3; ++r) {
                const std::string& text = said.at(static_cast<size_t>(r));
                CHECK_MESSAGE(text.find("No space left") != std::string::npos, text);
                const bool names = text.find(fmt::format("rank {} could not", culprit)) == 0;
                CHECK(names == (r != culprit));
            }
            CHECK(find_latest(dir) == dir / "step-00000003");
            CHECK(std::distance(fs::directory_iterator(dir), fs::directory_iterator()) == 1);
            run_ranks(3, [&](Group& world) {  // room again
                const Armed quiet(Mischief::kNone, -1);
                save(dir, at_step(4), shares(saved, world), world);
                (void)load_latest(dir, shares(got, world), world, {});
            });
            CHECK(got == saved);
        }
    }
}

TEST_CASE("ranks: damage that one rank meets sends all to the checkpoint before") {
    const test::TempDir dir;
    State old_state(8), saved(9), got(0);
    run_ranks(3, [&](Group& world) {
        const Armed quiet(Mischief::kNone, -1);
        save(dir.path(), at_step(3), shares(old_state, world), world);
        save(dir.path(), at_step(4), shares(saved, world), world);
    });
    const fs::path shard = dir / "step-00000004" / "rank-00002.safetensors";
    std::string bytes = read_file(shard);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_atomic(shard, bytes);
    std::atomic<int> steps{0};
    run_ranks(3, [&](Group& world) {
        steps += static_cast<int>(
            load_latest(dir.path(), shares(got, world), world, {}).value().info.step);
    });
    CHECK(steps == 9);
    CHECK(got == old_state);
}

TEST_CASE("ranks: parts that do not tile, and refusals, are one error everywhere") {
    const test::TempDir dir;
    State s(9);
    std::atomic<int> bugs{0}, refused{0};
    run_ranks(3, [&](Group& world) {
        auto states = shares(s, world);
        if (world.rank() == 1) states.pop_back();
        if (world.rank() == 2) states[0] = share_of(s.whole()[0], 1, 3);  // twice the second third
        try {
            save(dir.path(), at_step(3), states, world);
        } catch (const Error& e) {
            if (e.fault() == Fault::kBug && e.message().find("to_q") != std::string::npos) ++bugs;
        }
    });
    CHECK(bugs == 3);
    CHECK(fs::is_empty(dir.path()));
    run_ranks(3, [&](Group& world) {
        const Armed quiet(Mischief::kNone, -1);
        save(dir.path(), at_step(3), shares(s, world), world);
        try {
            (void)load_latest(dir.path(), shares(s, world), world, [&](const CheckpointInfo&) {
                if (world.rank() == 2) raise(Fault::kUser, "another model");
            });
        } catch (const Error& e) {
            if (e.fault() == Fault::kUser) ++refused;
        }
    });
    CHECK(refused == 3);
}
