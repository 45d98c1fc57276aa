// SPDX-License-Identifier: MIT
// ops/norm.h on the GPU. Each tensor is read and written once: a row that is needed twice waits in
// shared memory, each thread reading back only what it wrote. Sums over columns run in an order
// fixed by the row's width; sums over rows are cut into pieces by shape and added in order.
// Floor 2.
#include "cuda/norm_kernels.h"
#include "cuda/rows.cuh"

namespace vt::cuda {

namespace {

constexpr int kAddWarps = 8;  // of a block of add_pieces_kernel

__host__ __device__ constexpr int octets(int D) {
    return (D + kOct - 1) / kOct;
}

// The segment that holds a row, or a piece: the last one that starts at or before it (so never an
// empty one).
template <class T>
__device__ int find(const T* begin, int n, T at) {
    int low = 0, high = n;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        (begin[mid] <= at ? low : high) = mid;
    }
    return low;
}

// --- LayerNorm -----------------------------------------------------------------------------------

// geometry: a block of row_threads(D) for each row; shared memory holds the row in h's dtype
// bytes:    size(h) D + size(y) D + 8 a row; gain and shift from the caches
// sync:     two block barriers (none at 32 threads)
template <class TH, class TY>
__global__ void __launch_bounds__(kMaxThreads) norm_fwd_kernel(NormFwd a, SegmentList seg) {
    VT_SHARED(sums, float[2][kMaxWarps]);
    VT_SHARED_DYNAMIC(cache, TH);
    const int64_t row = seg.begin[0] + static_cast<int64_t>(blockIdx.x);
    const int64_t m = seg.mod_row[find(seg.begin, seg.n, row)];
    const TH* h = static_cast<const TH*>(a.h) + row * a.D;
    TY* y = static_cast<TY*>(a.y) + row * a.D;
    const float* gain = a.gain + m * a.stride;
    const float* shift = a.shift + m * a.stride;
    const bool hv = aligned16(h), yv = aligned16(y), gv = aligned16(gain), sv = aligned16(shift);
    const int n = octets(a.D);
    const float inv = 1.0F / static_cast<float>(a.D);
    float v[kOct], g[kOct], s[kOct];

    float sum = 0;
    for (int o = tid(); o < n; o += threads()) {
        load8(h + o * kOct, a.D - o * kOct, hv, v);
        store8(cache + o * kOct, kOct, true, v);
        for (const float e : v) sum += e;
    }
    const float mean = block_sum(sum, sums[0]) * inv;

    float squares = 0;
    for (int o = tid(); o < n; o += threads()) {
        load8(cache + o * kOct, kOct, true, v);
        for (int i = 0; i < kOct; ++i) {
            if (o * kOct + i < a.D) squares += (v[i] - mean) * (v[i] - mean);
        }
    }
    const float rstd = 1.0F / sqrtf(block_sum(squares, sums[1]) * inv + a.eps);

    for (int o = tid(); o < n; o += threads()) {
        const int c = o * kOct, left = a.D - c;
        load8(cache + c, kOct, true, v);
        load8(gain + c, left, gv, g);
        load8(shift + c, left, sv, s);
        for (int i = 0; i < kOct; ++i) v[i] = (v[i] - mean) * rstd * (a.one + g[i]) + s[i];
        store8(y + c, left, yv, v);
    }
    if (tid() == 0) {
        a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
}

// geometry: a block of row_threads(D) for each piece; shared memory holds the piece's two column
//           sums and one row of dy and h
// bytes:    (size(dy) + size(h) + 8) D + 8 a row, 8 D a piece; gain from the caches
// sync:     one block barrier a row (none at 32 threads)
template <class TH, class TY>
__global__ void __launch_bounds__(kMaxThreads) norm_bwd_kernel(NormBwd a, SegmentList seg) {
    VT_SHARED(sums, float[2][2][kMaxWarps]);  // [of odd rows][which]: see block_sum
    VT_SHARED_DYNAMIC(shared, float);
    const int piece = static_cast<int>(blockIdx.x);
    const int i_seg = find(seg.piece, seg.n, piece);
    const int64_t begin = seg.begin[i_seg] + (piece - seg.piece[i_seg]) * seg.step;
    const int64_t end =
        begin + seg.step < seg.begin[i_seg + 1] ? begin + seg.step : seg.begin[i_seg + 1];
    const int n = octets(a.D), width = n * kOct;
    float* dshift = shared;
    float* dgain = dshift + width;
    TY* dy_row = reinterpret_cast<TY*>(dgain + width);
    TH* h_row = reinterpret_cast<TH*>(dy_row + width);
    const float* gain = a.gain + seg.mod_row[i_seg] * a.stride;
    const bool gv = aligned16(gain);
    const float inv = 1.0F / static_cast<float>(a.D);
    float dy[kOct], v[kOct], g[kOct], t[kOct];

    for (int o = tid(); o < n; o += threads()) {
        for (int i = 0; i < kOct; ++i) dshift[o * kOct + i] = dgain[o * kOct + i] = 0;
    }
    for (int64_t row = begin; row < end; ++row) {
        const TY* dy_in = static_cast<const TY*>(a.dy) + row * a.D;
        const TH* h_in = static_cast<const TH*>(a.h) + row * a.D;
        float* dh = a.dh + row * a.D;
        const bool dyv = aligned16(dy_in), hv = aligned16(h_in), dhv = aligned16(dh);
        const float mean = a.mean[row], rstd = a.rstd[row];
        float sum_g = 0, sum_gx = 0;
        for (int o = tid(); o < n; o += threads()) {
            const int c = o * kOct, left = a.D - c;
            load8(dy_in + c, left, dyv, dy);
            load8(h_in + c, left, hv, v);
            load8(gain + c, left, gv, g);
            store8(dy_row + c, kOct, true, dy);
            store8(h_row + c, kOct, true, v);
            for (int i = 0; i < kOct; ++i) {  // past the end dy is 0, and so is all that is added
                const float xh = (v[i] - mean) * rstd, gi = dy[i] * (a.one + g[i]);
                dshift[c + i] += dy[i];
                dgain[c + i] += dy[i] * xh;
                sum_g += gi;
                sum_gx += gi * xh;
            }
        }
        const int odd = static_cast<int>((row - begin) & 1);
        block_sum2(sum_g, sum_gx, sums[odd][0], sums[odd][1]);
        const float mean_g = sum_g * inv, mean_gx = sum_gx * inv;
        for (int o = tid(); o < n; o += threads()) {
            const int c = o * kOct, left = a.D - c;
            load8(dy_row + c, kOct, true, dy);
            load8(h_row + c, kOct, true, v);
            load8(gain + c, left, gv, g);
            load8(dh + c, left, dhv, t);
            for (int i = 0; i < kOct; ++i) {
                const float xh = (v[i] - mean) * rstd;
                t[i] += rstd * (dy[i] * (a.one + g[i]) - mean_g - xh * mean_gx);
            }
            store8(dh + c, left, dhv, t);
        }
    }
    float* out = a.partials + static_cast<int64_t>(piece) * 2 * a.D;
    const bool sv = aligned16(out), gov = aligned16(out + a.D);
    for (int o = tid(); o < n; o += threads()) {
        const int c = o * kOct, left = a.D - c;
        load8(dshift + c, kOct, true, v);
        store8(out + c, left, sv, v);
        load8(dgain + c, kOct, true, v);
        store8(out + a.D + c, left, gov, v);
    }
}

// geometry: grid (ceil(D / 32), sums), block (32, kAddWarps): a lane is a column, warp w adds
// pieces
//           w, w + kAddWarps, ... of a segment; segments one after another, so that two with the
//           same modulation row meet in order
// bytes:    4 D a piece and sum, 8 D a segment and sum
// sync:     one block barrier a segment
__global__ void __launch_bounds__(kLanes* kAddWarps)
    add_pieces_kernel(AddPieces a, SegmentList seg) {
    VT_SHARED(sums, float[2][kAddWarps][kLanes]);  // [of odd turns]
    const int lane = static_cast<int>(threadIdx.x), warp = static_cast<int>(threadIdx.y);
    const int c = static_cast<int>(blockIdx.x) * kLanes + lane,
              which = static_cast<int>(blockIdx.y);
    int turn = 0;
    for (int i = 0; i < seg.n; ++i) {
        if (seg.piece[i] == seg.piece[i + 1]) continue;  // the same in all threads
        float sum = 0;
        if (c < a.D) {
            for (int p = seg.piece[i] + warp; p < seg.piece[i + 1]; p += kAddWarps) {
                sum += a.partials[(static_cast<int64_t>(p) * a.sums + which) * a.D + c];
            }
        }
        sums[turn & 1][warp][lane] = sum;
        __syncthreads();
        if (warp == 0 && c < a.D) {
            float total = 0;
            for (int w = 0; w < kAddWarps; ++w) total += sums[turn & 1][w][lane];
            float* acc = which == 0 ? a.acc[0] : a.acc[1];
            acc[seg.mod_row[i] * a.stride + c] += total;
        }
        ++turn;
    }
}

// --- across-heads RMSNorm and rotation -----------------------------------------------------------

// The angles of one row: pair i of a head turns by t, h or w, one after another.
struct RowAngles {
    const float* table[3];
    int split0, split1;
    __device__ RowAngles(const RopeTables& r, int64_t row)
        : split0(r.pairs[0]), split1(r.pairs[0] + r.pairs[1]) {
        for (int k = 0; k < 3; ++k) {
            table[k] = r.cs[k] + static_cast<int64_t>(r.pos[row * 3 + k]) * r.pairs[k] * 2;
        }
    }
    __device__ const float* of(int pair) const {
        if (pair < split0) return table[0] + 2 * pair;
        if (pair < split1) return table[1] + 2 * (pair - split0);
        return table[2] + 2 * (pair - split1);
    }
};

// Turns the pairs of v, which start at column c; `direction` is 1, or -1 to turn back.
__device__ inline void turn(float (&v)[kOct], const QkNorm& a, int64_t row, int c,
                            float direction) {
    if (a.rope.pos == nullptr) return;
    const RowAngles angles(a.rope, row);
    for (int i = 0; i < kOct; i += 2) {
        if (c + i >= a.D) break;
        const float* cs = angles.of((c + i) % a.HD / 2);
        const float x = v[i], y = v[i + 1], cosine = cs[0], sine = cs[1] * direction;
        v[i] = x * cosine - y * sine;
        v[i + 1] = x * sine + y * cosine;
    }
}

__device__ inline float rms_of(const QkNorm& a, int64_t row) {
    return 1.0F / sqrtf(a.ssq[row] * a.inv_D + a.eps);
}

// geometry: a block of row_threads(D) for each row
// bytes:    size(x) D + 4 a row
// sync:     one block barrier (none at 32 threads)
template <class T>
__global__ void __launch_bounds__(kMaxThreads) row_sumsq_kernel(float* ssq, const T* x, int D) {
    VT_SHARED(sums, float[kMaxWarps]);
    const auto row = static_cast<int64_t>(blockIdx.x);
    x += row * D;
    const bool xv = aligned16(x);
    float v[kOct];
    float sum = 0;
    for (int o = tid(); o < octets(D); o += threads()) {
        load8(x + o * kOct, D - o * kOct, xv, v);
        for (const float e : v) sum += e * e;
    }
    sum = block_sum(sum, sums);
    if (tid() == 0) ssq[row] = sum;
}

// geometry: a block of row_threads(D) for each row; y may be x
// bytes:    2 size(x) D + 4 (+ 12) a row; w and the tables from the caches
// sync:     none
template <class T>
__global__ void __launch_bounds__(kMaxThreads) qknorm_fwd_kernel(QkNorm a) {
    const auto row = static_cast<int64_t>(blockIdx.x);
    const T* x = static_cast<const T*>(a.x) + row * a.D;
    T* y = static_cast<T*>(a.y) + row * a.D;
    const bool xv = aligned16(x), yv = aligned16(y), wv = aligned16(a.w);
    const float r = rms_of(a, row);
    float v[kOct], w[kOct];
    for (int o = tid(); o < octets(a.D); o += threads()) {
        const int c = o * kOct, left = a.D - c;
        load8(x + c, left, xv, v);
        load8(a.w + c, left, wv, w);
        for (int i = 0; i < kOct; ++i) v[i] *= r * w[i];
        turn(v, a, row, c, 1);
        store8(y + c, left, yv, v);
    }
}

// geometry: a block of row_threads(D) for each row
// bytes:    2 size(x) D + 4 (+ 12) a row; w and the tables from the caches
// sync:     one block barrier (none at 32 threads)
template <class T>
__global__ void __launch_bounds__(kMaxThreads) qknorm_bwd_dot_kernel(QkNorm a) {
    VT_SHARED(sums, float[kMaxWarps]);
    const auto row = static_cast<int64_t>(blockIdx.x);
    const T* x = static_cast<const T*>(a.x) + row * a.D;
    const T* dy = static_cast<const T*>(a.dy) + row * a.D;
    const bool xv = aligned16(x), dyv = aligned16(dy), wv = aligned16(a.w);
    float v[kOct], d[kOct], w[kOct];
    float sum = 0;
    for (int o = tid(); o < octets(a.D); o += threads()) {
        const int c = o * kOct, left = a.D - c;
        load8(x + c, left, xv, v);
        load8(dy + c, left, dyv, d);
        load8(a.w + c, left, wv, w);
        turn(d, a, row, c, -1);
        for (int i = 0; i < kOct; ++i) sum += d[i] * w[i] * v[i];
    }
    sum = block_sum(sum, sums);
    if (tid() == 0) a.dot[row] = sum;
}

// geometry: a block of row_threads(D) for each piece; shared memory holds its sum of dw; dx may be
// dy bytes:    3 size(x) D + 8 (+ 12) a row, 4 D a piece; w and the tables from the caches sync:
// none: a thread owns its columns in every row
template <class T>
__global__ void __launch_bounds__(kMaxThreads) qknorm_bwd_kernel(QkNorm a, SegmentList seg) {
    VT_SHARED_DYNAMIC(dw, float);
    const auto piece = static_cast<int64_t>(blockIdx.x);
    const int64_t begin = piece * seg.step;
    const int64_t end = begin + seg.step < seg.begin[1] ? begin + seg.step : seg.begin[1];
    const bool wv = aligned16(a.w);
    const int n = octets(a.D);
    float v[kOct], d[kOct], w[kOct], s[kOct];
    for (int o = tid(); o < n; o += threads()) {
        for (int i = 0; i < kOct; ++i) dw[o * kOct + i] = 0;
    }
    for (int64_t row = begin; row < end; ++row) {
        const T* x = static_cast<const T*>(a.x) + row * a.D;
        const T* dy = static_cast<const T*>(a.dy) + row * a.D;
        T* dx = static_cast<T*>(a.y) + row * a.D;
        const bool xv = aligned16(x), dyv = aligned16(dy), dxv = aligned16(dx);
        const float r = rms_of(a, row), pull = r * r * a.dots[row] * a.inv_D;
        for (int o = tid(); o < n; o += threads()) {
            const int c = o * kOct, left = a.D - c;
            load8(x + c, left, xv, v);
            load8(dy + c, left, dyv, d);
            load8(a.w + c, left, wv, w);
            turn(d, a, row, c, -1);
            for (int i = 0; i < kOct; ++i) {
                dw[c + i] += d[i] * v[i] * r;
                s[i] = r * (d[i] * w[i] - v[i] * pull);
            }
            store8(dx + c, left, dxv, s);
        }
    }
    float* out = a.partials + piece * a.D;
    const bool ov = aligned16(out);
    for (int o = tid(); o < n; o += threads()) {
        load8(dw + o * kOct, kOct, true, v);
        store8(out + o * kOct, a.D - o * kOct, ov, v);
    }
}

dim3 blocks(int64_t n) {
    return {static_cast<unsigned>(n), 1, 1};
}

// f(h_type{}, y_type{}) for two dtypes out of f32 and bf16.
template <class F>
void with_types(DType a, DType b, const F& f) {
    if (a == DType::kF32 && b == DType::kF32) return f(float{}, float{});
    if (a == DType::kF32) return f(float{}, bf16{});
    if (b == DType::kF32) return f(bf16{}, float{});
    return f(bf16{}, bf16{});
}
template <class F>
void with_type(DType t, const F& f) {
    if (t == DType::kF32) return f(float{});
    return f(bf16{});
}
double size(DType t) {
    return t == DType::kF32 ? 4 : 2;
}
double rows_of(const SegmentList& seg) {
    return static_cast<double>(seg.begin[seg.n] - seg.begin[0]);
}

}  // namespace

int row_threads(int64_t D) {
    // up to two octets a lane in one warp, up to four in four, then eight warps
    return D <= 512 ? kLanes : D <= 4096 ? 4 * kLanes : kMaxThreads;
}

void norm_fwd(const char* op, const NormFwd& a, const SegmentList& seg, cudaStream_t stream) {
    with_types(a.th, a.ty, [&]<class TH, class TY>(TH, TY) {
        const Launch l{.name = op,
                       .grid = blocks(seg.begin[seg.n] - seg.begin[0]),
                       .block = blocks(row_threads(a.D)),
                       .shared = sizeof(TH) * octets(a.D) * kOct,
                       .bytes = rows_of(seg) * ((size(a.th) + size(a.ty)) * a.D + 8),
                       .stream = stream};
        launch(l, norm_fwd_kernel<TH, TY>, a, seg);
    });
}

void norm_bwd(const char* op, const NormBwd& a, const SegmentList& seg, cudaStream_t stream) {
    with_types(a.th, a.ty, [&]<class TH, class TY>(TH, TY) {
        const Launch l{.name = op,
                       .grid = blocks(seg.piece[seg.n]),
                       .block = blocks(row_threads(a.D)),
                       .shared = (2 * sizeof(float) + sizeof(TH) + sizeof(TY)) * octets(a.D) * kOct,
                       .bytes = rows_of(seg) * ((size(a.th) + size(a.ty) + 8) * a.D + 8) +
                                8.0 * a.D * seg.piece[seg.n],
                       .stream = stream};
        launch(l, norm_bwd_kernel<TH, TY>, a, seg);
    });
}

void add_pieces(const char* op, const AddPieces& a, const SegmentList& seg, cudaStream_t stream) {
    const Launch l{.name = op,
                   .grid = {static_cast<unsigned>((a.D + kLanes - 1) / kLanes),
                            static_cast<unsigned>(a.sums), 1},
                   .block = {kLanes, kAddWarps, 1},
                   .bytes = a.sums * a.D * (4.0 * seg.piece[seg.n] + 8.0 * seg.n),
                   .stream = stream};
    launch(l, add_pieces_kernel, a, seg);
}

void row_sumsq(float* ssq, const void* x, int64_t S, int D, DType t, cudaStream_t stream) {
    with_type(t, [&]<class T>(T) {
        const Launch l{.name = "row_sumsq",
                       .grid = blocks(S),
                       .block = blocks(row_threads(D)),
                       .bytes = static_cast<double>(S) * (size(t) * D + 4),
                       .stream = stream};
        launch(l, row_sumsq_kernel<T>, ssq, static_cast<const T*>(x), D);
    });
}

void qknorm_fwd(const QkNorm& a, int64_t S, cudaStream_t stream) {
    with_type(a.t, [&]<class T>(T) {
        const Launch l{.name = "qknorm_rope_fwd",
                       .grid = blocks(S),
                       .block = blocks(row_threads(a.D)),
                       .bytes = static_cast<double>(S) * (2 * size(a.t) * a.D + 4),
                       .stream = stream};
        launch(l, qknorm_fwd_kernel<T>, a);
    });
}

void qknorm_bwd_dot(const QkNorm& a, int64_t S, cudaStream_t stream) {
    with_type(a.t, [&]<class T>(T) {
        const Launch l{.name = "qknorm_rope_bwd_dot",
                       .grid = blocks(S),
                       .block = blocks(row_threads(a.D)),
                       .bytes = static_cast<double>(S) * (2 * size(a.t) * a.D + 4),
                       .stream = stream};
        launch(l, qknorm_bwd_dot_kernel<T>, a);
    });
}

void qknorm_bwd(const QkNorm& a, const SegmentList& seg, cudaStream_t stream) {
    with_type(a.t, [&]<class T>(T) {
        const Launch l{
            .name = "qknorm_rope_bwd",
            .grid = blocks(seg.piece[seg.n]),
            .block = blocks(row_threads(a.D)),
            .shared = sizeof(float) * octets(a.D) * kOct,
            .bytes = rows_of(seg) * (3 * size(a.t) * a.D + 8) + 4.0 * a.D * seg.piece[seg.n],
            .stream = stream};
        launch(l, qknorm_bwd_kernel<T>, a, seg);
    });
}

}  // namespace vt::cuda
