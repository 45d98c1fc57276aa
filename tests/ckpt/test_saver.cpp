// SPDX-License-Identifier: MIT
// Saves beside training: what they write, when they count, and what becomes of those that fail.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <set>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/saver.h"
#include "comm/threads.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;
using namespace std::chrono_literals;
using doctest::Contains;
using test::Armed;
using test::Mischief;
using test::MovedClock;
using test::State;
using test::Who;

namespace {

CheckpointInfo at_step(int64_t step) {
    CheckpointInfo i;
    i.step = step;
    i.run_id = "run-a";
    return i;
}

// A training state and the Saver of its run.
struct Run {
    State state;
    Pool pool{1};
    std::unique_ptr<Group> world = self_group();
    CheckpointOptions options;
    Saver saver;

    Run(const fs::path& dir, uint64_t seed, const CheckpointOptions& o, bool beside = true)
        : state(seed), options(o), saver(dir, options, *world) {
        if (!beside) return;
        saver.declare(state.whole());
        saver.reserve();
        saver.declare(state.whole());
    }
    void save(int64_t step) { saver.save(at_step(step), state.whole(), pool); }
    void save_last(int64_t step) { saver.save_last(at_step(step), state.whole()); }
};

CheckpointOptions options(int64_t keep_last = 2) {
    CheckpointOptions o;
    o.keep_last = keep_last;
    return o;
}

// Another state of the same tensors, in place, as a training step leaves it.
void train_on(State& state, uint64_t seed) {
    const State next(seed);
    for (size_t i = 0; i < state.items.size(); ++i) {
        std::copy(next.items[i].bytes.begin(), next.items[i].bytes.end(),
                  state.items[i].bytes.begin());
    }
}

bool holds(const fs::path& at, uint64_t seed) {
    verify(at);
    State got(0);
    load(at, got.whole());
    return got == State(seed);
}

std::set<std::string> names(const fs::path& dir) {
    std::set<std::string> out;
    for (const auto& e : fs::directory_iterator(dir)) out.insert(e.path().filename().string());
    return out;
}

void quiet_save(const fs::path& dir, int64_t step, uint64_t seed) {
    State s(seed);
    const Armed quiet(Mischief::kNone, -1);
    save(dir, at_step(step), s.whole(), *self_group());
}

void await(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + 20s;
    while (!condition()) {
        REQUIRE(std::chrono::steady_clock::now() < end);
        std::this_thread::sleep_for(1ms);
    }
}

}  // namespace

TEST_CASE("saver: a save beside training holds the state of its step, whatever came after") {
    const test::TempDir dir;
    Run run(dir.path(), 1, options());
    const Armed stalled(Mischief::kStall, 3, 0, true, Who::kEveryThread);
    run.save(10);
    await([] { return Armed::reached(); });
    train_on(run.state, 2);
    run.saver.poll();
    CHECK(run.saver.committed_step() == -1);  // queued is not committed
    CHECK(find_latest(dir.path()) == std::nullopt);
    Armed::release();
    run.saver.drain();
    CHECK(run.saver.committed_step() == 10);
    CHECK(holds(dir / "step-00000010", 1));
    CHECK(read_info(dir / "step-00000010").extra.count("saved_at") == 1);
    run.save_last(11);
    CHECK(holds(dir / "step-00000011", 2));
    run.save_last(11);  // there already
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000010", "step-00000011"});
}

TEST_CASE("saver: one save at a time; the later one waits and both are there") {
    const test::TempDir dir;
    Run run(dir.path(), 1, options());
    const Armed stalled(Mischief::kStall, 3, 0, true, Who::kEveryThread);
    run.save(10);
    await([] { return Armed::reached(); });
    train_on(run.state, 2);
    std::thread disk([] {
        std::this_thread::sleep_for(50ms);
        Armed::release();
    });
    run.save(20);
    disk.join();
    CHECK(run.saver.committed_step() == 10);
    run.saver.drain();
    CHECK(holds(dir / "step-00000010", 1));
    CHECK(holds(dir / "step-00000020", 2));
}

