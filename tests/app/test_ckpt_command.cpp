// SPDX-License-Identifier: MIT
#include <doctest/doctest.h>

#include "ckpt/save.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;

TEST_CASE("vtrain ckpt: lists and verifies; damage gives exit 3 and the file's name") {
    const test::TempDir dir;
    {
        const test::Armed quiet(test::Mischief::kNone, -1);
        for (const int64_t step : {10, 20}) {
            test::State s(static_cast<uint64_t>(step));
            CheckpointInfo info;
            info.step = step;
            info.mesh = "dp=1";
            save(dir.path(), info, s.whole(), *self_group());
        }
    }
    const std::string program = test::program().string(), at = dir.path().string();
    test::Ran ran = test::run(program + " ckpt ls " + at);
    CHECK(ran.code == 0);
    CHECK(ran.output.find("\n        20  ") < ran.output.find("\n        10  "));
    CHECK(ran.output.find("\n        10  ") != std::string::npos);
    CHECK(test::run(program + " ckpt verify " + at).code == 0);
    CHECK(test::run(program + " ckpt verify " + at + "/step-00000010").output ==
          at + "/step-00000010: good\n");

    const fs::path shard = dir / "step-00000010" / "rank-00000.safetensors";
    std::string bytes = read_file(shard);
    bytes.back() = static_cast<char>(bytes.back() ^ 4);
    write_atomic(shard, bytes);
    ran = test::run(program + " ckpt verify " + at);
    CHECK(ran.code == 3);
    CHECK(ran.output.find(shard.string()) != std::string::npos);
    CHECK(ran.output.find("step-00000020: good") != std::string::npos);
    fs::resize_file(shard, 100);
    ran = test::run(program + " ckpt ls " + at);
    CHECK(ran.code == 3);
    CHECK(ran.output.find("not usable") != std::string::npos);
    CHECK(test::run(program + " ckpt ls " + at + "/none").code == 2);
}
