// SPDX-License-Identifier: MIT
// A saved state comes back bit for bit; what does not fit is refused by name.
#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "data/safetensors.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;
using doctest::Contains;
using test::State;

namespace {

CheckpointInfo facts(int64_t step) {
    CheckpointInfo i;
    i.step = step;
    i.cursor = 0xfedcba9876543210U;  // beyond what a JSON number keeps
    i.config = "[run]\nname = \"ünïcode \\\"quoted\\\"\"\n";
    i.facts_json = R"({"codec":"haar3d-v1"})";
    i.data_fingerprint = 0x8000000000000001U;
    i.mesh = "dp=1 cp=1 tp=1 pp=1 ep=1";
    i.build = "Release GNU";
    i.instruction_path = "avx2";
    i.run_id = "run-a";
    i.extra = {{"bad_samples", "3"}, {"", "empty key"}};
    return i;
}

// save() without its line on stdout
fs::path quiet_save(const fs::path& dir, const CheckpointInfo& info, State& state) {
    const test::Armed quiet(test::Mischief::kNone, -1);
    const auto world = self_group();
    return save(dir, info, state.whole(), *world);
}

}  // namespace

TEST_CASE("ckpt: a round trip is bit exact, facts and state") {
    const test::TempDir dir;
    State saved(3), got(0);
    const fs::path at = quiet_save(dir / "run", facts(1000), saved);
    CHECK(at == dir / "run" / "step-00001000");
    CHECK(find_latest(dir / "run") == at);
    const LoadReport report = load(at, got.whole());
    CHECK(got == saved);
    CHECK(report.unused.empty());
    CHECK(report.missing.empty());
    CHECK(report.bytes_read == 60 * 4 + 128 * 4 + 60 * 4 + 4 + 7 * 8);
    const CheckpointInfo i = read_info(at), want = facts(1000);
    CHECK(i.step == want.step);
    CHECK(i.cursor == want.cursor);
    CHECK(i.config == want.config);
    CHECK(i.facts_json == want.facts_json);
    CHECK(i.data_fingerprint == want.data_fingerprint);
    CHECK(i.mesh == want.mesh);
    CHECK(i.build == want.build);
    CHECK(i.instruction_path == want.instruction_path);
    CHECK(i.run_id == want.run_id);
    CHECK(i.extra == want.extra);
    CHECK(tensor_names(at).size() == 6);
    CHECK_NOTHROW(verify(at));
    // one rank's file is an ordinary safetensors file with the model's names and shapes
    const SafetensorsReader file(at / "rank-00000.safetensors");
    CHECK(file.at("model/patch_embedding.weight").shape == Shape{8, 4, 1, 2, 2});
    // nothing but the checkpoint is left
    CHECK(std::distance(fs::directory_iterator(dir / "run"), fs::directory_iterator()) == 1);
}

TEST_CASE("ckpt: missing, foreign and misshapen tensors are named, and nothing is overwritten") {
    const test::TempDir dir;
    State saved(3), got(0);
    const State untouched(0);
    const fs::path at = quiet_save(dir.path(), facts(1), saved);
    auto states = got.whole();
    states[0].name = "model/other";
    CHECK_THROWS_WITH_AS((void)load(at, states), Contains("no tensor 'model/other'"), Error);
    states[0].optional = true;
    State partly(0);
    states = partly.whole();
    states[0].name = "model/other";
    states[0].optional = true;
    const LoadReport report = load(at, states);
    CHECK(report.missing == std::vector<std::string>{"model/other"});
    CHECK(report.unused == std::vector<std::string>{"model/blocks.0.attn1.to_q.weight"});
    CHECK(partly.items[0].bytes == untouched.items[0].bytes);
    CHECK(partly.items[1].bytes == saved.items[1].bytes);
    states = got.whole();
    states[0].global = {10, 6};
    CHECK_THROWS_WITH_AS((void)load(at, states), Contains("f32 (6,10), the run needs f32 (10,6)"),
                         Error);
    states = got.whole();
    states[0].local.dtype = DType::kI32;
    CHECK_THROWS_WITH_AS((void)load(at, states), Contains("needs i32"), Error);
    CHECK(got == untouched);
    CHECK_THROWS_WITH_AS((void)read_info(dir / "nowhere"), Contains("not a checkpoint directory"),
                         Error);
    CHECK_THROWS_WITH_AS((void)read_info(dir.path()), Contains("has no manifest.json"), Error);
    CHECK(find_latest(dir / "nowhere") == std::nullopt);
}