TEST_CASE("saver: the process ends at every call of a save beside training and of its pruning") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    const auto prepare = [&] {
        fs::remove_all(dir);
        quiet_save(dir, 4, 4);
        quiet_save(dir, 8, 8);
    };
    const auto train = [&] {
        Run run(dir, 12, options());
        run.saver.adopt(at_step(8));
        run.save(12);
        train_on(run.state, 13);
        run.saver.drain();
    };
    prepare();
    int64_t calls = 0;
    {
        const Armed counted(Mischief::kNone, -1, 0, true, Who::kEveryThread);
        train();
        calls = std::ssize(Armed::calls());
    }
    CHECK(names(dir) == std::set<std::string>{"step-00000008", "step-00000012"});
    int old = 0, pruned = 0;
    for (int64_t n = 0; n < calls; ++n) {
        CAPTURE(n);
        prepare();
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            const Armed armed(Mischief::kExit, n, 0, true, Who::kEveryThread);
            train();
            ::_exit(0);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        REQUIRE(WIFEXITED(status));
        const bool said = WEXITSTATUS(status) == test::kExitSaid;
        REQUIRE((said || WEXITSTATUS(status) == test::kExitQuiet));
        const fs::path latest = find_latest(dir).value();
        if (latest.filename() == "step-00000012") {
            CHECK(holds(latest, 12));
        } else {
            CHECK_FALSE(said);
            CHECK(holds(latest, 8));
            ++old;
        }
        int whole = 0;
        for (const StepDir& d : step_dirs(dir)) {
            verify(d.path);
            ++whole;
        }
        CHECK(whole >= 2);
        pruned += said && whole == 2 ? 1 : 0;
        const Armed quiet(Mischief::kNone, -1, 0, true, Who::kEveryThread);
        clean_stale(dir);
        train();
        std::set<std::string> want = {"step-00000008", "step-00000012"};
        if (latest.filename() == "step-00000012") want.insert("step-00000012.abandoned-1");
        CHECK(names(dir) == want);
    }
    CHECK(old > 10);
    CHECK(pruned > 3);
}

TEST_CASE("saver: every call fails once; the run goes on and the next save works") {
    const test::TempDir temp;
    const fs::path dir = temp / "run";
    struct Way {
        Mischief mischief;
        int error_number;
    };
    const Way ways[] = {{Mischief::kErrno, ENOSPC},
                        {Mischief::kErrno, EIO},
                        {Mischief::kErrno, EDQUOT},
                        {Mischief::kErrno, EINTR},
                        {Mischief::kShort, 0}};
    for (const Way& way : ways) {
        CAPTURE(way.error_number);
        int64_t calls = 1, failed = 0;
        for (int64_t n = 0; n < calls; ++n) {
            CAPTURE(n);
            fs::remove_all(dir);
            quiet_save(dir, 4, 4);
            quiet_save(dir, 8, 8);
            Run run(dir, 12, options());
            run.saver.adopt(at_step(8));
            std::string what;
            {
                const Armed armed(way.mischief, n, way.error_number, true, Who::kEveryThread);
                run.save(12);
                train_on(run.state, 13);
                await([&] {
                    run.saver.poll();  // raises nothing: on_failure = "continue"
                    return run.saver.committed_step() == 12 || run.saver.failures() == 1;
                });
                const auto all = Armed::calls();
                calls = std::max<int64_t>(calls, std::ssize(all));
                what = all[std::min<size_t>(static_cast<size_t>(n), all.size() - 1)].what;
            }
            CAPTURE(what);
            const bool ok = run.saver.committed_step() == 12;
            failed += ok ? 0 : 1;
            // what was interrupted is tried again where that is right
            if (way.error_number == EINTR) {
                CHECK((ok || (what != "write" && what != "reserve" && what != "close")));
            }
            CHECK(holds(find_latest(dir).value(), ok || fs::exists(dir / step_name(12)) ? 12 : 8));
            CHECK(holds(dir / step_name(8), 8));
            const Armed quiet(Mischief::kNone, -1, 0, true, Who::kEveryThread);
            run.save(16);
            run.saver.drain();
            CHECK(run.saver.failures() == 0);
            CHECK(holds(dir / step_name(16), 13));
        }
        CHECK(calls > 25);
        CHECK(failed >= (way.mischief == Mischief::kShort ? 3 : 5));
    }
}

