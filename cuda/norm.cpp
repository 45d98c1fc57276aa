// SPDX-License-Identifier: MIT
// ops/norm.h on the GPU: from tensors and segments to launches.
// Floor 2.
#include <algorithm>

#include "cuda/norm_kernels.h"
#include "cuda/slots.h"

namespace vt::cuda {

namespace {

// Sums over rows are cut into about this many pieces: by shape, never by device. Four for each
// multiprocessor of an H200, few enough that adding them up costs a small part of the pass.
constexpr int64_t kPieces = 512;
constexpr int64_t kMinRows = 8;

int64_t step_of(int64_t rows) {
    return std::max(kMinRows, div_up(rows, kPieces));
}

// f(list) for the segments, at most SegmentList::kMax at a time; lists without rows are left out.
template <class F>
void each_list(const Segments& seg, const F& f) {
    for (int64_t first = 0; first < seg.n; first += SegmentList::kMax) {
        SegmentList list;
        list.n = static_cast<int>(std::min<int64_t>(SegmentList::kMax, seg.n - first));
        list.step = step_of(seg.rows());
        list.begin[0] = seg.begin[first];
        for (int i = 0; i < list.n; ++i) {
            list.begin[i + 1] = seg.begin[first + i + 1];
            list.mod_row[i] = narrow<int>(seg.mod_row[first + i]);
            list.piece[i + 1] =
                list.piece[i] + narrow<int>(div_up(list.begin[i + 1] - list.begin[i], list.step));
        }
        if (list.begin[list.n] > list.begin[0]) f(list);
    }
}

SegmentList one_segment(int64_t S) {
    SegmentList list;
    list.n = 1;
    list.step = step_of(S);
    list.begin[1] = S;
    list.piece[1] = narrow<int>(div_up(S, list.step));
    return list;
}

struct Modulation {
    const float* base;
    int64_t J, D;
    explicit Modulation(CTensor mod) : base(mod.as<float>()), J(mod.shape[1]), D(mod.shape[2]) {}
    [[nodiscard]] const float* slice(int j) const { return base + j * D; }
    [[nodiscard]] int64_t stride() const { return J * D; }
};

NormFwd fwd_args(Tensor y, Tensor mean, Tensor rstd, CTensor h, double eps) {
    NormFwd a{};
    a.y = y.data;
    a.mean = mean.as<float>();
    a.rstd = rstd.as<float>();
    a.h = h.data;
    a.D = narrow<int>(h.shape[1]);
    a.eps = static_cast<float>(eps);
    a.th = h.dtype;
    a.ty = y.dtype;
    return a;
}

NormBwd bwd_args(const Ctx& ctx, const char* op, Tensor dh, CTensor dy, CTensor h, CTensor mean,
                 CTensor rstd) {
    NormBwd a{};
    a.dh = dh.as<float>();
    a.dy = dy.data;
    a.h = h.data;
    a.mean = mean.as<float>();
    a.rstd = rstd.as<float>();
    a.D = narrow<int>(h.shape[1]);
    a.th = h.dtype;
    a.ty = dy.dtype;
    a.partials = static_cast<float*>(
        scratch_of(ctx, norm_scratch_bytes({.rows = h.shape[0], .width = h.shape[1]}), op));
    return a;
}

QkNorm qk_args(CTensor x, CTensor w, const Rope& rope, int64_t HD, int64_t D_global, double eps) {
    QkNorm a;
    a.x = x.data;
    a.w = w.as<float>();
    a.D = narrow<int>(x.shape[1]);
    a.HD = narrow<int>(HD);
    a.inv_D = 1.0F / static_cast<float>(D_global);
    a.eps = static_cast<float>(eps);
    a.t = x.dtype;
    if (!rope.pos.present()) return a;
    a.rope.pos = rope.pos.as<int32_t>();
    int k = 0;
    for (const CTensor* cs : {&rope.cs_t, &rope.cs_h, &rope.cs_w}) {
        a.rope.cs[k] = cs->as<float>();
        a.rope.pairs[k++] = narrow<int>(cs->shape[1]);
    }
    return a;
}

}  // namespace

// Pieces of one list: kPieces by rows, and one short piece more in each segment.
int64_t norm_scratch_bytes(const ScratchNeed& need) {
    const int64_t pieces = div_up(need.rows, step_of(need.rows)) + SegmentList::kMax;
    return 2 * pieces * need.width * static_cast<int64_t>(sizeof(float));
}

void modnorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor mod,
                 ModIndex at, const Segments& seg, double eps) {
    const cudaStream_t stream = stream_of(ctx, "modnorm_fwd").handle();
    const Modulation m(mod);
    NormFwd a = fwd_args(y, mean, rstd, h, eps);
    a.gain = m.slice(at.scale);
    a.shift = m.slice(at.shift);
    a.one = 1;
    a.stride = m.stride();
    each_list(seg, [&](const SegmentList& list) { norm_fwd("modnorm_fwd", a, list, stream); });
}

