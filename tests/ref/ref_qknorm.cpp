// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ref/values.h"

namespace vt::test::ref {

namespace {

// cos and sin of row s's pair i of a head: the pairs of the t, h and w axes one after another.
void angle(const Rope& rope, int64_t s, int64_t i, double& c, double& sn) {
    int64_t axis = 0;
    for (const CTensor* table : {&rope.cs_t, &rope.cs_h, &rope.cs_w}) {
        const int64_t pairs = table->shape[1];
        if (i < pairs) {
            const int64_t pos = rope.pos.as<int32_t>()[s * 3 + axis];
            VT_CHECK(pos >= 0 && pos < table->shape[0], "position {} of {}", pos, table->shape[0]);
            c = get(*table, (pos * pairs + i) * 2);
            sn = get(*table, (pos * pairs + i) * 2 + 1);
            return;
        }
        i -= pairs;
        ++axis;
    }
}

// Rotates the adjacent pairs of one row by its angles (direction +1) or back (-1).
void rotate(Values& row, const Rope& rope, int64_t s, int64_t HD, double direction) {
    if (!rope.pos.present()) return;
    for (size_t d = 0; d < row.size(); d += 2) {
        double c = 1, sn = 0;
        angle(rope, s, static_cast<int64_t>(d) % HD / 2, c, sn);
        sn *= direction;
        const double a = row[d], b = row[d + 1];
        row[d] = a * c - b * sn;
        row[d + 1] = a * sn + b * c;
    }
}

Values row_of(const CTensor& t, int64_t s) {
    return read(t.rows(s, s + 1));
}

}  // namespace

void row_sumsq(const Ctx& /*ctx*/, Tensor ssq, CTensor x) {
    for (int64_t s = 0; s < x.shape[0]; ++s) {
        double sum = 0;
        for (const double v : row_of(x, s)) sum += v * v;
        put(ssq, s, sum);
    }
}

void qknorm_rope_fwd(const Ctx& /*ctx*/, Tensor y, CTensor x, CTensor ssq, CTensor w_,
                     const Rope& rope, int64_t HD, int64_t D_global, double eps) {
    const Values w = read(w_);
    for (int64_t s = 0; s < x.shape[0]; ++s) {
        const double r = 1 / std::sqrt(get(ssq, s) / static_cast<double>(D_global) + eps);
        Values n = row_of(x, s);
        for (size_t d = 0; d < n.size(); ++d) n[d] *= r * w[d];
        rotate(n, rope, s, HD, 1);
        write(y.rows(s, s + 1), n);
    }
}

void qknorm_rope_bwd_dot(const Ctx& /*ctx*/, Tensor dot, CTensor dy, CTensor x_, CTensor w_,
                         const Rope& rope, int64_t HD) {
    const Values w = read(w_);
    for (int64_t s = 0; s < x_.shape[0]; ++s) {
        const Values x = row_of(x_, s);
        Values n = row_of(dy, s);
        rotate(n, rope, s, HD, -1);
        double sum = 0;
        for (size_t d = 0; d < n.size(); ++d) sum += n[d] * w[d] * x[d];
        put(dot, s, sum);
    }
}

void qknorm_rope_bwd(const Ctx& /*ctx*/, Tensor dx, Tensor dw, CTensor dy, CTensor x_, CTensor ssq,
                     CTensor dot, CTensor w_, const Rope& rope, int64_t HD, int64_t D_global,
                     double eps) {
    const Values w = read(w_);
    Values sum(w.size());
    for (int64_t s = 0; s < x_.shape[0]; ++s) {
        const double r = 1 / std::sqrt(get(ssq, s) / static_cast<double>(D_global) + eps);
        const double pull = r * r * get(dot, s) / static_cast<double>(D_global);
        const Values x = row_of(x_, s);
        Values n = row_of(dy, s);
        rotate(n, rope, s, HD, -1);
        for (size_t d = 0; d < n.size(); ++d) {
            sum[d] += n[d] * x[d] * r;
            n[d] = r * (n[d] * w[d] - x[d] * pull);
        }
        write(dx.rows(s, s + 1), n);
    }
    for (int64_t d = 0; d < w_.numel(); ++d) put(dw, d, get(dw, d) + sum[at(d)]);
}

}  // namespace vt::test::ref
