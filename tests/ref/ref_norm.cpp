// SPDX-License-Identifier: MIT
#include <cmath>

#include "tests/ref/values.h"

namespace vt::test::ref {

namespace {

// Mean and 1 / sqrt(variance + eps) of n values from `begin`; biased variance.
void moments(const Values& h, int64_t begin, int64_t n, double eps, double& mean, double& rstd) {
    double sum = 0, sq = 0;
    for (int64_t d = 0; d < n; ++d) sum += h[at(begin + d)];
    mean = sum / static_cast<double>(n);
    for (int64_t d = 0; d < n; ++d) {
        const double c = h[at(begin + d)] - mean;
        sq += c * c;
    }
    rstd = 1 / std::sqrt(sq / static_cast<double>(n) + eps);
}

// Gradient of xh = (h - mean) rstd given g = d/dxh:  rstd (g - mean(g) - xh mean(g xh)).
Values norm_grad(const Values& g, const Values& xh, double rstd) {
    double mg = 0, mgx = 0;
    for (size_t d = 0; d < g.size(); ++d) {
        mg += g[d];
        mgx += g[d] * xh[d];
    }
    mg /= static_cast<double>(g.size());
    mgx /= static_cast<double>(g.size());
    Values dh(g.size());
    for (size_t d = 0; d < g.size(); ++d) dh[d] = rstd * (g[d] - mg - xh[d] * mgx);
    return dh;
}

}  // namespace

void modnorm_fwd(const Ctx& /*ctx*/, Tensor y, Tensor mean, Tensor rstd, CTensor h_, CTensor mod_,
                 ModIndex slice, const Segments& seg, double eps) {
    const Values h = read(h_), mod = read(mod_);
    const int64_t D = h_.shape[1], J = mod_.shape[1];
    for (int64_t i = 0; i < seg.n; ++i) {
        const int64_t scale = (seg.mod_row[i] * J + slice.scale) * D;
        const int64_t shift = (seg.mod_row[i] * J + slice.shift) * D;
        for (int64_t s = seg.begin[i]; s < seg.begin[i + 1]; ++s) {
            double m = 0, r = 0;
            moments(h, s * D, D, eps, m, r);
            put(mean, s, m);
            put(rstd, s, r);
            for (int64_t d = 0; d < D; ++d) {
                const double xh = (h[at(s * D + d)] - m) * r;
                put(y, s * D + d, xh * (1 + mod[at(scale + d)]) + mod[at(shift + d)]);
            }
        }
    }
}

void modnorm_bwd(const Ctx& /*ctx*/, Tensor dh, Tensor dmod, CTensor dy_, CTensor h_, CTensor mean,
                 CTensor rstd, CTensor mod_, ModIndex slice, const Segments& seg) {
    const Values dy = read(dy_), h = read(h_), mod = read(mod_);
    const int64_t D = h_.shape[1], J = mod_.shape[1];
    Values sum(mod.size());  // of dmod; each element is rounded once at the end
    for (int64_t i = 0; i < seg.n; ++i) {
        const int64_t scale = (seg.mod_row[i] * J + slice.scale) * D;
        const int64_t shift = (seg.mod_row[i] * J + slice.shift) * D;
        for (int64_t s = seg.begin[i]; s < seg.begin[i + 1]; ++s) {
            Values g(at(D)), xh(at(D));
            for (int64_t d = 0; d < D; ++d) {
                const double gy = dy[at(s * D + d)];
                xh[at(d)] = (h[at(s * D + d)] - get(mean, s)) * get(rstd, s);
                g[at(d)] = gy * (1 + mod[at(scale + d)]);
                sum[at(scale + d)] += gy * xh[at(d)];
                sum[at(shift + d)] += gy;
            }
            const Values grad = norm_grad(g, xh, get(rstd, s));
            for (int64_t d = 0; d < D; ++d) {
                put(dh, s * D + d, get(dh, s * D + d) + grad[at(d)]);
            }
        }
    }
    for (int64_t m = 0; m < mod_.shape[0]; ++m) {
        for (const int j : {slice.shift, slice.scale}) {
            for (int64_t e = (m * J + j) * D; e < (m * J + j + 1) * D; ++e) {
                put(dmod, e, get(dmod, e) + sum[at(e)]);
            }
        }
    }
}

void layernorm_fwd(const Ctx& /*ctx*/, Tensor y, Tensor mean, Tensor rstd, CTensor h_, CTensor w_,
                   CTensor b_, double eps) {
    const Values h = read(h_), w = read(w_), b = read(b_);
    const int64_t S = h_.shape[0], D = h_.shape[1];
    for (int64_t s = 0; s < S; ++s) {
        double m = 0, r = 0;
        moments(h, s * D, D, eps, m, r);
        put(mean, s, m);
        put(rstd, s, r);
        for (int64_t d = 0; d < D; ++d) {
            put(y, s * D + d, (h[at(s * D + d)] - m) * r * w[at(d)] + b[at(d)]);
        }
    }
}

void layernorm_bwd(const Ctx& /*ctx*/, Tensor dh, Tensor dw, Tensor db, CTensor dy_, CTensor h_,
                   CTensor mean, CTensor rstd, CTensor w_) {
    const Values dy = read(dy_), h = read(h_), w = read(w_);
    const int64_t S = h_.shape[0], D = h_.shape[1];
    Values sum_w(at(D)), sum_b(at(D));
    for (int64_t s = 0; s < S; ++s) {
        Values g(at(D)), xh(at(D));
        for (int64_t d = 0; d < D; ++d) {
            xh[at(d)] = (h[at(s * D + d)] - get(mean, s)) * get(rstd, s);
            g[at(d)] = dy[at(s * D + d)] * w[at(d)];
            sum_w[at(d)] += dy[at(s * D + d)] * xh[at(d)];
            sum_b[at(d)] += dy[at(s * D + d)];
        }
        const Values grad = norm_grad(g, xh, get(rstd, s));
        for (int64_t d = 0; d < D; ++d) put(dh, s * D + d, get(dh, s * D + d) + grad[at(d)]);
    }
    for (int64_t d = 0; d < D; ++d) {
        put(dw, d, get(dw, d) + sum_w[at(d)]);
        put(db, d, get(db, d) + sum_b[at(d)]);
    }
}

}  // namespace vt::test::ref