void modnorm_bwd(const Ctx& ctx, Tensor dh, Tensor dmod, CTensor dy, CTensor h, CTensor mean,
                 CTensor rstd, CTensor mod, ModIndex at, const Segments& seg) {
    const cudaStream_t stream = stream_of(ctx, "modnorm_bwd").handle();
    const Modulation m(mod);
    NormBwd a = bwd_args(ctx, "modnorm_bwd", dh, dy, h, mean, rstd);
    a.gain = m.slice(at.scale);
    a.one = 1;
    a.stride = m.stride();
    const AddPieces add{
        .acc = {dmod.as<float>() + at.shift * m.D, dmod.as<float>() + at.scale * m.D},
        .partials = a.partials,
        .sums = 2,
        .stride = m.stride(),
        .D = a.D};
    each_list(seg, [&](const SegmentList& list) {
        norm_bwd("modnorm_bwd", a, list, stream);
        add_pieces("modnorm_bwd.sums", add, list, stream);
    });
}

void layernorm_fwd(const Ctx& ctx, Tensor y, Tensor mean, Tensor rstd, CTensor h, CTensor w,
                   CTensor b, double eps) {
    if (h.shape[0] == 0) return;
    NormFwd a = fwd_args(y, mean, rstd, h, eps);
    a.gain = w.as<float>();
    a.shift = b.as<float>();
    norm_fwd("layernorm_fwd", a, one_segment(h.shape[0]), stream_of(ctx, "layernorm_fwd").handle());
}

void layernorm_bwd(const Ctx& ctx, Tensor dh, Tensor dw, Tensor db, CTensor dy, CTensor h,
                   CTensor mean, CTensor rstd, CTensor w) {
    if (h.shape[0] == 0) return;
    const cudaStream_t stream = stream_of(ctx, "layernorm_bwd").handle();
    NormBwd a = bwd_args(ctx, "layernorm_bwd", dh, dy, h, mean, rstd);
    a.gain = w.as<float>();
    const SegmentList all = one_segment(h.shape[0]);
    norm_bwd("layernorm_bwd", a, all, stream);
    const AddPieces add{.acc = {db.as<float>(), dw.as<float>()},
                        .partials = a.partials,
                        .sums = 2,
                        .stride = 0,
                        .D = a.D};
    add_pieces("layernorm_bwd.sums", add, all, stream);
}

void row_sumsq(const Ctx& ctx, Tensor ssq, CTensor x) {
    if (x.shape[0] == 0) return;
    row_sumsq(ssq.as<float>(), x.data, x.shape[0], narrow<int>(x.shape[1]), x.dtype,
              stream_of(ctx, "row_sumsq").handle());
}

void qknorm_rope_fwd(const Ctx& ctx, Tensor y, CTensor x, CTensor ssq, CTensor w, const Rope& rope,
                     int64_t HD, int64_t D_global, double eps) {
    if (x.shape[0] == 0) return;
    QkNorm a = qk_args(x, w, rope, HD, D_global, eps);
    a.y = y.data;
    a.ssq = ssq.as<float>();
    qknorm_fwd(a, x.shape[0], stream_of(ctx, "qknorm_rope_fwd").handle());
}

void qknorm_rope_bwd_dot(const Ctx& ctx, Tensor dot, CTensor dy, CTensor x, CTensor w,
                         const Rope& rope, int64_t HD) {
    if (x.shape[0] == 0) return;
    QkNorm a = qk_args(x, w, rope, HD, x.shape[1], 0);
    a.dot = dot.as<float>();
    a.dy = dy.data;
    qknorm_bwd_dot(a, x.shape[0], stream_of(ctx, "qknorm_rope_bwd_dot").handle());
}

void qknorm_rope_bwd(const Ctx& ctx, Tensor dx, Tensor dw, CTensor dy, CTensor x, CTensor ssq,
                     CTensor dot, CTensor w, const Rope& rope, int64_t HD, int64_t D_global,
                     double eps) {
    const int64_t S = x.shape[0];
    if (S == 0) return;
    const cudaStream_t stream = stream_of(ctx, "qknorm_rope_bwd").handle();
    QkNorm a = qk_args(x, w, rope, HD, D_global, eps);
    a.y = dx.data;
    a.dy = dy.data;
    a.ssq = ssq.as<float>();
    a.dots = dot.as<float>();
    a.partials = static_cast<float*>(
        scratch_of(ctx, norm_scratch_bytes({.rows = S, .width = x.shape[1]}), "qknorm_rope_bwd"));
    const SegmentList all = one_segment(S);
    qknorm_bwd(a, all, stream);
    const AddPieces add{
        .acc = {dw.as<float>(), nullptr}, .partials = a.partials, .sums = 1, .stride = 0, .D = a.D};
    add_pieces("qknorm_rope_bwd.sums", add, all, stream);
}

}  // namespace vt::cuda
