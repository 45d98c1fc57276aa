// SPDX-License-Identifier: MIT
// Attention: cuts (segment, head, rows) into blocks by shape; each block sees all rows of the other
// side in order, in one thread, so the bits do not depend on how many threads there are.
#include "cpu/matmul_parts.h"

namespace vt {

namespace {

using kernel::Heads;

// Calls body(segment, head, begin, end, thread) for blocks of at most `limit` rows of every segment
// and head.
template <typename Body>
void for_each_block(const Ctx& ctx, const Segments& seg, int64_t NH, int64_t limit,
                    const Body& body) {
    for (int64_t s = 0; s < seg.n; ++s) {
        const Cut rows = cut(seg.begin[s + 1] - seg.begin[s], limit, 16);
        ctx.pool->parallel_for(rows.count * NH, [&](int64_t i, int thread) {
            const int64_t head = i / rows.count, block = i % rows.count;
            body(s, head, rows.begin(block), rows.begin(block) + rows.size(block), thread);
        });
    }
}

template <typename Byte>
Byte* at(const BasicTensor<Byte>& t, int64_t row, int64_t column) {
    using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
    return static_cast<Char*>(t.data) + (row * t.shape[1] + column) * size_of(t.dtype);
}

}  // namespace

void cpu_attention_fwd(Isa isa, const Ctx& ctx, Tensor o, Tensor lse, CTensor q, CTensor k,
                       CTensor v, const Segments& qseg, const Segments& kseg, int64_t NH,
                       double scale) {
    const kernel::MatmulTable& t = matmul_table(isa);
    const int64_t HD = div_exact(q.shape[1], NH);
    const SharedScratch scratch(ctx, attention_floats(t, HD));
    const auto kernel = t.attention_fwd[is_bf16(q) ? 1 : 0];
    for_each_block(ctx, qseg, NH, t.attention_rows,
                   [&](int64_t s, int64_t n, int64_t begin, int64_t end, int thread) {
                       const int64_t q0 = qseg.begin[s], k0 = kseg.begin[s];
                       Heads h;
                       h.q = at(q, q0, n * HD);
                       h.k = at(k, k0, n * HD);
                       h.v = at(v, k0, n * HD);
                       h.o = at(o, q0, n * HD);
                       h.lse = lse.as<float>() + q0 * NH + n;
                       h.ld = NH * HD;
                       h.ld_stat = NH;
                       h.Sq = qseg.begin[s + 1] - q0;
                       h.Sk = kseg.begin[s + 1] - k0;
                       h.HD = HD;
                       h.scale = static_cast<float>(scale);
                       kernel(h, begin, end, scratch.of(thread));
                   });
}

void cpu_attention_delta(Isa isa, const Ctx& ctx, Tensor delta, CTensor dout, CTensor o,
                         int64_t NH) {
    const auto kernel = matmul_table(isa).attention_delta[is_bf16(o) ? 1 : 0];
    const int64_t HD = div_exact(o.shape[1], NH);
    const Cut rows = cut(o.shape[0], 64, 16);
    float* out = delta.as<float>();
    ctx.pool->parallel_for(rows.count, [&](int64_t i, int /*thread*/) {
        kernel(out, dout.data, o.data, NH, HD, rows.begin(i), rows.begin(i) + rows.size(i));
    });
}

void cpu_attention_bwd(Isa isa, const Ctx& ctx, Tensor dq, Tensor dk, Tensor dv, CTensor dout,
                       CTensor q, CTensor k, CTensor v, CTensor lse, CTensor delta,
                       const Segments& qseg, const Segments& kseg, int64_t NH, double scale) {
    const kernel::MatmulTable& t = matmul_table(isa);
    const int type = is_bf16(q) ? 1 : 0;
    const int64_t HD = div_exact(q.shape[1], NH);
    int64_t longest = 0;
    for (int64_t s = 0; s < qseg.n; ++s) {
        longest = std::max(longest, qseg.begin[s + 1] - qseg.begin[s]);
    }
    const SharedScratch scratch(ctx, attention_bwd_floats(t, HD, longest));
    const auto heads = [&](int64_t s, int64_t n) {
        const int64_t q0 = qseg.begin[s], k0 = kseg.begin[s];
        Heads h;
        h.q = at(q, q0, n * HD);
        h.k = at(k, k0, n * HD);
        h.v = at(v, k0, n * HD);
        h.dout = at(dout, q0, n * HD);
        h.dq = at(dq, q0, n * HD);
        h.dk = at(dk, k0, n * HD);
        h.dv = at(dv, k0, n * HD);
        h.lse_in = lse.as<float>() + q0 * NH + n;
        h.delta = delta.as<float>() + q0 * NH + n;
        h.ld = NH * HD;
        h.ld_stat = NH;
        h.Sq = qseg.begin[s + 1] - q0;
        h.Sk = kseg.begin[s + 1] - k0;
        h.HD = HD;
        h.scale = static_cast<float>(scale);
        return h;
    };
    // One head a thread where that keeps the threads busy: less work, the same bits.
    const int64_t pieces = qseg.n * NH, threads = ctx.pool->threads();
    const bool busy = pieces % threads == 0 || pieces >= 4 * threads;
    if (type == 1 && t.attention_bwd_bf16 != nullptr && busy && longest * HD <= kOnePassElements) {
        ctx.pool->parallel_for(pieces, [&](int64_t i, int thread) {
            t.attention_bwd_bf16(heads(i / NH, i % NH), scratch.of(thread));
        });
        return;
    }
    for_each_block(ctx, kseg, NH, t.attention_rows,
                   [&](int64_t s, int64_t n, int64_t begin, int64_t end, int thread) {
                       t.attention_bwd_kv[type](heads(s, n), begin, end, scratch.of(thread));
                   });
    for_each_block(ctx, qseg, NH, t.attention_rows,
                   [&](int64_t s, int64_t n, int64_t begin, int64_t end, int thread) {
                       t.attention_bwd_q[type](heads(s, n), begin, end, scratch.of(thread));
                   });
}

}  // namespace vt
