// SPDX-License-Identifier: MIT
// The memory plan is the truth: nothing of size is allocated inside a step, and what the process
// takes is what was declared.
#include <cstdlib>

#include <doctest/doctest.h>

#include "model/registry.h"
#include "prof/machine.h"
#include "tests/support/alloc_watch.h"
#include "tests/train/rig.h"

using namespace vt;
using namespace vt::test;

TEST_CASE("memory: the watch sees an allocation of 4 KiB and not one below") {
    if (!can_watch_allocations()) return;
    // a compiler may leave out what is allocated and freed without being looked at
    void* volatile seen = nullptr;
    watch_allocations(true);
    seen = std::malloc(4095);
    std::free(seen);
    CHECK(large_allocations() == 0);
    seen = std::malloc(4096);
    std::free(seen);
    watch_allocations(false);
    CHECK(large_allocations() == 1);
    CHECK(largest_allocation() == 4096);
}

TEST_CASE("memory: after two steps of each shape a step allocates nothing of 4 KiB or more") {
    if (!can_watch_allocations()) return;
    for (const char* precision : {"fp32", "bf16"}) {
        for (const char* recompute : {"none", "selective", "full"}) {
            CAPTURE(precision);
            CAPTURE(recompute);
            const FakeData data(10, {{4, 2, 4, 6}, {4, 1, 6, 4}});
            const TempDir dir;
            RunConfig c = tiny_config(dir / "run");
            c.run.precision = precision;
            c.model.recompute = recompute;
            // wider than 4 KiB, so that any tensor of the step would be seen
            c.model.attention_head_dim = 32;
            c.model.ffn_dim = 256;
            c.data.global_batch_size = 6;
            c.data.micro_batch_size = 2;
            // micro-batches of one and of two samples of both shapes have run by then
            c.run.train_iters = 20;
            c.log.log_interval = 1;
            struct Watch final : StepObserver {
                void before_step(int64_t step) override {
                    if (step == 12) watch_allocations(true);
                }
                void after_step(int64_t step) override {
                    if (step == 19) watch_allocations(false);
                }
            } watch;
            CHECK(train(c, data, 2, nullptr, &watch).code == 0);
            CHECK(large_allocations() == 0);
            CHECK(largest_allocation() == 0);
        }
    }
}