TEST_CASE("saver: failures in a row are spaced out and end the run; a success forgives them") {
    const test::TempDir dir;
    CheckpointOptions o = options();
    o.max_failures = 4;
    for (const bool beside : {true, false}) {
        Run run(dir.path(), 1, o, beside);
        std::vector<int64_t> tried;
        std::string said;
        const auto interval = [&](int64_t step) {
            const int64_t before = run.saver.failures();
            run.save(step);
            for (int i = 0; run.saver.failures() == before && i < 200; ++i) {
                run.saver.poll();
                std::this_thread::sleep_for(1ms);
                if (run.saver.committed_step() == step) return;
            }
            if (run.saver.failures() != before) tried.push_back(step);
        };
        {
            const Armed full(Mischief::kAlways, 0, ENOSPC, true, Who::kEveryThread);
            for (int64_t step = 1; step <= 4; ++step) interval(step);
        }
        CHECK(tried == std::vector<int64_t>{1, 2, 4});  // 0, 1, then 3 intervals left out
        {
            const Armed room(Mischief::kNone, -1, 0, true, Who::kEveryThread);
            for (int64_t step = 5; step <= 8; ++step) interval(step);
        }
        CHECK(run.saver.committed_step() == 8);
        CHECK(run.saver.failures() == 0);
        int64_t step = 9;
        try {
            const Armed full(Mischief::kAlways, 0, ENOSPC, true, Who::kEveryThread);
            for (; step < 100; ++step) interval(step);
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kSystem);
            said = e.message();
        }
        CHECK(step == 16);  // 9, 10, 12 and 16
        CHECK(said.find("4 saves in a row failed") == 0);
        CHECK(said.find("No space left on device") != std::string::npos);
        CHECK(said.find(dir.path().string()) != std::string::npos);
        CHECK(find_latest(dir.path()) == dir / "step-00000008");
    }
}

TEST_CASE("saver: on_failure = stop ends the run at the next step boundary") {
    const test::TempDir dir;
    CheckpointOptions o = options();
    o.on_failure = "stop";
    Run run(dir.path(), 1, o);
    const Armed full(Mischief::kErrno, 5, EIO, true, Who::kEveryThread);
    run.save(3);
    const auto until_it_is_known = [&] {
        await([&] {
            run.saver.poll();
            return false;
        });
    };
    CHECK_THROWS_WITH_AS(until_it_is_known(), Contains("the save of step 3 failed: cannot"), Error);
    CHECK(fs::is_empty(dir.path()));
}

TEST_CASE("saver: the last save is tried twice, then it is an error that says what is lost") {
    const test::TempDir dir;
    for (const bool beside : {true, false}) {
        Run run(dir.path(), 1, options(), beside);
        {
            const Armed once(Mischief::kErrno, 5, EIO, true, Who::kEveryThread);
            run.save_last(10);
        }
        CHECK(holds(dir / "step-00000010", 1));
        const Armed full(Mischief::kAlways, 4, ENOSPC, true, Who::kEveryThread);
        CHECK_THROWS_WITH_AS(run.save_last(20),
                             Contains("what was trained after step 10 is lost: cannot"), Error);
    }
    {
        // a disk on which nothing can be changed keeps the temporary ones until the next start
        const Armed quiet(Mischief::kNone, -1);
        CHECK(names(dir.path()).size() == 4);
        clean_stale(dir.path());
    }
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000010", "step-00000010.abandoned-1"});
    Run run(dir / "new", 1, options());
    const Armed full(Mischief::kAlways, 0, ENOSPC, true, Who::kEveryThread);
    CHECK_THROWS_WITH_AS(run.save_last(20), Contains("nothing of this run is saved"), Error);
}

