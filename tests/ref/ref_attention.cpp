// SPDX-License-Identifier: MIT
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/ref/values.h"

namespace vt::test::ref {

namespace {

// Row `row` of head n in a (rows, NH*HD) tensor starts here.
int64_t head_at(int64_t row, int64_t n, int64_t NH, int64_t HD) {
    return row * NH * HD + n * HD;
}

double dot(const Values& a, int64_t i, const Values& b, int64_t j, int64_t n) {
    double sum = 0;
    for (int64_t d = 0; d < n; ++d) sum += a[at(i + d)] * b[at(j + d)];
    return sum;
}

}  // namespace

void attention_fwd(const Ctx& /*ctx*/, Tensor o, Tensor lse, CTensor q_, CTensor k_, CTensor v_,
                   const Segments& qseg, const Segments& kseg, int64_t NH, double scale) {
    const Values q = read(q_), k = read(k_), v = read(v_);
    const int64_t HD = q_.shape[1] / NH;
    for (int64_t i = 0; i < qseg.n; ++i) {
        const int64_t k0 = kseg.begin[i], k1 = kseg.begin[i + 1];
        Values p(at(k1 - k0)), out(at(HD));
        for (int64_t a = qseg.begin[i]; a < qseg.begin[i + 1]; ++a) {
            for (int64_t n = 0; n < NH; ++n) {
                double top = -std::numeric_limits<double>::infinity();
                for (int64_t b = k0; b < k1; ++b) {
                    const double z =
                        scale * dot(q, head_at(a, n, NH, HD), k, head_at(b, n, NH, HD), HD);
                    p[at(b - k0)] = z;
                    top = std::max(top, z);
                }
                double sum = 0;
                std::fill(out.begin(), out.end(), 0.0);
                for (int64_t b = k0; b < k1; ++b) {
                    const double e = std::exp(p[at(b - k0)] - top);  // top: no overflow
                    sum += e;
                    for (int64_t d = 0; d < HD; ++d) {
                        out[at(d)] += e * v[at(head_at(b, n, NH, HD) + d)];
                    }
                }
                for (int64_t d = 0; d < HD; ++d) {
                    put(o, head_at(a, n, NH, HD) + d, out[at(d)] / sum);
                }
                put(lse, a * NH + n, top + std::log(sum));
            }
        }
    }
}

void attention_delta(const Ctx& /*ctx*/, Tensor delta, CTensor dout_, CTensor o_, int64_t NH) {
    const Values dout = read(dout_), o = read(o_);
    const int64_t HD = o_.shape[1] / NH;
    for (int64_t i = 0; i < o_.shape[0] * NH; ++i) put(delta, i, dot(dout, i * HD, o, i * HD, HD));
}

void attention_bwd(const Ctx& /*ctx*/, Tensor dq, Tensor dk, Tensor dv, CTensor dout_, CTensor q_,
                   CTensor k_, CTensor v_, CTensor lse, CTensor delta, const Segments& qseg,
                   const Segments& kseg, int64_t NH, double scale) {
    const Values dout = read(dout_), q = read(q_), k = read(k_), v = read(v_);
    const int64_t HD = q_.shape[1] / NH;
    Values sum_q(q.size()), sum_k(k.size()), sum_v(v.size());
    for (int64_t i = 0; i < qseg.n; ++i) {
        for (int64_t n = 0; n < NH; ++n) {
            for (int64_t a = qseg.begin[i]; a < qseg.begin[i + 1]; ++a) {
                const int64_t qa = head_at(a, n, NH, HD);
                for (int64_t b = kseg.begin[i]; b < kseg.begin[i + 1]; ++b) {
                    const int64_t kb = head_at(b, n, NH, HD);
                    const double p = std::exp(scale * dot(q, qa, k, kb, HD) - get(lse, a * NH + n));
                    const double ds =
                        p * (dot(dout, qa, v, kb, HD) - get(delta, a * NH + n)) * scale;
                    for (int64_t d = 0; d < HD; ++d) {
                        sum_q[at(qa + d)] += ds * k[at(kb + d)];
                        sum_k[at(kb + d)] += ds * q[at(qa + d)];
                        sum_v[at(kb + d)] += p * dout[at(qa + d)];
                    }
                }
            }
        }
    }
    write(dq, sum_q);
    write(dk, sum_k);
    write(dv, sum_v);
}

}  // namespace vt::test::ref
