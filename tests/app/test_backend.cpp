// SPDX-License-Identifier: MIT
// Which backend run.device means.
#include <doctest/doctest.h>

#include "app/runtime.h"
#include "cpu/cpu.h"

using namespace vt;

TEST_CASE("app/backend: auto takes cuda only where its table is complete") {
    Ops whole = cpu_ops(), part = cpu_ops();
    whole.backend = part.backend = "cuda";
    part.attention_fwd = nullptr;
    part.adamw = nullptr;
    const Ops& cpu = cpu_ops();
    CHECK(&choose_backend("auto", cpu, nullptr) == &cpu);
    CHECK(&choose_backend("auto", cpu, &part) == &cpu);
    CHECK(&choose_backend("auto", cpu, &whole) == &whole);
    CHECK(&choose_backend("cpu", cpu, &whole) == &cpu);
    CHECK(&choose_backend("cuda", cpu, &whole) == &whole);
    CHECK_THROWS_WITH_AS(static_cast<void>(choose_backend("cuda", cpu, &part)),
                         doctest::Contains("the CUDA backend lacks: attention_fwd, adamw"), Error);
    CHECK_THROWS_WITH_AS(static_cast<void>(choose_backend("cuda", cpu, nullptr)),
                         doctest::Contains("this build has no CUDA backend"), Error);
}

TEST_CASE("app/backend: of this build, auto runs and cuda is refused with what it lacks") {
    CHECK(std::string(backend_for("auto").backend) == "cpu");
    CHECK_THROWS_WITH_AS(static_cast<void>(backend_for("cuda")), doctest::Contains("CUDA backend"),
                         Error);
}
