// SPDX-License-Identifier: MIT
// The whole program on a file server that dies: it says so, and a signal still saves and ends it,
// though threads are stuck in reads that never come back.
#include <chrono>

#include <doctest/doctest.h>

#include "core/file.h"
#include "tests/e2e/job.h"

using namespace vt;
using namespace vt::test;

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which must be loaded first
TEST_CASE("program: a signal during a stall of the file system saves and ends with 75") {
    const Job job;
    REQUIRE(job.train("warm", "--set run.train_iters=3 --set log.eval_interval=0").code == 0);
    const std::string log = (job.dir / "log").string();
    const auto start = std::chrono::steady_clock::now();
    // 12 clips: a sample takes two reads, so 60 reads are 30 samples, some seven steps
    const std::string script = fmt::format(
        "LD_PRELOAD={} VT_STALL_FILE=.h5 VT_STALL_AFTER=60 {} --config {} --set run.out={} "
        "--set log.eval_interval=0 --set checkpoint.save_interval=1000 --set data.stall_warn_s=0.3 "
        "> {} 2>&1 & pid=$!; "
        "for i in $(seq 200); do grep -q 'has waited' {} && break; sleep 0.1; done; "
        "kill -TERM $pid; wait $pid; code=$?; cat {}; exit $code",
        stall_library().string(), program().string(), job.config.string(),
        (job.dir / "run").string(), log, log, log);
    const std::string file = (job.dir / "stall.sh").string();
    std::ofstream(file) << script;
    const Ran ran = run("sh " + file);
    INFO(ran.output);
    CHECK(ran.code == 75);
    CHECK(ran.output.find("for the file system to read ") != std::string::npos);
    CHECK(ran.output.find("stopping on signal 15, saved at step ") != std::string::npos);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(60));
    // the server is back
    const Ran again = job.train("run", "--set log.eval_interval=0 --set run.train_iters=9");
    INFO(again.output);
    CHECK(again.code == 0);
    CHECK(again.output.find("resumed from ") != std::string::npos);
}
#endif

TEST_CASE("program: what is wrong behind a data key names its line") {
    const Job job;
    const auto mistake = [&](const std::string& more) {
        const Ran ran = job.train("bad", "--dry-run " + more);
        return fmt::format("{} {}", ran.code, ran.output);
    };
    const auto has = [](const std::string& text, const std::string& part) {
        INFO(text);
        return text.find(part) != std::string::npos;
    };
    CHECK(has(mistake("--set 'data.train=[\"nothing/*.h5\"]'"),
              "--set data.train: data.train: no file matches '"));
    std::string text = read_file(job.config);
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string other = text;
        other.replace(other.find(from), from.size(), to);
        std::ofstream(job.dir / "other.toml") << other;
        const Ran ran = Job::vtrain("--dry-run --config " + (job.dir / "other.toml").string());
        return fmt::format("{} {}", ran.code, ran.output);
    };
    CHECK(has(with("data/*.h5", "data/none*.h5"), "other.toml:10: data.train: no file matches '"));
    CHECK(has(with("data/valid/*.h5", "gone/*.h5"), "other.toml:11: data.valid: no file matches"));
    // the validation set in the training set, and the same file twice
    std::string out = with("[\"data/valid/*.h5\"]", "[\"data/*.h5\"]");
    CHECK(has(out, "12 of 12 validation samples are training samples too"));
    out = with("[\"data/*.h5\"]", "[\"data/*.h5\", { path = \"data/*.h5\", weight = 1e-9 }]");
    CHECK(has(out, "is named twice: by '"));
    CHECK(has(out, "is never drawn: its weight 1e-09 is 1e-09 of 1"));
    // validation clips of another encoding
    const Ran made = Job::vtrain(fmt::format(
        "data synth --out {} --count 2 --valid 0 --size 16x16 --frames 5 --temporal-levels 1 "
        "--spatial-levels 2 --text-dim 24 --text-len 8 --seed 3",
        (job.dir / "other").string()));
    REQUIRE(made.code == 0);
    out = with("data/valid/*.h5", "other/*.h5");
    CHECK(has(out, "3 "));
    CHECK(has(out, "other.toml:11: data.valid: "));
    CHECK(has(out, " disagree on "));
}
