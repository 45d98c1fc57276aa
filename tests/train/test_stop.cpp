// SPDX-License-Identifier: MIT
// Signals and the time limit: honoured in every phase within a step, and nothing is lost.
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <doctest/doctest.h>

#include "model/registry.h"
#include "prof/machine.h"
#include "tests/fault/plant.h"
#include "tests/train/rig.h"

using namespace vt;
using namespace vt::test;

namespace {

// Data that tells when it is read and when a checkpoint asks for its fingerprint.
struct Telling final : FakeData {
    using FakeData::FakeData;
    void read(int s, int64_t i, Tensor l, Tensor t) const override {
        if (on_read) on_read();
        FakeData::read(s, i, l, t);
    }
    uint64_t fingerprint() const override {
        if (on_fingerprint) on_fingerprint();
        return FakeData::fingerprint();
    }
    std::function<void()> on_read, on_fingerprint;
};

struct Steps : StepObserver {
    int64_t begun = 0, done = 0;
    void before_step(int64_t step) override { begun = step; }
    void after_step(int64_t step) override { done = step; }
};

RunConfig stopping_config(const fs::path& out) {
    RunConfig c = tiny_config(out);
    c.run.train_iters = 6;
    c.checkpoint.save_interval = 3;
    c.log.eval_interval = 3;
    c.log.eval_samples = 2;
    c.model.num_layers = 1;
    return c;
}

}  // namespace

TEST_CASE("stop: a signal in any phase saves within a step, and the next start loses nothing") {
    const Telling data(10, {{4, 2, 4, 6}});
    const FakeData valid(4, {{4, 2, 4, 6}}, 12);
    const TempDir dir;
    const ParamTable table = [&] {
        const RunConfig c = stopping_config(dir / "x");
        return make_model(c.model, data.facts(), make_precision(c.run.precision, c.model))
            ->params();
    }();
    const RunOutcome whole = train(stopping_config(dir / "whole"), data, 2, &valid);
    REQUIRE(whole.code == 0);
    const auto want = read_state(whole.last, table, 1);

    const bool full = std::getenv("VTRAIN_TEST_FULL") != nullptr;
    const std::vector<int> signals = {SIGTERM, SIGINT, SIGUSR1, SIGHUP};
    std::vector<std::string> phases = {"data", "forward",    "backward",   "optimizer",
                                       "save", "validation", "last update"};
    if (full) phases.insert(phases.end(), {"loss", "average"});
    size_t turn = 0;
    for (const std::string& phase : phases) {
        for (size_t k = 0; k < (full ? signals.size() : 1); ++k) {
            const int signal = signals[turn++ % signals.size()];
            CAPTURE(phase);
            CAPTURE(signal);
            RunConfig c = stopping_config(dir / ("run" + std::to_string(turn)));
            Telling watched(10, {{4, 2, 4, 6}});
            Plant plant(cpu_ops());
            Steps steps;
            int64_t at = -1;  // steps done when it came
            const auto fire = [&] {
                if (at >= 0) return;
                at = steps.done;
                std::raise(signal);
            };
            const bool between = phase == "save" || phase == "validation";
            plant.hook = [&](const std::string& op) {
                if (phase == "last update" && steps.begun == 6 && op == "adamw") fire();
                if (steps.begun != 3) return;
                if (phase == "validation" && steps.done == 3 && op == "attention_fwd") fire();
                if (between || steps.done == 3) return;
                if (phase == "forward" && op == "attention_fwd") fire();
                if (phase == "loss" && op == "flow_loss") fire();
                if (phase == "backward" && op == "attention_bwd") fire();
                if (phase == "optimizer" && op == "adamw") fire();
                if (phase == "average" && op == "ema_update") fire();
            };
            watched.on_read = [&] {
                if (phase == "data" && steps.done >= 1) fire();
            };
            watched.on_fingerprint = [&] {
                if (phase == "save" && steps.done == 3) fire();
            };
            const RunOutcome stopped = train(c, watched, 2, &valid, &steps, &plant);
            REQUIRE(at >= 0);
            const bool end = phase == "last update";
            CHECK(stopped.code == (end ? 0 : kExitRequeue));
            const int64_t saved = read_info(stopped.last).step;
            CHECK(saved == steps.done);
            CHECK(saved <= at + 1);
            if (!end) CHECK(train(c, data, 2, &valid).code == 0);
            const RunOutcome on{.code = 0, .last = *find_latest(c.run.out), .loss = {}, .norm = {}};
            CHECK(differing(want, read_state(on.last, table, 1)).empty());
        }
    }
}

TEST_CASE("stop: the time limit saves and asks for a restart") {
    const FakeData data(10, {{4, 2, 4, 6}});
    const TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.run.train_iters = 1000000;
    c.run.time_limit = 1.0 / 60;
    struct Idle : StepObserver {
        double begin = seconds_now();
        void before_step(int64_t) override {}
        void after_step(int64_t step) override {
            if (step != 3) return;
            while (seconds_now() - begin < 1.05) ::usleep(10000);
        }
    } idle;
    const RunOutcome r = train(c, data, 2, nullptr, &idle);
    CHECK(r.code == kExitRequeue);
    CHECK(seconds_now() - idle.begin >= 1);
    if (r.last.empty()) {  // nothing to save: so busy a machine that no step fitted
        MESSAGE("no step was done within a second");
        return;
    }
    CHECK(read_info(r.last).step <= 3);
    c.run.train_iters = read_info(r.last).step + 2;
    c.run.time_limit = 1000;
    CHECK(train(c, data).code == 0);
}

TEST_CASE("stop: a signal before training began ends at once, one after that is remembered") {
    const auto in_child = [](const auto& body) {
        const pid_t child = ::fork();
        REQUIRE(child >= 0);
        if (child == 0) {
            ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
            body();
            ::_exit(1);
        }
        int status = 0;
        REQUIRE(::waitpid(child, &status, 0) == child);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    };
    for (const int signal : {SIGTERM, SIGINT, SIGUSR1, SIGHUP}) {
        CHECK(in_child([&] {
                  const SignalGuard guard;
                  nothing_to_save(true);
                  ::raise(signal);
              }) == kExitRequeue);
        CHECK(in_child([&] {
                  const SignalGuard guard;
                  nothing_to_save(true);
                  nothing_to_save(false);
                  ::raise(signal);
                  ::_exit(stop_signal() == signal ? 7 : 8);
              }) == 7);
    }
}
