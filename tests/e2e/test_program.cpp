// SPDX-License-Identifier: MIT
// The program as its users run it.
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "ckpt/load.h"
#include "core/rng.h"
#include "data/codec.h"
#include "data/loader.h"
#include "tests/e2e/job.h"
#include "tests/support/child.h"
#include "train/metrics.h"

using namespace vt;
using namespace vt::test;

namespace {

// The tensors' bytes of a checkpoint. Headers hold the run's id, which differs between runs; the
// tensors' order in the file does not.
std::string payload(const fs::path& dir) {
    std::string all;
    std::vector<fs::path> files;
    for (const auto& e : fs::directory_iterator(dir)) {
        if (e.path().extension() == ".safetensors") files.push_back(e.path());
    }
    std::sort(files.begin(), files.end());
    REQUIRE(!files.empty());
    for (const fs::path& f : files) {
        const std::string bytes = read_file(f);
        uint64_t header = 0;
        std::memcpy(&header, bytes.data(), 8);
        all += bytes.substr(8 + header);
    }
    return all;
}

}  // namespace

TEST_CASE("program: encode, train, resume, sample") {
    const Job job;
    const Ran whole = job.train("whole");
    INFO(whole.output);
    REQUIRE(whole.code == 0);
    CHECK(whole.output.find("iteration       20/      20") != std::string::npos);
    CHECK(fs::exists(job.dir.path() / "whole" / "config.toml"));
    CHECK(fs::exists(job.dir.path() / "whole" / "metrics.jsonl"));

    REQUIRE(job.train("parts", "--set run.train_iters=10 --set optim.lr_decay_iters=20").code == 0);
    const Ran second = job.train("parts", "--set optim.lr_decay_iters=20");
    INFO(second.output);
    REQUIRE(second.code == 0);
    CHECK(second.output.find("resumed from") != std::string::npos);
    const bool equal = payload(job.dir.path() / "whole" / "step-00000020") ==
                       payload(job.dir.path() / "parts" / "step-00000020");
    CHECK(equal);

    const fs::path out = job.dir / "samples";
    const Ran drawn = Job::vtrain(
        fmt::format("sample --checkpoint {} --out {} --prompt 'a red circle moving left' --steps 4",
                    (job.dir / "whole").string(), out.string()));
    INFO(drawn.output);
    CHECK(drawn.code == 0);
    CHECK(fs::exists(out / "samples.h5"));
    CHECK(fs::exists(out / "samples.png"));
}

TEST_CASE("program: what the user got wrong ends with 2 and writes nothing") {
    const Job job;
    const Ran key = job.train("bad", "--set optim.learning_rat=1");
    CHECK(key.code == 2);
    CHECK(key.output.find("learning_rat") != std::string::npos);
    CHECK(!fs::exists(job.dir / "bad"));
    const Ran size = job.train("bad", "--set model.patch_size=[1,3,3]");
    INFO(size.output);
    CHECK(size.code == 2);
    CHECK(!fs::exists(job.dir / "bad"));
    const Ran data = job.train("bad", "--set data.train=[\"nothing/*.h5\"]");
    CHECK(data.code == 2);
    CHECK(!fs::exists(job.dir / "bad"));
    const Ran dry = job.train("bad", "--dry-run");
    INFO(dry.output);
    CHECK(dry.code == 0);
    CHECK(dry.output.find("parameters:") != std::string::npos);
    CHECK(dry.output.find("attention_fwd") != std::string::npos);  // what each op is asked for
    CHECK(!fs::exists(job.dir / "bad"));
    REQUIRE(job.train("first", "--set run.train_iters=4").code == 0);
    const Ran changed = job.train("first", "--set run.seed=2");
    CHECK(changed.code == 2);
    CHECK(changed.output.find("run.seed") != std::string::npos);
}

