// SPDX-License-Identifier: MIT
// What the copies of src/cpu/isa/*.cpp offer to the ops: plain functions on raw pointers and ranges
// of rows or elements. Ops cut the work and know tensors; kernels know registers. Only plain data
// and <cstdint> here, because the kernel copies include this (see isa/vec.h). Floor 2.
#pragma once

#include <cstdint>

namespace vt::kernel {

// Element types a kernel is made for; index of the tables below. bf16 is passed as its bits.
enum Type : int { kF32 = 0, kBF16 = 1, kNumTypes = 2 };

// LayerNorm over D with gain and shift per channel: modulation (gain 1 + scale) or affine (gain).
struct NormFwd {
    void* y;             // (S,D)
    float* mean;         // (S)
    float* rstd;         // (S)
    const void* h;       // (S,D)
    const float* shift;  // (D)
    const float* scale;  // (D)
    int64_t D;
    float eps;
};
struct NormBwd {
    float* dh;      // (S,D) acc
    float* dshift;  // (D) out: the sums over the call's rows only
    float* dscale;  // (D) out
    const void* dy;
    const void* h;
    const float* mean;
    const float* rstd;
    const float* scale;  // (D)
    int64_t D;
};

struct QkNorm {
    void* y;             // (S,Dl): y, or dx
    float* dw;           // (Dl) out, backward: the sums over the call's rows only
    float* dot;          // (S) out of bwd_dot
    const void* dy;      // (S,Dl) backward
    const void* x;       // (S,Dl)
    const float* ssq;    // (S)
    const float* dots;   // (S) in, backward
    const float* w;      // (Dl)
    const float* cs[3];  // tables of the axes: (positions, n/2, 2)
    int64_t n[3];        // channels of a head each axis turns; sum HD
    const int32_t* pos;  // (S,3), null: no rotation
    int64_t Dl, HD;
    double D_global, eps;
};

struct Gate {
    void* h;            // fwd: (S,D) acc, residual type
    void* dout;         // bwd: (S,D) out
    float* dgate;       // bwd: (D) out, the sums over the call's rows only; null without gate
    const float* dh;    // bwd: (S,D)
    const void* o;      // (S,D)
    const float* gate;  // (D) or null
    int64_t D;
};

struct Noise {
    float* xt;
    float* target;
    const void* x0;  // one sample
    float mix[4];    // xt = mix[0] x0 + mix[1] e, target = mix[2] x0 + mix[3] e
    uint64_t seed, id;
    uint32_t purpose;
};

struct Adam {
    float* p;
    float* m;
    float* v;
    uint16_t* low;  // or null
    const float* g;
    // p' = keep_p p - step m' / (sqrt(v') root + eps)
    float clip, keep_p, b1, one_b1, b2, one_b2, step, root, eps;
};

struct Table {
    // [affine][type of h][type of y or dy]; rows [begin, end)
    void (*norm_fwd[2][2][2])(const NormFwd& a, int64_t begin, int64_t end);
    void (*norm_bwd[2][2][2])(const NormBwd& a, int64_t begin, int64_t end);
    void (*row_sumsq[2])(float* ssq, const void* x, int64_t D, int64_t begin, int64_t end);
    // angles: 2 HD floats of the calling thread's own
    void (*qknorm_fwd[2])(const QkNorm& a, float* angles, int64_t begin, int64_t end);
    void (*qknorm_bwd_dot[2])(const QkNorm& a, float* angles, int64_t begin, int64_t end);
    void (*qknorm_bwd[2])(const QkNorm& a, float* angles, int64_t begin, int64_t end);
    // [type of h][type of o]
    void (*gate_fwd[2][2])(const Gate& a, int64_t begin, int64_t end);
    // [type of dout][type of o]
    void (*gate_bwd[2][2])(const Gate& a, int64_t begin, int64_t end);

    // elements [begin, end); [type of y][type of x]
    void (*silu_fwd[2][2])(void* y, const void* x, int64_t begin, int64_t end);
    void (*silu_bwd[2][2])(float* dx, const void* dy, const void* x, int64_t begin, int64_t end);
    void (*cast[2][2])(void* y, const void* x, int64_t begin, int64_t end);
    void (*add[2])(float* y, const void* x, int64_t begin, int64_t end);
    void (*sum_of)(float* y, const float* a, const float* b, int64_t begin, int64_t end);
    // acc[c] += parts[0][c] + parts[1][c] + ... for c in [begin, end); parts lie stride apart
    void (*add_parts)(float* acc, const float* parts, int64_t stride, int64_t n, int64_t begin,
                      int64_t end);

    void (*noise[2])(const Noise& a, int64_t begin, int64_t end);  // begin a multiple of 64
    // returns the sum of squares; dv may be null
    double (*loss)(float* dv, const float* v, const float* target, float twice_coef, int64_t begin,
                   int64_t end);
    void (*adamw)(const Adam& a, int64_t begin, int64_t end);
    double (*sumsq)(const float* x, int64_t begin, int64_t end);
    void (*ema)(float* e, const float* p, float rate, int64_t begin, int64_t end);
};

}  // namespace vt::kernel

namespace vt::baseline {
void fill_rows(kernel::Table& t);
}
namespace vt::avx2 {
void fill_rows(kernel::Table& t);
}
namespace vt::avx512 {
void fill_rows(kernel::Table& t);
}