TEST_CASE("saver: a stuck save is given up at its deadline and can publish nothing later") {
    const test::TempDir dir;
    CheckpointOptions o = options();
    o.deadline_s = 0.05;
    o.max_failures = 100;
    Run run(dir.path(), 1, o);
    int64_t sync = -1;
    {
        const Armed counted(Mischief::kNone, -1, 0, true, Who::kEveryThread);
        run.save_last(1);
        const auto calls = Armed::calls();
        for (size_t i = 0; i < calls.size() && sync < 0; ++i) {
            if (calls[i].what == "fsync") sync = static_cast<int64_t>(i);
        }
    }
    {
        const Armed stalled(Mischief::kStall, sync, 0, true, Who::kEveryThread);
        run.save(10);
        await([] { return Armed::reached(); });
        await([&] {
            run.saver.poll();
            return run.saver.failures() == 1;
        });
        train_on(run.state, 2);
        run.save(11);  // the snapshot is still in the hands of the stuck call
        CHECK(run.saver.failures() == 2);
        // a save that needs no snapshot goes past it, even one of the same step
        run.save_last(10);
        CHECK(run.saver.committed_step() == 10);
        CHECK(holds(dir / "step-00000010", 2));
        CHECK(names(dir.path()).size() == 3);  // and the temporary one of the stuck save
        Armed::release();
        await([&] { return names(dir.path()).size() == 2; });
    }
    CHECK(holds(dir / "step-00000010", 2));
    CHECK(holds(dir / "step-00000001", 1));
    const Armed quiet(Mischief::kNone, -1, 0, true, Who::kEveryThread);
    await([&] {
        run.save(20);
        run.saver.drain();
        return run.saver.committed_step() == 20;
    });
    CHECK(holds(dir / "step-00000020", 2));
}

TEST_CASE("saver: an attempt that was given up never publishes, at whichever call it wakes up") {
    const test::TempDir dir;
    State state(1);
    int64_t calls = 0, published = 0;
    {
        const Armed counted(Mischief::kNone, -1);
        save(dir.path(), at_step(5), state.whole(), *self_group());
        calls = std::ssize(Armed::calls());
    }
    for (int64_t n = 0; n < calls; ++n) {
        CAPTURE(n);
        fs::remove_all(dir.path());
        SaveAttempt attempt;
        bool given_up = false, threw = false;
        {
            const Armed stalled(Mischief::kStall, n, 0, true, Who::kEveryThread);
            std::thread writer([&] {
                try {
                    save(dir.path(), at_step(5), state.whole(), *self_group(), attempt);
                } catch (const Error& e) {
                    threw = e.fault() == Fault::kSystem &&
                            e.message().find("given up") != std::string::npos;
                }
            });
            await([] { return Armed::reached(); });
            given_up = attempt.abandon();
            Armed::release();
            writer.join();
        }
        CHECK(given_up == threw);
        CHECK(given_up != fs::exists(dir / "step-00000005"));
        if (given_up) CHECK(fs::is_empty(dir.path()));
        published += given_up ? 0 : 1;
    }
    CHECK(published >= 3);  // the rename, the parent's sync, the line that says so
    CHECK(published <= 6);
}

TEST_CASE("saver: an exception elsewhere lets the save under way end") {
    const test::TempDir dir;
    const Armed quiet(Mischief::kNone, -1, 0, true, Who::kEveryThread);
    try {
        Run run(dir.path(), 1, options());
        run.save(10);
        train_on(run.state, 2);
        raise(Fault::kData, "a bad sample");
    } catch (const Error& e) {
        CHECK(e.message() == "a bad sample");
    }
    CHECK(holds(dir / "step-00000010", 1));
}

TEST_CASE("saver: the newest ones and every k-th stay; two verified ones whatever happens") {
    const test::TempDir dir;
    CheckpointOptions o = options(2);
    o.keep_every = 30;
    Run run(dir.path(), 1, o);
    const Armed quiet(Mischief::kNone, -1, 0, true, Who::kEveryThread);
    for (int64_t step = 10; step <= 80; step += 10) {
        run.save(step);
        run.saver.drain();
    }
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000030", "step-00000060",
                                                     "step-00000070", "step-00000080"});
    // Damaged since: it no longer counts, and what stands in for it stays.
    const auto damage = [&](int64_t step) {
        const fs::path shard = dir / step_name(step) / "rank-00000.safetensors";
        std::string bytes = read_file(shard);
        bytes.back() = static_cast<char>(bytes.back() ^ 1);
        write_atomic(shard, bytes);
    };
    damage(80);
    Run second(dir.path(), 1, options(2));  // another process: nothing is known to be whole
    second.save(90);
    second.saver.drain();
    CHECK(names(dir.path()) ==
          std::set<std::string>{"step-00000070", "step-00000080", "step-00000090"});
    damage(90);
    damage(70);
    std::set<int64_t> nothing_known;
    CHECK(prune(dir.path(), {.keep_last = 2}, "run-a", nothing_known, -1).empty());
    CHECK(names(dir.path()).size() == 3);
}

