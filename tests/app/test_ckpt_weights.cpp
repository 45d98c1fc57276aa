// SPDX-License-Identifier: MIT
// A checkpoint's weights go out as a diffusers folder and come back bit for bit.
#include <cstring>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "data/facts.h"
#include "data/safetensors.h"
#include "model/registry.h"
#include "model/wan_params.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;

TEST_CASE("vtrain ckpt: export, import and back; an EMA as bf16") {
    const test::TempDir dir;
    LatentFacts facts;
    facts.codec = "haar3d-v1";
    facts.channels = 4;
    facts.mean.assign(4, 0.0);
    facts.std.assign(4, 1.0);
    facts.text_encoder = "vt-hash-v1";
    facts.text_dim = 8;
    facts.text_len = 4;
    ModelOptions model;
    model.num_layers = 1;
    const ParamTable table = wan::param_table(wan_config(model, facts));
    std::vector<std::vector<float>> memory;
    std::vector<StateTensor> states;
    memory.reserve(2 * table.size());
    for (const char* kind : {"model/", "ema0/"}) {
        for (const ParamRow& row : table) {
            std::vector<float>& x = memory.emplace_back(static_cast<size_t>(row.shape.numel()));
            for (size_t i = 0; i < x.size(); ++i) {
                x[i] = random_normal(5, Purpose::kTest, memory.size(), i);
            }
            states.push_back({.name = kind + row.name,
                              .global = row.shape,
                              .local = {x.data(), row.shape, DType::kF32}});
        }
    }
    CheckpointInfo info;
    info.step = 12;
    info.config =
        "[run]\nout = \"x\"\ntrain_iters = 1\n[model]\nnum_layers = 1\n"
        "[data]\ntrain = [\"a.h5\"]\n[optim]\nema_decay = [0.9]\n";
    info.facts_json = facts_json(facts);
    info.extra["ema_decay"] = "0.9";
    {
        const test::Armed quiet(test::Mischief::kNone, -1);
        save(dir / "run", info, states, *self_group());
    }
    const std::string program = test::program().string() + " ckpt ";
    const std::string at = (dir / "run" / "step-00000012").string();
    const std::string out = (dir / "out").string(), back = (dir / "back").string();
    test::Ran ran = test::run(program + "export --checkpoint " + at + " --out " + out);
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    ran = test::run(program + "import --weights " + out + " --out " + back);
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    const fs::path imported = fs::path(back) / step_name(0);
    CHECK(read_info(imported).extra.count("weights_only") == 1);
    for (size_t i = 0; i < table.size(); ++i) {
        std::vector<float> x(memory[i].size());
        StateTensor s = states[i];
        s.local.data = x.data();
        load(imported, {s});
        CHECK(x == memory[i]);
    }
    ran = test::run(program + "export --ema 0 --dtype bf16 --checkpoint " + at + " --out " + out +
                    "16");
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    const SafetensorsReader file(out + "16/diffusion_pytorch_model.safetensors");
    for (size_t i = 0; i < table.size(); ++i) {
        const StoredTensor& t = file.at(table[i].name);
        CHECK(t.type == (table[i].keep_f32 ? StoredType::kF32 : StoredType::kBF16));
        std::vector<float> x(memory[i].size());
        file.read(t, {x.data(), t.shape, DType::kF32});
        const std::vector<float>& want = memory[table.size() + i];
        for (size_t k = 0; k < x.size(); ++k) {
            if (x[k] == (table[i].keep_f32 ? want[k] : to_float(to_bf16(want[k])))) continue;
            FAIL_CHECK(table[i].name << " element " << k);
            break;
        }
    }
    CHECK(test::run(program + "export --ema 1 --checkpoint " + at + " --out " + out + "x").code ==
          2);
    // the average itself, by its decay: bit for bit
    ran = test::run(program + "export --ema 0.9 --checkpoint " + at + " --out " + out + "e");
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    const SafetensorsReader ema(out + "e/diffusion_pytorch_model.safetensors");
    for (size_t i = 0; i < table.size(); ++i) {
        std::vector<float> x(memory[i].size());
        ema.read(ema.at(table[i].name), {x.data(), table[i].shape, DType::kF32});
        CHECK(std::memcmp(x.data(), memory[table.size() + i].data(), 4 * x.size()) == 0);
    }
    CHECK(
        test::run(program + "export --ema 0.99 --checkpoint " + at + " --out " + out + "x").code ==
        2);
    // the mean of the weights and of an average, in f64
    const std::string mean = (dir / "mean").string();
    ran = test::run(program + "average --weights 3,1 --out " + mean + " " + at + " " + back);
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    ran = test::run(program + "average --ema 0 --out " + mean + "e " + at + " " + at);
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    ran = test::run(program + "average --weights 3,1 --out " + mean + "2 " + at + " " + mean + "e");
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    for (size_t i = 0; i < table.size(); ++i) {
        std::vector<float> x(memory[i].size());
        StateTensor s = states[i];
        s.local.data = x.data();
        load(fs::path(mean) / step_name(0), {s});
        CHECK(x == memory[i]);  // of equal weights
        load(fs::path(mean + "e") / step_name(0), {s});
        CHECK(x == memory[table.size() + i]);
        load(fs::path(mean + "2") / step_name(0), {s});
        for (size_t k = 0; k < x.size(); ++k) {
            const double want = 0.75 * static_cast<double>(memory[i][k]) +
                                0.25 * static_cast<double>(memory[table.size() + i][k]);
            if (x[k] == static_cast<float>(want)) continue;
            FAIL_CHECK(table[i].name << " element " << k);
            break;
        }
    }
    CHECK(read_info(fs::path(mean) / step_name(0)).extra.count("weights_only") == 1);
    CHECK(test::run(program + "export --checkpoint " + mean + " --out " + out + "m").code == 0);
    CHECK(test::run(program + "average --weights 1 --out " + mean + "x " + at + " " + at).code ==
          2);
    CHECK(test::run(program + "average --ema 1 --out " + mean + "x " + at).code == 2);
    CHECK(test::run(program + "average --out " + mean + " " + at).code == 2);
    // from the folder of the imported weights, in several files
    ran = test::run(program + "export --max-shard-bytes 100000 --checkpoint " + back + " --out " +
                    out + "2");
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    CHECK(fs::exists(out + "2/diffusion_pytorch_model.safetensors.index.json"));
    CHECK(read_file(out + "2/config.json") == read_file(out + "/config.json"));
    CHECK(test::run(program + "export --ema 0 --checkpoint " + back + " --out " + out + "x").code ==
          2);
    CHECK(test::run(program + "import --weights " + out + "2 --out " + back).code == 2);
    ran = test::run(program + "ls " + back);
    CHECK(ran.output.find("  import    -           weights of " + out) != std::string::npos);
    CHECK(test::run(program + "export --checkpoint " + at + " --out " + out).code == 2);
}