TEST_CASE("ckpt: a save whose parts do not tile a tensor is a bug, named, and leaves nothing") {
    const test::TempDir dir;
    State s(3);
    const auto world = self_group();
    const auto refuse = [&](std::vector<StateTensor> states, const char* why) {
        CHECK_THROWS_WITH_AS((void)save(dir.path(), facts(5), states, *world), Contains(why),
                             Error);
        CHECK(fs::is_empty(dir.path()));
    };
    auto states = s.whole();
    states.push_back(states[0]);
    refuse(states, "there twice");
    states = s.whole();
    states[0] = share_of(states[0], 1, 2);
    refuse(states, "element 0 of a part is missing");
    states = s.whole();
    states[0] = share_of(states[0], 0, 2);
    refuse(states, "element 30 of a part is missing");
    states = s.whole();
    states[0].rect = {{0, 6}, {0, 5}};
    states[0].local = {states[0].local.data, {6, 5}, DType::kF32};
    refuse(states, "30 elements of 60");
    states.push_back(states[0]);
    states.back().rect = {{0, 6}, {4, 9}};
    refuse(states, "overlap");
    states = s.whole();
    states[0].flat_end = 61;
    refuse(states, "flat [0,61) of 60");
}

TEST_CASE("ckpt: a manifest of another version is refused with the reason") {
    const test::TempDir dir;
    State s(3);
    const fs::path at = quiet_save(dir.path(), facts(5), s);
    std::string text = read_file(at / kManifestName);
    const auto v = text.find("\"version\":1");
    REQUIRE(v != std::string::npos);
    for (const auto& [version, who] : {std::pair{"2", "newer"}, {"0", "older"}}) {
        std::string other = text;
        other.replace(v, 11, fmt::format("\"version\":{}", version));
        write_atomic(at / kManifestName, other);
        CHECK_THROWS_WITH_AS((void)read_info(at), Contains(" this build reads version 1"), Error);
        CHECK_THROWS_WITH_AS((void)read_info(at), Contains(who), Error);
    }
}

// tests/golden/checkpoint-v1 was written by this case when version 1 was the newest. It is not
// written again: what was saved once must load for ever.
TEST_CASE("ckpt: make the fixture of version 1" * doctest::skip()) {
    State s(3);
    quiet_save(test::source_dir() / "tests" / "golden" / "checkpoint-v1", facts(12), s);
}

TEST_CASE("ckpt: a checkpoint of version 1 loads bit for bit") {
    const fs::path run = test::source_dir() / "tests" / "golden" / "checkpoint-v1";
    const fs::path at = find_latest(run).value();
    CHECK(at.filename() == "step-00000012");
    CHECK_NOTHROW(verify(at));
    State got(0);
    const LoadReport report = load(at, got.whole());
    CHECK(got == State(3));
    CHECK(report.unused.empty());
    CHECK(read_info(at).cursor == facts(12).cursor);
    CHECK(read_info(at).config == facts(12).config);
    CHECK(read_info(at).extra == facts(12).extra);
}

TEST_CASE("ckpt: load_latest falls back past damage on all ranks; a refusal ends the search") {
    const test::TempDir dir;
    State old_state(3), new_state(4), got(0);
    const auto world = self_group();
    CHECK_FALSE(load_latest(dir.path(), got.whole(), *world, {}).has_value());
    quiet_save(dir.path(), facts(10), old_state);
    const fs::path newest = quiet_save(dir.path(), facts(20), new_state);
    auto loaded = load_latest(dir.path(), got.whole(), *world, {});
    REQUIRE(loaded.has_value());
    CHECK(loaded->info.step == 20);
    CHECK(got == new_state);
    CHECK_THROWS_WITH_AS((void)load_latest(dir.path(), got.whole(), *world,
                                           [](const CheckpointInfo& i) {
                                               if (i.step == 20) raise(Fault::kUser, "refused");
                                           }),
                         "refused", Error);
    // damage that only the payload's checksums show
    std::string bytes = read_file(newest / "rank-00000.safetensors");
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    write_atomic(newest / "rank-00000.safetensors", bytes);
    CHECK(find_latest(dir.path()) == newest);
    {
        const test::Armed quiet(test::Mischief::kNone, -1);
        loaded = load_latest(dir.path(), got.whole(), *world, {});
    }
    REQUIRE(loaded.has_value());
    CHECK(loaded->info.step == 10);
    CHECK(got == old_state);
    fs::remove(dir.path() / "step-00000010" / kManifestName);
    const test::Armed quiet(test::Mischief::kNone, -1);
    CHECK_THROWS_WITH_AS((void)load_latest(dir.path(), got.whole(), *world, {}),
                         Contains("none of the 2 checkpoints"), Error);
}
