// SPDX-License-Identifier: MIT
#include "dist/mesh.h"

namespace vt {

std::string Mesh::str() const {
    return fmt::format("dp {} x tp {} x cp {} x pp {} (ep {}), {} rank{}", dp, tp, cp, pp, ep,
                       world, world == 1 ? "" : "s");
}

Mesh make_mesh(const ParallelOptions& o, int world, int rank) {
    VT_CHECK(world >= 1 && rank >= 0 && rank < world, "rank {} of {}", rank, world);
    for (const int64_t degree : {o.tp, o.cp, o.pp, o.ep}) {
        VT_CHECK(degree >= 1 && degree <= (1 << 20), "degree {}", degree);
    }
    const std::string hint = "this build runs on one rank: set tp = cp = pp = ep = 1";
    const int64_t model_ranks = o.tp * o.cp * o.pp;  // each at most 2^20
    if (model_ranks > world || world % model_ranks != 0) {
        raise(
            Fault::kUser,
            fmt::format("[parallel] ranks = dp*tp*cp*pp: tp*cp*pp = {}*{}*{} = {} does not divide "
                        "the job's {} rank{}",
                        o.tp, o.cp, o.pp, model_ranks, world, world == 1 ? "" : "s"),
            hint);
    }
    const int64_t dp = world / model_ranks;
    if (dp * o.cp % o.ep != 0) {
        raise(Fault::kUser,
              fmt::format("[parallel] ep is taken out of dp*cp: ep = {} does not divide dp*cp = "
                          "{}*{} = {}",
                          o.ep, dp, o.cp, dp * o.cp),
              hint);
    }
    if (world > 1) {
        raise(Fault::kUser,
              fmt::format("[parallel] dp*tp*cp*pp = {}*{}*{}*{} = {} ranks: more than one rank is "
                          "not available in this build",
                          dp, o.tp, o.cp, o.pp, world),
              "start vtrain without a launcher, as one process");
    }
    return {};  // world 1 leaves only degree 1
}

}  // namespace vt
