// SPDX-License-Identifier: MIT
// The last line of the program says whose matter its end is, whatever ended it.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <thread>

#include "app/ending.h"
#include "ckpt/load.h"
#include "tests/e2e/job.h"
#include "tests/support/child.h"

using namespace vt;
using namespace vt::test;

namespace {

std::string last_line(std::string text) {
    while (!text.empty() && text.back() == '\n') text.pop_back();
    const size_t at = text.rfind('\n');
    return at == std::string::npos ? text : text.substr(at + 1);
}

// "vtrain: ended: <kind>...; exit <code>; restart helps: <helps>"
void check_ending(const Ran& r, const std::string& kind, int code, const std::string& helps) {
    INFO(r.output);
    CHECK(r.code == code);
    const std::string line = last_line(r.output);
    CHECK(line.rfind("vtrain: ended: " + kind, 0) == 0);
    CHECK(line.find(fmt::format("; exit {}; restart helps: {}", code, helps)) != std::string::npos);
}

// What is there under a checkpoint's name is whole.
void no_half_commit(const fs::path& out) {
    if (!fs::exists(out)) return;
    if (const auto latest = find_latest(out)) verify(*latest);
}

}  // namespace

TEST_CASE("ending: one line, whatever the message") {
    CHECK(ending_line("data", "a\nb", 3) == "vtrain: ended: data: a; b; exit 3; restart helps: no");
    CHECK(ending_line("done", "", 0) == "vtrain: ended: done; exit 0; restart helps: no");
    CHECK(ending_line("system", "x", 4) == "vtrain: ended: system: x; exit 4; restart helps: yes");
    CHECK(ending_line("requeue", "x", 75) ==
          "vtrain: ended: requeue: x; exit 75; restart helps: yes");
}

TEST_CASE("program: the last line says numerical, data, system, configuration or done") {
    const Job job;
    const std::string out = (job.dir / "run").string();
    check_ending(job.train("run", "--set run.train_iters=6"), "done", 0, "no");
    check_ending(job.train("run", "--set run.sed=2"), "configuration", 2, "no");
    check_ending(Job::vtrain("train --nonsense"), "configuration", 2, "no");
    check_ending(job.train("timed", "--set run.train_iters=100000 --set run.time_limit=0.01"),
                 "requeue: run.time_limit, ", 75, "yes");

    // a learning rate no model survives
    const Ran wild = job.train("wild",
                               "--set run.train_iters=200 --set optim.lr=1e30 --set "
                               "optim.clip_grad=0 --set checkpoint.save_interval=1");
    check_ending(wild, "numerical", 6, "no");
    CHECK(wild.output.find("samples, worst first: ") != std::string::npos);
    CHECK(wild.output.find("hint: ") != std::string::npos);
    no_half_commit(job.dir / "wild");

    // a full disk, as far as a process can see one
    const Ran full =
        run(fmt::format("ulimit -f 100; exec {} --config {} --set run.out={}", program().string(),
                        job.config.string(), (job.dir / "full").string()));
    check_ending(full, "system", 4, "yes");
    no_half_commit(job.dir / "full");

    // checkpoints that are all damaged
    for (const auto& e : fs::directory_iterator(out)) {
        if (fs::exists(e.path() / "manifest.json")) fs::resize_file(e.path() / "manifest.json", 10);
    }
    check_ending(job.train("run", "--set run.train_iters=8"), "data", 3, "no");
}

TEST_CASE("program: answers that cannot be written, and places where no file can be") {
    const Job job;
    REQUIRE(job.train("run", "--set run.train_iters=6").code == 0);
    const std::string dir = (job.dir / "run").string();
    for (const std::string& command :
         {"ckpt ls " + dir, "config show --config " + job.config.string(), std::string("--help"),
          "data info " + job.data.string()}) {
        CAPTURE(command);
        const Ran r = run("(" + program().string() + " " + command + " 2>&1 > /dev/full)");
        check_ending(r, "system: the output could not be written", 4, "yes");
    }
    const std::string nowhere = (job.dir / "no" / "x.png").string();
    for (const std::string& command :
         {"plot " + dir, "report " + dir,
          "data timesteps --samples 16 --config " + job.config.string()}) {
        CAPTURE(command);
        check_ending(Job::vtrain(command + " --out " + nowhere), "configuration: " + nowhere, 2,
                     "no");
        check_ending(Job::vtrain(command + " --out " + dir), "configuration: " + dir, 2, "no");
        CHECK_FALSE(fs::exists(nowhere));
    }
    check_ending(Job::vtrain(fmt::format("report {} --out {}", job.data.string(),
                                         (job.dir / "r.html").string())),
                 "configuration: " + job.data.string() + " is no run", 2, "no");
    CHECK_FALSE(fs::exists(job.dir / "r.html"));
    fs::create_directory(job.dir / "step-00000009");
    check_ending(Job::vtrain("ckpt verify " + (job.dir / "step-00000009").string()), "data", 3,
                 "no");
}

TEST_CASE("program: a run larger than the machine is refused before it begins") {
    const Job job;
    const std::string huge = "--set model.ffn_dim=1048576 --set model.num_layers=1024";
    check_ending(job.train("huge", huge), "configuration: the run declares", 2, "no");
    CHECK_FALSE(fs::exists(job.dir / "huge" / "metrics.jsonl"));
    const Ran dry = job.train("huge", huge + " --dry-run");  // still shows the plan
    CHECK(dry.code == 0);
    CHECK(dry.output.find("warning: the run declares") != std::string::npos);
}

TEST_CASE("program: too little memory is a clean end, never half a checkpoint") {
    const Job job;
    const bool full = std::getenv("VTRAIN_TEST_FULL") != nullptr;
    int refused = 0, done = 0;
    const int n = full ? 20 : 4;
    for (int i = 0; i < n; ++i) {
        // from what the program itself needs to plenty
        const auto kib = static_cast<int64_t>(300'000 * std::pow(6.0, double(i) / (n - 1)));
        const std::string out = fmt::format("memory{}", i);
        const Ran r = run(fmt::format(
            "ulimit -v {}; exec {} --config {} --set run.out={} --set run.train_iters=3 --set "
            "run.threads=2 --set model.num_attention_heads=6 --set model.attention_head_dim=64 "
            "--set model.ffn_dim=1536 --set model.num_layers=4 --set log.eval_interval=0",
            kib, program().string(), job.config.string(), (job.dir / out).string()));
        CAPTURE(kib);
        if (r.code == 0) {
            ++done;
            check_ending(r, "done", 0, "no");
        } else {
            ++refused;
            check_ending(r, "system", 4, "yes");
        }
        no_half_commit(job.dir / out);
    }
    CHECK(refused >= 1);
    CHECK(done >= 1);
}

TEST_CASE("program: a signal while it starts ends with 75") {
    const Job job;
    for (int i = 0; i < 6; ++i) {
        const std::string log = job.dir / fmt::format("log{}", i);
        Child child({program().string(), "--config", job.config.string(), "--set",
                     "run.out=" + (job.dir / fmt::format("start{}", i)).string(), "--set",
                     "run.train_iters=1000000"},
                    log);
        std::this_thread::sleep_for(std::chrono::milliseconds(30 + 40 * i));
        child.kill(SIGTERM);
        const int code = child.wait();
        CAPTURE(i);
        // before the program has read its configuration the system's own rule holds
        CHECK((code == 75 || code == 128 + SIGTERM));
        if (code == 75) check_ending({code, read_file(log)}, "requeue: ", 75, "yes");
        no_half_commit(job.dir / fmt::format("start{}", i));
    }
}
