// SPDX-License-Identifier: MIT
// What a run does when its checkpoints cannot be written: a file size limit stands for a full disk.
#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "tests/e2e/job.h"

using namespace vt;
using namespace vt::test;

TEST_CASE("saves that fail: the run goes on for a while, says so, and ends with 4") {
    const Job job;
    const std::string out = (job.dir / "run").string();
    // 200 KiB a file (blocks of 512 bytes): enough for the logs, too little for a checkpoint
    const auto limited = [&](const std::string& more) {
        return run(fmt::format("ulimit -f 400; {} --config {} --set run.out={} {}",
                               program().string(), job.config.string(), out, more));
    };
    REQUIRE(job.train("run", "--set run.train_iters=5 --set optim.lr_decay_iters=20").code == 0);
    const std::string keys = "--set optim.lr_decay_iters=20 --set checkpoint.save_interval=1 ";

    Ran ran = limited(keys);
    CHECK(ran.code == 4);
    CHECK_MESSAGE(ran.output.find("THE SAVE OF STEP 6 FAILED (1 in a row, 3 end the run)") !=
                      std::string::npos,
                  ran.output);
    CHECK_MESSAGE(ran.output.find("3 saves in a row failed") != std::string::npos, ran.output);
    CHECK(ran.output.find("File too large") != std::string::npos);
    CHECK(find_latest(out) == fs::path(out) / "step-00000005");

    ran = limited(keys + "--set checkpoint.on_failure=stop --set checkpoint.async=off");
    CHECK(ran.code == 4);
    CHECK_MESSAGE(ran.output.find("the save of step 6 failed") != std::string::npos, ran.output);

    // the last one is never let go by
    ran = limited(keys + "--set checkpoint.max_failures=100");
    CHECK(ran.code == 4);
    CHECK_MESSAGE(ran.output.find("THE LAST SAVE FAILED, what was trained after step 5 is lost") !=
                      std::string::npos,
                  ran.output);
    CHECK(ran.output.find("iteration       20/      20") != std::string::npos);
    CHECK(find_latest(out) == fs::path(out) / "step-00000005");

    // room again
    CHECK(job.train("run", keys).code == 0);
    CHECK(find_latest(out) == fs::path(out) / "step-00000020");
    for (const auto& e : fs::directory_iterator(out)) {
        CHECK(e.path().filename().string().find(".tmp-") == std::string::npos);
    }
}