TEST_CASE("program: kill -9 at random instants loses no commit and changes no bit") {
    const Job job;
    // 100 kills take minutes
    const int wanted = std::getenv("VTRAIN_TEST_FULL") != nullptr ? 100 : 10;
    const int iters = 6 * wanted;
    const std::string more = fmt::format(
        "--set run.train_iters={} --set checkpoint.save_interval=1 --set log.eval_interval=20",
        iters);
    REQUIRE(job.train("whole", more).code == 0);

    const fs::path out = job.dir / "killed";
    const std::vector<std::string> args = {program().string(),
                                           "--config",
                                           job.config.string(),
                                           "--set",
                                           "run.out=" + out.string(),
                                           "--set",
                                           fmt::format("run.train_iters={}", iters),
                                           "--set",
                                           "checkpoint.save_interval=1",
                                           "--set",
                                           "log.eval_interval=20"};
    int64_t reached = 0;
    int kills = 0;
    for (uint64_t i = 0; kills < wanted; ++i) {
        Child child(args, job.dir / "log");
        // most instants fall into the loop, which saves at every step; some into the start
        const double ms = 50 + 450 * random_unit(1, Purpose::kTest, 9, i);
        std::this_thread::sleep_for(std::chrono::duration<double, std::milli>(ms));
        child.kill(SIGKILL);
        if (child.wait() == 0) break;  // it was faster than the kill
        ++kills;
        const auto latest = find_latest(out);
        const int64_t now = latest ? read_info(*latest).step : 0;
        CHECK(now >= reached);  // what was committed stays
        reached = now;
        if (latest) verify(*latest);
    }
    REQUIRE(kills == wanted);
    MESSAGE(kills << " kills, step " << reached << " reached before the last start");
    const Ran last = job.train("killed", more);
    INFO(last.output);
    REQUIRE(last.code == 0);
    const std::string end = fmt::format("step-{:08}", iters);
    const bool equal = payload(job.dir.path() / "whole" / end) == payload(out / end);
    CHECK(equal);
}

TEST_CASE("program: SIGTERM saves and asks to be started again") {
    const Job job;
    const std::vector<std::string> args = {program().string(),
                                           "--config",
                                           job.config.string(),
                                           "--set",
                                           "run.out=" + (job.dir / "run").string(),
                                           "--set",
                                           "run.train_iters=100000"};
    Child child(args, job.dir / "log");
    const auto begin = std::chrono::steady_clock::now();
    while (!find_latest(job.dir / "run")) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        REQUIRE(std::chrono::steady_clock::now() - begin < std::chrono::seconds(120));
        REQUIRE(::kill(child.pid(), 0) == 0);
    }
    child.kill(SIGTERM);
    CHECK(child.wait() == 75);
    const auto latest = find_latest(job.dir / "run");
    REQUIRE(latest.has_value());
    CHECK(read_info(*latest).step >= 5);
}

TEST_CASE("program: the process takes what the dry run says") {
    // A model large enough that weights, moments and activations outweigh the slack.
    const Job job(8, "--size 32x32 --frames 9");
    for (const char* more :
         {"--set run.precision=fp32", "--set run.precision=bf16 --set model.recompute=full",
          "--set run.precision=bf16 --set optim.freeze=[\"*.[0-3].*\",\"!*.to_q.bias\"]"}) {
        CAPTURE(more);
        std::vector<std::string> args = {program().string(), "--config", job.config.string()};
        for (const char* s :
             {"run.train_iters=3", "model.attention_head_dim=64", "model.num_attention_heads=6",
              "model.ffn_dim=1536", "model.num_layers=6", "log.eval_interval=2",
              "log.eval_samples=2", "optim.ema_decay=[0.9, 0.99]", "log.sample_interval=2",
              "log.sample_count=1", "log.sample_steps=2", "checkpoint.save_interval=1"}) {
            args.insert(args.end(), {"--set", s});
        }
        std::string extra = more;
        for (size_t at = 0; (at = extra.find("--set ", at)) != std::string::npos; at += 6) {
            const size_t end = std::min(extra.find(' ', at + 6), extra.size());
            args.insert(args.end(), {"--set", extra.substr(at + 6, end - at - 6)});
        }
        std::vector<std::string> dry = args;
        dry.insert(dry.end(), {"--set", "run.out=" + (job.dir / "dry").string(), "--dry-run"});
        const std::string dry_log = job.dir / "dry.log";
        fs::remove(dry_log);
        Child start(dry, dry_log);
        REQUIRE(start.wait() == 0);
        const std::string text = read_file(dry_log);
        const size_t at = text.find("  sum");
        REQUIRE(at != std::string::npos);
        double declared = 0;
        REQUIRE(std::sscanf(text.c_str() + at, "  sum %lf MiB", &declared) == 1);

        const fs::path out = job.dir / "real";
        fs::remove_all(out);
        std::vector<std::string> real = args;
        real.insert(real.end(), {"--set", "run.out=" + out.string()});
        Child child(real, job.dir / "real.log");
        REQUIRE(child.wait() == 0);
        const double taken = double(child.peak_resident() - start.peak_resident()) / (1 << 20);
        MESSAGE("declared " << declared << " MiB, taken " << taken << " MiB");
        CHECK(taken <= 1.03 * declared + 64);
        CHECK(taken >= 0.9 * declared);  // the plan is not an over-estimate either
    }
}

