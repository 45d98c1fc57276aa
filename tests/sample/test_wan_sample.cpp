// SPDX-License-Identifier: MIT
// The sampler with a real model on the CPU: a sample's bits depend on nothing but its own request.
#include <doctest/doctest.h>

#include "core/rng.h"
#include "cpu/cpu.h"
#include "model/store.h"
#include "model/wan.h"
#include "sample/sampler.h"

namespace vt {
namespace {

TEST_SUITE("sample") {
    TEST_CASE("sampler: a Wan model's samples do not depend on each other, nor on threads") {
        WanConfig config;
        config.num_attention_heads = 2;
        config.attention_head_dim = 16;
        config.in_channels = config.out_channels = 6;
        config.text_dim = 12;
        config.freq_dim = 32;
        config.ffn_dim = 48;
        config.num_layers = 2;
        const auto model = make_wan(config, Precision{});
        ParamStore store(model->params(), model->precision(), false);
        store.reserve();
        store.init(3);
        // the head begins at zero; give every matrix something to say
        for (size_t i = 0; i < store.master().size(); ++i) {
            const Tensor t = store.master()[i];
            for (int64_t j = 0; j < t.numel(); ++j) {
                static_cast<float*>(t.data)[j] +=
                    0.05F * random_normal(1, Purpose::kTest, i, static_cast<uint64_t>(j));
            }
        }
        const LatentShape shape{.C = 6, .T = 2, .H = 4, .W = 6};
        constexpr int64_t kSt = 5, kDim = 12;
        std::vector<float> text(3 * kSt * kDim), empty(kSt * kDim, 0.1F);
        for (size_t i = 0; i < text.size(); ++i) text[i] = random_normal(2, Purpose::kTest, 9, i);

        const auto draw = [&](const std::vector<uint64_t>& order, int threads, int64_t batch,
                              const char* guidance) {
            Pool pool(threads);
            Arena acts("acts", MemCategory::kActivations), work("work", MemCategory::kWorkspace);
            const SampleOptions options{.seed = 4, .guidance = guidance, .batch = batch};
            const std::shared_ptr<const Solver> solver = make_flow_solver(SolverKind::kUniPc, 3, 2);
            ScratchNeed need;
            {
                const Sampler measure(*model, acts, work, shape, kSt, kDim, solver, options);
                need = measure.scratch_need();
            }
            acts.reset();
            work.reset();
            acts.reserve();
            work.reserve();
            Sampler sampler(*model, acts, work, shape, kSt, kDim, solver, options);
            need.threads = pool.threads();
            Arena scratch("scratch", MemCategory::kWorkspace);
            const int64_t bytes = cpu_ops().scratch_bytes(need);
            (void)scratch.alloc("scratch", {bytes}, DType::kU8);
            scratch.reset();
            scratch.reserve();
            Ctx ctx;
            ctx.ops = &cpu_ops();
            ctx.pool = &pool;
            ctx.scratch = scratch.alloc("scratch", {bytes}, DType::kU8);
            std::vector<std::vector<float>> out(3);
            std::vector<SampleRequest> requests;
            for (const uint64_t i : order) {
                requests.push_back({i, text.data() + static_cast<int64_t>(i) * kSt * kDim});
            }
            const auto latents = sampler.run(ctx, store.weights(), requests, empty.data());
            for (size_t k = 0; k < order.size(); ++k) out[order[k]] = latents[k];
            return out;
        };
        const auto all = draw({0, 1, 2}, 1, 1, "3");
        CHECK(all[0] != all[1]);
        CHECK(draw({2, 0, 1}, 2, 1, "3") == all);
        CHECK(draw({1}, 1, 1, "3")[1] == all[1]);
        CHECK(draw({2, 1, 0}, 2, 2, "3") == all);
        CHECK(draw({0, 1, 2}, 1, 3, "3") == all);
        // guided and plain steps in one path
        const auto mixed = draw({0, 1, 2}, 1, 1, "0.5-0.9:3");
        CHECK(mixed != all);
        CHECK(draw({0, 1, 2}, 2, 3, "0.5-0.9:3") == mixed);
    }
}

}  // namespace
}  // namespace vt
