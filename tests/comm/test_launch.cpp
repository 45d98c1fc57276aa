// SPDX-License-Identifier: MIT
// Launchers are found by their variables, and training refuses to run several times at once.
#include <cstdlib>
#include <optional>

#include "comm/launch.h"
#include "core/check.h"
#include "core/file.h"
#include "tests/e2e/job.h"

using namespace vt;
using namespace vt::test;

namespace {

// A variable of the environment for one scope; no value: not set.
class Variable {
  public:
    Variable(std::string name, const char* value) : name_(std::move(name)) {
        if (const char* old = std::getenv(name_.c_str())) old_ = old;
        set(value);
    }
    ~Variable() { set(old_ ? old_->c_str() : nullptr); }
    Variable(const Variable&) = delete;
    Variable& operator=(const Variable&) = delete;

  private:
    void set(const char* value) {
        if (value != nullptr) {
            ::setenv(name_.c_str(), value, 1);
        } else {
            ::unsetenv(name_.c_str());
        }
    }
    std::string name_;
    std::optional<std::string> old_;
};

}  // namespace

TEST_CASE("launch: read from the environment") {
    const Variable a("OMPI_COMM_WORLD_SIZE", nullptr), b("PMI_SIZE", nullptr),
        c("SLURM_STEP_NUM_TASKS", nullptr);
    CHECK(launched_ranks() == 1);
    CHECK(launch().found.empty());
    {
        const Variable size("SLURM_STEP_NUM_TASKS", "4"), rank("SLURM_PROCID", "3");
        CHECK(launched_ranks() == 4);
        CHECK(launch().rank == 3);
        const Variable other("PMI_SIZE", "1");  // a launcher inside a job step: it decides
        CHECK(launched_ranks() == 1);
        const Variable more("OMPI_COMM_WORLD_SIZE", "3"), r("OMPI_COMM_WORLD_RANK", "2");
        CHECK(launch().found == "OMPI_COMM_WORLD_SIZE=3");
        CHECK(launch().rank == 2);
    }
    for (const char* bad : {"", "0", "-2", "two", "2x", "99999999999"}) {
        CAPTURE(bad);
        const Variable size("PMI_SIZE", bad), rank("PMI_RANK", "0");
        CHECK_THROWS_WITH_AS((void)launch(), doctest::Contains("PMI_SIZE="), Error);
    }
    const Variable size("PMI_SIZE", "2"), rank("PMI_RANK", "2");
    CHECK_THROWS_WITH_AS((void)launch(), doctest::Contains("PMI_RANK=\"2\""), Error);
}

TEST_CASE("launch: training on several ranks is refused on each before anything is written") {
    const Job job;
    const std::string train = fmt::format("{} --config {} --set run.out={}", program().string(),
                                          job.config.string(), (job.dir / "many").string());
    const Ran alone = run("OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=1 " + train);
    INFO(alone.output);
    CHECK(alone.code == 2);
    CHECK(alone.output.find("rank 1 of 2 (OMPI_COMM_WORLD_SIZE=2)") != std::string::npos);
    CHECK(alone.output.find("mpirun -n 1") != std::string::npos);
    CHECK(!fs::exists(job.dir / "many"));
    if (run("mpirun --version").code != 0) {
        MESSAGE("no mpirun on this machine: not run under a launcher");
        return;
    }
    const std::string mpirun = "timeout 60 mpirun --allow-run-as-root --oversubscribe -n ";
    const Ran two = run(mpirun + "2 " + train);
    INFO(two.output);
    CHECK(two.code == 2);
    CHECK(two.output.find("of 2 (OMPI_COMM_WORLD_SIZE=2): this build trains on one rank") !=
          std::string::npos);
    CHECK(!fs::exists(job.dir / "many"));
    const Ran one = run(mpirun + "1 " + train + " --dry-run");
    INFO(one.output);
    CHECK(one.code == 0);
}
