// SPDX-License-Identifier: MIT
#include <map>
#include <nlohmann/json.hpp>

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
    CHECK(test::run(program + " ckpt verify " + shard.string()).code == 2);
    ran = test::run(program + " ckpt ls " + shard.string());
    CHECK(ran.code == 2);
    ran = test::run(program + " ckpt ls --json --verify --all " + at);
    CHECK(ran.code == 3);
    const auto rows = nlohmann::json::parse(ran.output);
    REQUIRE(rows.size() == 2);
    CHECK(rows[0]["step"] == 20);
    CHECK(rows[0]["state"] == "verified");
    CHECK(rows[1]["state"] == "bad");
    CHECK(rows[1]["reason"].get<std::string>().find("100") != std::string::npos);
    ran = test::run(program + " ckpt verify " + at + "/step-00000020 " + at + "/step-00000010");
    CHECK(ran.code == 3);
    CHECK(ran.output.find("step-00000020: good") != std::string::npos);
}

TEST_CASE("vtrain ckpt diff: names what differs, in tensors and configuration") {
    const test::TempDir dir;
    const auto put = [&](const char* name, uint64_t seed, const std::string& lr, bool more) {
        test::State s(seed);
        for (test::Item& i : s.items) {  // finite numbers
            if (i.dtype != DType::kF32) continue;
            auto* x = reinterpret_cast<float*>(i.bytes.data());
            for (size_t k = 0; k < i.bytes.size() / 4; ++k) {
                x[k] = random_normal(seed, Purpose::kTest, 1, k);
            }
        }
        auto states = s.whole();
        if (more) {
            states.back().name = "more";
            states[4].global = states[4].local.shape = {7, 1};
        }
        CheckpointInfo info;
        info.config =
            "[run]\nout = \"x\"\ntrain_iters = 1\n[data]\ntrain = [\"a.h5\"]\n[optim]\nlr = " + lr +
            "\n";
        const test::Armed quiet(test::Mischief::kNone, -1);
        return save(dir / name, info, states, *self_group()).string();
    };
    const std::string program = test::program().string() + " ckpt diff ";
    const std::string a = put("a", 1, "1e-3", false), same = put("same", 1, "1e-3", false);
    const std::string b = put("b", 2, "2e-3", true);
    test::Ran ran = test::run(program + a + " " + same);
    CHECK_MESSAGE(ran.code == 0, ran.output);
    CHECK(ran.output.find("6 tensors equal, 0 differ, 0 not comparable; 0 keys") !=
          std::string::npos);
    ran = test::run(program + a + " " + b);
    CHECK(ran.code == 1);
    for (const char* text : {"only in A: nothing", "only in B: more", "counts: i64 (7) | i64 (7,1)",
                             "model/patch_embedding.weight: 128 of 128 elements differ, by at most",
                             "config optim.lr: 0.001 | 0.002",
                             "0 tensors equal, 4 differ, 3 not comparable; 1 keys"}) {
        CHECK_MESSAGE(ran.output.find(text) != std::string::npos, text, "\n", ran.output);
    }
    CHECK(test::run(program + a + " " + (dir / "none").string()).code == 2);
}

TEST_CASE("vtrain ckpt: what other programs wrote is refused by name") {
    const test::TempDir dir;
    const std::string program = test::program().string();
    const auto put = [&](const fs::path& file, const std::string& bytes) {
        fs::create_directories(file.parent_path());
        write_atomic(file, bytes);
    };
    put(dir / "a.pt", std::string("PK\x03\x04", 4) + "archive/data.pkl");
    put(dir / "b.safetensors", std::string("\x02\0\0\0\0\0\0\0{}", 10));
    put(dir / "dcp" / ".metadata", "x");
    put(dir / "dcp" / "__0_0.distcp", "x");
    put(dir / "megatron" / "latest_checkpointed_iteration.txt", "100\n");
    put(dir / "deepspeed" / "zero_to_fp32.py", "x");
    put(dir / "pipeline" / "model_index.json", "{}");
    put(dir / "model" / "config.json", "{}");
    put(dir / "model" / "diffusion_pytorch_model.safetensors", "x");
    for (const auto& [name, what] :
         std::map<std::string, std::string>{{"a.pt", "torch.save"},
                                            {"b.safetensors", "a single safetensors file"},
                                            {"dcp", "torch.distributed.checkpoint"},
                                            {"megatron", "Megatron"},
                                            {"deepspeed", "DeepSpeed"},
                                            {"pipeline", "a pipeline folder of diffusers"},
                                            {"model", "a model folder of diffusers"}}) {
        for (const char* command :
             {" ckpt ls ", " ckpt verify ", " ckpt export --out x --checkpoint ",
              " sample --out x --prompt p --checkpoint "}) {
            const test::Ran ran = test::run(program + command + (dir / name).string());
            CAPTURE(command);
            CHECK_MESSAGE(ran.code == 2, ran.output);
            CHECK_MESSAGE(ran.output.find(what) != std::string::npos, ran.output);
        }
    }
}
