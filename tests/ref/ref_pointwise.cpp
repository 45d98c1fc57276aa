// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ref/values.h"

namespace vt::test::ref {

void gate_residual_fwd(const Ctx& /*ctx*/, Tensor h, CTensor o, CTensor mod, int j,
                       const Segments& seg) {
    const int64_t D = h.shape[1];
    for (int64_t i = 0; i < seg.n; ++i) {
        for (int64_t s = seg.begin[i]; s < seg.begin[i + 1]; ++s) {
            for (int64_t d = 0; d < D; ++d) {
                const double gate =
                    mod.present() ? get(mod, (seg.mod_row[i] * mod.shape[1] + j) * D + d) : 1;
                put(h, s * D + d, get(h, s * D + d) + gate * get(o, s * D + d));
            }
        }
    }
}

void gate_residual_bwd(const Ctx& /*ctx*/, Tensor dout, Tensor dmod, CTensor dh, CTensor o,
                       CTensor mod, int j, const Segments& seg) {
    const int64_t D = dh.shape[1];
    if (!mod.present()) {
        write(dout, read(dh));
        return;
    }
    const int64_t J = mod.shape[1];
    Values sum(at(mod.numel()));
    for (int64_t i = 0; i < seg.n; ++i) {
        const int64_t gate = (seg.mod_row[i] * J + j) * D;
        for (int64_t s = seg.begin[i]; s < seg.begin[i + 1]; ++s) {
            for (int64_t d = 0; d < D; ++d) {
                put(dout, s * D + d, get(mod, gate + d) * get(dh, s * D + d));
                sum[at(gate + d)] += get(dh, s * D + d) * get(o, s * D + d);
            }
        }
    }
    for (int64_t m = 0; m < mod.shape[0]; ++m) {
        for (int64_t e = (m * J + j) * D; e < (m * J + j + 1) * D; ++e) {
            put(dmod, e, get(dmod, e) + sum[at(e)]);
        }
    }
}

void silu_fwd(const Ctx& /*ctx*/, Tensor y, CTensor x) {
    for (int64_t i = 0; i < x.numel(); ++i) put(y, i, get(x, i) / (1 + std::exp(-get(x, i))));
}

void silu_bwd(const Ctx& /*ctx*/, Tensor dx, CTensor dy, CTensor x) {
    for (int64_t i = 0; i < x.numel(); ++i) {
        const double sig = 1 / (1 + std::exp(-get(x, i)));
        put(dx, i, get(dx, i) + get(dy, i) * sig * (1 + get(x, i) * (1 - sig)));
    }
}

void modulation_fwd(const Ctx& /*ctx*/, Tensor out, CTensor table, CTensor p) {
    const int64_t B = out.shape[0], J = out.shape[1], D = out.shape[2];
    const bool shared = p.shape.rank == 2;
    for (int64_t b = 0; b < B; ++b) {
        for (int64_t j = 0; j < J; ++j) {
            for (int64_t d = 0; d < D; ++d) {
                const int64_t e = (b * J + j) * D + d;
                put(out, e, get(table, j * D + d) + get(p, shared ? b * D + d : e));
            }
        }
    }
}

void modulation_bwd(const Ctx& /*ctx*/, Tensor dtable, Tensor dp, CTensor dout) {
    const int64_t B = dout.shape[0], J = dout.shape[1], D = dout.shape[2];
    const bool shared = dp.shape.rank == 2;
    Values sum_table(at(dtable.numel())), sum_p(at(dp.numel()));
    for (int64_t b = 0; b < B; ++b) {
        for (int64_t j = 0; j < J; ++j) {
            for (int64_t d = 0; d < D; ++d) {
                const int64_t e = (b * J + j) * D + d;
                sum_table[at(j * D + d)] += get(dout, e);
                sum_p[at(shared ? b * D + d : e)] += get(dout, e);
            }
        }
    }
    for (int64_t i = 0; i < dtable.numel(); ++i) put(dtable, i, get(dtable, i) + sum_table[at(i)]);
    for (int64_t i = 0; i < dp.numel(); ++i) put(dp, i, get(dp, i) + sum_p[at(i)]);
}

void cast(const Ctx& /*ctx*/, Tensor y, CTensor x) {
    for (int64_t i = 0; i < x.numel(); ++i) put(y, i, get(x, i));
}

void fill(const Ctx& /*ctx*/, Tensor y, double value) {
    for (int64_t i = 0; i < y.numel(); ++i) {
        switch (y.dtype) {
            case DType::kI64:
                y.as<int64_t>()[i] = static_cast<int64_t>(value);
                break;
            case DType::kI32:
                y.as<int32_t>()[i] = static_cast<int32_t>(value);
                break;
            case DType::kU8:
                y.as<uint8_t>()[i] = static_cast<uint8_t>(value);
                break;
            default:
                put(y, i, value);
        }
    }
}

void add(const Ctx& /*ctx*/, Tensor y, CTensor x) {
    for (int64_t i = 0; i < y.numel(); ++i) put(y, i, get(y, i) + get(x, i));
}

}  // namespace vt::test::ref
