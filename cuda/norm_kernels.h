// SPDX-License-Identifier: MIT
// What norm.cpp (tensors, checks) hands to norm.cu (kernels): raw device pointers and sizes. All of
// it travels by value in the kernel's arguments, so that a step can be captured in a graph.
// Floor 2.
#pragma once

#include <cstdint>

#include <cuda_runtime_api.h>

#include "core/dtype.h"

namespace vt::cuda {

// Segments of one launch, with the pieces a sum over rows is cut into: piece p belongs to the
// segment i with piece[i] <= p < piece[i + 1] and takes `step` of its rows (the last may be short).
struct SegmentList {
    static constexpr int kMax = 64;  // a longer list takes several launches
    int n = 0;
    int64_t step = 1;
    int64_t begin[kMax + 1] = {};  // rows
    int piece[kMax + 1] = {};
    int mod_row[kMax] = {};
};

// LayerNorm and what follows: y = xh (one + gain) + shift, gain and shift from row mod_row of a
// table with `stride` floats between its rows (0: one row for all).
struct NormFwd {
    void* y;  // (S,D)
    float *mean, *rstd;
    const void* h;  // (S,D)
    const float *gain, *shift;
    float one;  // 1: modulation, 0: affine
    int64_t stride;
    int D;
    float eps;
    DType th, ty;  // of h and y
};
struct NormBwd {
    float* dh;        // (S,D) acc
    float* partials;  // (pieces,2,D) out: of dshift, then of dgain
    const void *dy, *h;
    const float *mean, *rstd;
    const float* gain;
    float one;
    int64_t stride;
    int D;
    DType th, ty;  // of h and dy
};
// acc[mod_row][c] += the partials of each segment's pieces, for up to two column sums.
struct AddPieces {
    float* acc[2];
    const float* partials;  // (pieces,sums,D)
    int sums;
    int64_t stride;  // floats between rows of acc
    int D;
};

struct RopeTables {
    const float* cs[3] = {};       // (positions, pairs, 2): cos, sin
    int pairs[3] = {};             // of each head, turned by t, h and w
    const int32_t* pos = nullptr;  // (S,3); null: no rotation
};
struct QkNorm {
    void* y = nullptr;  // (S,Dl) out of fwd; dx in bwd
    float* dot = nullptr;
    float* partials = nullptr;  // (pieces,1,Dl) out: of dw
    const void *dy = nullptr, *x = nullptr;
    const float *ssq = nullptr, *dots = nullptr, *w = nullptr;
    RopeTables rope;
    int D = 0, HD = 0;
    float inv_D = 0;  // 1 / D_global
    float eps = 0;
    DType t = DType::kF32;
};

/// Threads of a block that walks along rows of D columns: by D alone, since sums depend on it.
[[nodiscard]] int row_threads(int64_t D);

// One launch each; rows are those of `seg`, or [0, S). Bytes count what the launch moves.
void norm_fwd(const char* op, const NormFwd& a, const SegmentList& seg, cudaStream_t stream);
void norm_bwd(const char* op, const NormBwd& a, const SegmentList& seg, cudaStream_t stream);
void add_pieces(const char* op, const AddPieces& a, const SegmentList& seg, cudaStream_t stream);
void row_sumsq(float* ssq, const void* x, int64_t S, int D, DType t, cudaStream_t stream);
void qknorm_fwd(const QkNorm& a, int64_t S, cudaStream_t stream);
void qknorm_bwd_dot(const QkNorm& a, int64_t S, cudaStream_t stream);
void qknorm_bwd(const QkNorm& a, const SegmentList& seg, cudaStream_t stream);

}  // namespace vt::cuda