TEST_CASE("saver: a file size limit is an error like a full disk") {
    const test::TempDir dir;
    quiet_save(dir.path(), 4, 4);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const rlimit limit{1000, 1000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        ::signal(SIGXFSZ, SIG_IGN);  // as a SignalGuard does
        Run run(dir.path(), 8, options());
        try {
            run.save_last(8);
        } catch (const Error& e) {
            ::_exit(e.fault() == Fault::kSystem &&
                            e.message().find("File too large") != std::string::npos
                        ? 7
                        : 8);
        }
        ::_exit(9);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WEXITSTATUS(status) == 7);
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000004"});
}

TEST_CASE("saver: neither the wall clock nor time stamps decide anything") {
    const test::TempDir dir;
    CheckpointOptions o = options(2);
    o.deadline_s = 1000;
    Run run(dir.path(), 1, o);
    const Armed stalled(Mischief::kStall, 40, 0, true, Who::kEveryThread);
    const int64_t year_2038 = (int64_t{1} << 31) - std::time(nullptr);
    const std::vector<int64_t> jumps = {86400, -86400, year_2038 - 5, year_2038 + 5,
                                        -1'500'000'000};
    int64_t step = 10;
    for (const int64_t jump : jumps) {
        const MovedClock moved(jump);
        // The shim is seen by both; time() reads a coarser clock, a tick behind at a second's turn.
        CHECK(std::abs(std::chrono::system_clock::to_time_t(std::chrono::system_clock::now()) -
                       std::time(nullptr)) <= 1);
        run.save(step);
        // time stamps that say the opposite of the step numbers
        for (const StepDir& d : step_dirs(dir.path())) {
            std::error_code ignored;  // it may be pruned meanwhile
            fs::last_write_time(d.path / kManifestName,
                                fs::file_time_type::clock::now() - std::chrono::hours(d.step * 24),
                                ignored);
        }
        run.saver.poll();
        if (step == 20) {  // a save under way while the clock jumps
            await([] { return Armed::reached() || std::ssize(Armed::calls()) < 40; });
            const MovedClock further(1'000'000);
            run.saver.poll();
            CHECK(run.saver.failures() == 0);
            Armed::release();
        }
        run.saver.drain();
        CHECK(run.saver.committed_step() == step);
        CHECK(find_latest(dir.path()) == dir / step_name(step));
        step += 10;
    }
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000040", "step-00000050"});
    CHECK(read_info(dir / "step-00000040").extra.at("saved_at") > "2038-01-19T03:14");
}

TEST_CASE("saver: several ranks save in step with each other and agree on failures") {
    const test::TempDir dir;
    State state(1);
    run_ranks(3, [&](Group& world) {
        Pool pool(1);
        CheckpointOptions o = options();
        o.max_failures = 2;
        Saver saver(dir.path(), o, world);
        auto states = state.whole();
        for (StateTensor& t : states) t = share_of(t, world.rank(), world.size());
        saver.declare(states);
        CHECK_FALSE(saver.beside());
        {
            const Armed quiet(Mischief::kNone, -1);
            for (const int64_t step : {10, 20, 30}) saver.save(at_step(step), states, pool);
        }
        CHECK(saver.committed_step() == 30);
        const bool bad = world.rank() == 1;
        const auto failing = [&] {
            return std::make_unique<Armed>(bad ? Mischief::kAlways : Mischief::kNone, 0, ENOSPC);
        };
        {
            const auto armed = failing();
            saver.save(at_step(40), states, pool);
        }
        CHECK(saver.failures() == 1);
        const auto armed = failing();
        CHECK_THROWS_WITH_AS(saver.save(at_step(50), states, pool), Contains("2 saves in a row"),
                             Error);
        CHECK_THROWS_WITH_AS(saver.save_last(at_step(50), states), Contains("THE LAST SAVE FAILED"),
                             Error);
    });
    CHECK(names(dir.path()) == std::set<std::string>{"step-00000020", "step-00000030"});
    CHECK(holds(dir / "step-00000030", 1));
}
