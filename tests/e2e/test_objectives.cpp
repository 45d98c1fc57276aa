// SPDX-License-Identifier: MIT
// Every kind of objective through the whole program.
#include <array>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/loader.h"
#include "tests/e2e/job.h"
#include "train/events.h"

using namespace vt;
using namespace vt::test;

namespace {

// The latents of a samples.h5, one after another.
std::vector<float> latents_of(const fs::path& file) {
    const auto data = Dataset::open({{{file}, 1.0, file.string()}});
    std::vector<float> all;
    for (int64_t i = 0; i < data->source_size(0); ++i) {
        const std::array<int64_t, 4> s = data->sample(0, i).shape;
        std::vector<float> latent(static_cast<size_t>(s[0] * s[1] * s[2] * s[3]));
        std::vector<float> text(
            static_cast<size_t>(data->facts().text_len * data->facts().text_dim));
        data->read(
            0, i, Tensor(latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32),
            Tensor(text.data(), {data->facts().text_len, data->facts().text_dim}, DType::kF32));
        all.insert(all.end(), latent.begin(), latent.end());
    }
    return all;
}

}  // namespace

TEST_CASE("program: every objective trains and draws samples on the way") {
    const Job job(12, "--size 16x16 --frames 5 --dtype f32");
    struct Case {
        const char* name;
        const char* sets;
    };
    for (const Case& c : std::vector<Case>{
             {"flow", "objective.timestep_sampling=mode objective.shift_by=open_sora"},
             {"epsilon", "objective.kind=ddpm objective.prediction=epsilon"},
             {"v",
              "objective.kind=ddpm objective.beta_schedule=cosine "
              "objective.zero_terminal_snr=true log.sample_solver=ddpm"},
             {"x0",
              "objective.kind=ddpm objective.prediction=x0 "
              "objective.beta_schedule=scaled_linear objective.loss_weighting=min_snr"}}) {
        CAPTURE(c.name);
        std::string more = fmt::format(" {}", c.sets);
        for (size_t at = 0; (at = more.find(' ', at)) != std::string::npos; at += 7) {
            more.insert(at + 1, "--set ");
        }
        const Ran ran =
            job.train(c.name, more +
                                  " --set run.train_iters=4 --set log.eval_interval=0 --set "
                                  "log.sample_interval=2 --set log.sample_count=2 --set "
                                  "log.sample_steps=3 --set optim.ema_decay=[] --set "
                                  "optim.lr_warmup_iters=0");
        INFO(ran.output);
        REQUIRE(ran.code == 0);
        const fs::path out = job.dir / c.name, samples = out / "samples";
        for (const char* step : {"step-00000002", "step-00000004"}) {
            CHECK(fs::exists(samples / step / "samples.png"));
            CHECK(latents_of(samples / step / "samples.h5").size() > 0);
        }
        CHECK(latents_of(samples / "step-00000002/samples.h5") !=
              latents_of(samples / "step-00000004/samples.h5"));
        int events = 0;
        for (const RunEvent& e : read_events(out / "events.jsonl")) {
            events += e.kind == EventKind::kSample ? 1 : 0;
        }
        CHECK(events == 2);

        // `vtrain sample` follows the same path from the checkpoint: the same bits
        const auto valid = Dataset::open({{expand_globs("valid/*.h5", job.data), 1.0, "valid"}});
        const std::string solver = std::string(c.name) == "v" ? "ddpm" : "auto";
        const fs::path drawn = job.dir / (std::string(c.name) + "-drawn");
        const Ran again = Job::vtrain(fmt::format(
            "sample --checkpoint {} --out {} --steps 3 --guidance 3 --solver {} --prompt '{}' "
            "--prompt '{}'",
            out.string(), drawn.string(), solver, valid->caption(0, 0), valid->caption(0, 1)));
        INFO(again.output);
        REQUIRE(again.code == 0);
        CHECK(latents_of(drawn / "samples.h5") == latents_of(samples / "step-00000004/samples.h5"));
    }
}

TEST_CASE("program: data timesteps counts what a configuration trains on") {
    const Job job;
    const std::string base = "data timesteps --samples 2000 --config " + job.config.string();
    const auto has = [](const Ran& r, const std::string& part) {
        const bool found = r.output.find(part) != std::string::npos;
        if (!found) MESSAGE("'" << part << "' is not in: " << r.output);
        return found;
    };
    const fs::path png = job.dir / "t.png";
    const Ran plain = Job::vtrain(base + " --out " + png.string());
    CHECK(plain.code == 0);
    CHECK(has(plain, "draws of the data, in the order of training"));
    CHECK(has(plain, "2000 draws, steps 1 to 500 of the run: logit_normal (mean 0, std 1)"));
    CHECK(has(plain, "0.950-1.000"));
    CHECK(has(plain, "quantiles  1 % "));
    CHECK(has(plain, "plot: " + png.string()));
    CHECK(read_file(png).starts_with("\x89PNG\r\n\x1a\n"));

    const Ran json = Job::vtrain(base +
                                 " --json --bins 10 --set objective.kind=ddpm --set "
                                 "objective.loss_weighting=min_snr");
    CHECK(json.code == 0);
    CHECK(nlohmann::json::parse(json.output)["all"]["count"].size() == 10);
    CHECK(nlohmann::json::parse(json.output)["all"]["draws"] == 2000);

    // without data: only where shapes do not matter, or are given
    const std::string gone = base + " --set data.train=gone/*.h5";
    const Ran enough = Job::vtrain(gone);
    CHECK(enough.code == 0);
    CHECK(has(enough, "without data"));
    const Ran needs = Job::vtrain(gone + " --set objective.shift_by=flux");
    CHECK(needs.code == 2);
    CHECK(has(needs, "--set data.train: data.train: "));
    CHECK(has(needs, "hint: objective.shift_by = \"flux\" needs the shapes"));
    const Ran given = Job::vtrain(gone +
                                  " --set objective.shift_by=flux --shape 16,1,32,32 "
                                  "--shape 16,21,90,160");
    CHECK(given.code == 0);
    CHECK(has(given, "of the shapes given, as often each: 16,1,32,32  16,21,90,160"));
    CHECK(has(given, "16,21,90,160     50.00"));

    CHECK(Job::vtrain(base + " --shape 16,32,32").code == 2);
    CHECK(Job::vtrain("data timesteps").code == 2);
    const Ran bad = Job::vtrain(base + " --set objective.timestep_samplin=mode");
    CHECK(bad.code == 2);
    CHECK(has(bad, "the nearest valid one is 'objective.timestep_sampling'"));
    std::ofstream(job.config, std::ios::app) << "[objective]\nflow_shift = 0\n";
    const Ran line = Job::vtrain(base);
    CHECK(line.code == 2);
    CHECK(has(line, "run.toml:26: objective.flow_shift = 0 is out of range; allowed: number > 0"));
}
