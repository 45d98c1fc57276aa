// SPDX-License-Identifier: MIT
// ops/objective.h on the CPU.
#include "cpu/rows.h"

namespace vt::rows {

void flow_noise(const Table& k, const Ctx& ctx, Tensor xt, Tensor target, CTensor x0, CTensor mix,
                CTensor ids, uint64_t seed, Purpose purpose) {
    const auto kernel = k.noise[type_of(x0.dtype, "flow_noise")];
    const int64_t B = x0.shape[0];
    if (B == 0) return;
    const int64_t n = x0.numel() / B, tasks = div_up(n, kTask);
    ctx.pool->parallel_for(B * tasks, [&](int64_t i, int /*thread*/) {
        const int64_t b = i / tasks, begin = i % tasks * kTask;
        kernel::Noise a{};
        a.xt = xt.as<float>() + b * n;
        a.target = target.as<float>() + b * n;
        a.x0 = static_cast<const char*>(x0.data) + b * n * size_of(x0.dtype);
        std::copy_n(mix.as<float>() + 4 * b, 4, a.mix);
        a.seed = seed;
        a.id = static_cast<uint64_t>(ids.as<int64_t>()[b]);
        a.purpose = static_cast<uint32_t>(purpose);
        kernel(a, begin, std::min(n, begin + kTask));
    });
}

void flow_loss(const Table& k, const Ctx& ctx, Tensor dv, Tensor sse, CTensor v, CTensor target,
               CTensor coef) {
    const int64_t B = v.shape[0];
    if (B == 0) return;
    // each sample in at most kSlots pieces; as many samples at a time as `sums` has room for
    const int64_t n = v.numel() / B;
    const int64_t step = std::max(kTask, round_up(div_up(n, kSlots), 16));
    const int64_t pieces = div_up(n, step);
    std::array<double, 4 * kSlots> sums;
    const int64_t group = pieces == 0 ? B : static_cast<int64_t>(sums.size()) / pieces;
    for (int64_t first = 0; first < B; first += group) {
        const int64_t count = std::min(group, B - first);
        ctx.pool->parallel_for(count * pieces, [&](int64_t i, int /*thread*/) {
            const int64_t b = first + i / pieces, begin = i % pieces * step;
            float* out = dv.present() ? dv.as<float>() + b * n : nullptr;
            sums[static_cast<size_t>(i)] =
                k.loss(out, v.as<float>() + b * n, target.as<float>() + b * n,
                       2.0F * coef.as<float>()[b], begin, std::min(n, begin + step));
        });
        for (int64_t i = 0; i < count; ++i) {
            double total = 0;
            for (int64_t p = 0; p < pieces; ++p) total += sums[static_cast<size_t>(i * pieces + p)];
            sse.as<double>()[first + i] = total;
        }
    }
}

}  // namespace vt::rows
