// SPDX-License-Identifier: MIT
// The bits of a run depend on its configuration alone: not on threads, on how the system schedules
// them, or on when what was read arrives.
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "tests/e2e/job.h"

namespace fs = std::filesystem;
using namespace vt;
using namespace vt::test;

namespace {

struct Step {
    int64_t step;
    double loss, grad_norm;
    bool operator==(const Step&) const = default;
};

std::vector<Step> steps_of(const fs::path& out) {
    std::vector<Step> r;
    std::ifstream in(out / "metrics.jsonl");
    for (std::string line; std::getline(in, line);) {
        const auto row = nlohmann::json::parse(line);
        if (row.value("kind", "") != "train" || !row.contains("loss")) continue;
        r.push_back({row.at("step").get<int64_t>(), row.at("loss").get<double>(),
                     row.at("grad_norm").get<double>()});
    }
    return r;
}

}  // namespace

TEST_CASE("program: three runs have the same bits, whatever their threads") {
    const Job job;
    const int iters = std::getenv("VTRAIN_TEST_FULL") != nullptr ? 1000 : 12;
    // 7 threads are more than a small machine has cores: the system takes them off in the middle
    const std::vector<int> threads = {1, 2, 7};
    for (const char* precision : {"fp32", "bf16"}) {
        std::vector<Step> first;
        for (size_t i = 0; i < threads.size(); ++i) {
            CAPTURE(precision);
            CAPTURE(threads[i]);
            const std::string out = fmt::format("{}-{}", precision, i);
            const Ran r = job.train(
                out, fmt::format("--set run.threads={} --set data.reader_threads={} --set "
                                 "run.train_iters={} --set checkpoint.save_interval={} --set "
                                 "run.precision={}",
                                 threads[i], 1 + i, iters, iters, precision));
            INFO(r.output);
            REQUIRE(r.code == 0);
            const std::vector<Step> steps = steps_of(job.dir / out);
            REQUIRE(std::ssize(steps) == iters);
            if (i == 0) {
                first = steps;
                CHECK(steps.front().loss != steps.back().loss);
                continue;
            }
            const bool same = steps == first;  // thousands of rows: not one by one
            CHECK(same);
            const Ran diff = Job::vtrain(
                fmt::format("ckpt diff {} {}", (job.dir / fmt::format("{}-0", precision)).string(),
                            (job.dir / out).string()));
            INFO(diff.output);
            // the keys that this test set differ, the tensors do not
            CHECK(diff.output.find(" tensors equal, 0 differ, 0 not comparable") !=
                  std::string::npos);
            CHECK(diff.output.find("run.threads") != std::string::npos);
        }
    }
}