TEST_CASE("program: overfitting one clip reproduces it") {
    // The sampler starts at sigma = 1, where only the weights know the picture: uniform timesteps
    // with a shift train that end as well.
    const Job job(1);
    const Ran trained = job.train(
        "one",
        "--set run.precision=bf16 --set run.train_iters=400 --set data.global_batch_size=16 "
        "--set data.micro_batch_size=16 --set optim.lr=3e-3 --set optim.lr_warmup_iters=20 "
        "--set objective.timestep_sampling=uniform --set objective.flow_shift=3 "
        "--set objective.cfg_dropout_prob=0 --set model.num_attention_heads=6 "
        "--set model.attention_head_dim=64 --set model.ffn_dim=768 --set log.log_interval=100 "
        "--set log.eval_interval=0 --set checkpoint.save_interval=0 --set optim.ema_decay=[0.98]");
    INFO(trained.output);
    REQUIRE(trained.code == 0);
    const auto data = Dataset::open({{expand_globs("*.h5", job.data), 1.0, "data"}});
    const fs::path out = job.dir / "samples";
    const Ran drawn = Job::vtrain(fmt::format(
        "sample --checkpoint {} --out {} --prompt '{}' --steps 20 --guidance 1 --shift 1",
        (job.dir / "one").string(), out.string(), data->caption(0, 0)));
    INFO(drawn.output);
    REQUIRE(drawn.code == 0);
    const auto samples = Dataset::open({{{out / "samples.h5"}, 1.0, "samples"}});

    const auto pixels = [](const Dataset& d) {
        const auto s = d.sample(0, 0).shape;
        std::vector<float> latent(size_t(s[0] * s[1] * s[2] * s[3]));
        std::vector<float> text(size_t(d.facts().text_len * d.facts().text_dim));
        d.read(0, 0, Tensor(latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32),
               Tensor(text.data(), {d.facts().text_len, d.facts().text_dim}, DType::kF32));
        return decode_latent(d.facts(), latent.data(), s[1], s[2], s[3]);
    };
    const Clip a = pixels(*data), b = pixels(*samples);
    REQUIRE(a.rgb.size() == b.rgb.size());
    double squares = 0;
    for (size_t i = 0; i < a.rgb.size(); ++i) {
        squares += std::pow(double(a.rgb[i]) - double(b.rgb[i]), 2);
    }
    const double psnr = 10 * std::log10(255.0 * 255.0 * double(a.rgb.size()) / squares);
    MESSAGE("PSNR " << psnr << " dB");
    CHECK(psnr >= 25);
}

TEST_CASE("program: configs/smoke.toml reproduces its committed losses") {
    const TempDir dir;
    REQUIRE(Job::vtrain(fmt::format("data synth --out {} --count 256 --valid 16 --size 32x32 "
                                    "--frames 9 --text-dim 64 --text-len 8",
                                    (dir / "data").string()))
                .code == 0);
    // The first 60 of its 200 steps: the learning rate of a step does not depend on where a run
    // ends.
    const Ran ran = Job::vtrain(fmt::format(
        "--config {} --set run.out={} --set data.train={}/*.h5 --set data.valid={}/valid/*.h5 "
        "--set "
        "run.train_iters=60 --set optim.lr_decay_iters=200 --set checkpoint.save_interval=0 --set "
        "log.sample_interval=0 --set log.eval_interval=0",
        (source_dir() / "configs" / "smoke.toml").string(), (dir / "run").string(),
        (dir / "data").string(), (dir / "data").string()));
    INFO(ran.output);
    REQUIRE(ran.code == 0);
    std::ifstream committed(source_dir() / "configs" / "smoke_losses.tsv");
    std::string line;
    int compared = 0;
    const std::vector<MetricRow> rows = read_metrics(dir / "run" / "metrics.jsonl");
    while (std::getline(committed, line)) {
        long long step = 0;
        double loss = 0, norm = 0;
        if (std::sscanf(line.c_str(), "train %lld %lf %lf", &step, &loss, &norm) != 3) continue;
        for (const MetricRow& r : rows) {
            if (r.eval || r.step != step) continue;
            ++compared;
            CAPTURE(step);
            // Another instruction set or library may round differently; over these few steps u_f32
            // grows by less than 1e3.
            CHECK(std::abs(r.loss.value_or(0) / loss - 1) < 1e3 * unit_roundoff(DType::kF32));
            CHECK(std::abs(r.grad_norm.value_or(0) / norm - 1) < 1e4 * unit_roundoff(DType::kF32));
        }
    }
    CHECK(compared == 4);
}
