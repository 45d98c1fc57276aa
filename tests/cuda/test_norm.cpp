// SPDX-License-Identifier: MIT
// The GPU's kernels of ops/norm.h, their own source run on the CPU by the emulator, judged by the
// rows of the op case table that judge every backend. Races, stray accesses to shared memory and
// reads of it before a write end a launch with a report.
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cuda/cuda_backend.h"
#include "cuda/norm_kernels.h"
#include "cuda/slots.h"
#include "tests/cuda/emu/runtime.h"
#include "tests/cuda/runtime_double.h"
#include "tests/ops/run.h"
#include "tests/ref/ref.h"

using namespace vt;
using namespace vt::test;

namespace {

std::vector<Case> norm_rows() {
    std::vector<Case> rows, kept;
    add_norm_cases(rows);
    for (Case& c : rows) {
        if (!c.bench) kept.push_back(std::move(c));
    }
    return kept;
}

// The table with the scratch of these ops alone, so that its guard bands lie at what they may use.
const Ops& norm_ops() {
    static const Ops kOps = [] {
        Ops ops = cuda_ops();
        ops.scratch_bytes = cuda::norm_scratch_bytes;
        return ops;
    }();
    return kOps;
}

// One row under some orders of threads and at two alignments. The tolerance is that of the table;
// alignment and order must not change a bit.
void judge_row(const Case& c, void* stream) {
    const Memory inputs = make_inputs(c);
    Memory want(c);
    REQUIRE(run_case(ref_ops(), nullptr, c, inputs, want).empty());
    Memory first(c);
    for (const uint64_t seed : {0, 1, 2}) {
        emu::options().seed = seed;
        Memory got(c, seed == 1);
        const std::string hurt = run_case(norm_ops(), nullptr, c, inputs, got, stream);
        CHECK_MESSAGE(hurt.empty(), c.name(), ": ", hurt);
        const Verdict v = judge(c, inputs, want, got);
        CHECK_MESSAGE(v.failure.empty(), c.name(), ": ", v.failure);
        if (seed == 0) {
            first = std::move(got);
            continue;
        }
        const std::string arg = different_bits(c, first, got);
        CHECK_MESSAGE(arg.empty(), c.name(), ": ", arg, " differs under seed ", seed);
    }
    emu::options().seed = 1;
}

void judge_op(const char* op) {
    const auto device = open_cuda_device(0);
    int rows = 0;
    for (const Case& c : norm_rows()) {
        if (c.op != op) continue;
        judge_row(c, device->stream());
        ++rows;
    }
    CHECK(rows >= 10);
}

}  // namespace

#define VT_JUDGE(op)                                                          \
    TEST_CASE("cuda/norm: " #op " is within tolerance, whatever the order") { \
        judge_op(#op);                                                        \
    }
VT_JUDGE(modnorm_fwd)
VT_JUDGE(modnorm_bwd)
VT_JUDGE(layernorm_fwd)
VT_JUDGE(layernorm_bwd)
VT_JUDGE(row_sumsq)
VT_JUDGE(qknorm_rope_fwd)
VT_JUDGE(qknorm_rope_bwd_dot)
VT_JUDGE(qknorm_rope_bwd)
#undef VT_JUDGE

namespace {

// A row of the table's kind, of any size: LayerNorm with modulation, all in one dtype.
Case modnorm_row(const std::vector<int64_t>& lengths, const std::vector<int64_t>& mod_rows,
                 int64_t D, bool backward) {
    Seg seg = make_seg(lengths);
    int64_t n_mod = 1;
    for (const int64_t m : mod_rows) n_mod = std::max(n_mod, m + 1);
    seg.mod_row = mod_rows;
    const int64_t S = seg.begin.back();
    const DType t = DType::kF32;
    Case c(backward ? "modnorm_bwd" : "modnorm_fwd", fmt::format("S{} D{}", S, D), t);
    const ModIndex at{.shift = 0, .scale = 1};
    const Bound row = within("16u of the row", t, {{32, kU32, Mag::kMax}});
    const int h = c.in("h", {S, D}, t), mod = c.in("mod", {n_mod, 2, D}, t);
    c.need = {.rows = S, .width = D};
    if (!backward) {
        const int y = c.out("y", {S, D}, t, row), mean = c.out("mean", {S}, t, row),
                  rstd = c.out("rstd", {S}, t, row);
        c.call = [=](const Ctx& ctx, const Args& a) {
            modnorm_fwd(ctx, a[y], a[mean], a[rstd], a[h], a[mod], at, seg.view(), 1e-6);
        };
        return c;
    }
    const int y = c.in("y", {S, D}, t), dy = c.in("dy", {S, D}, t);
    const int mean = c.in("mean", {S}, t), rstd = c.in("rstd", {S}, t);
    const int dh = c.acc("dh", {S, D}, t, row);
    const double sums = 8 + 4 * std::sqrt(static_cast<double>(S));
    const int dmod =
        c.acc("dmod", {n_mod, 2, D}, t, within("f32 sum over S", t, {{sums, kU32, Mag::kMax}}));
    c.prepare = [=](const Ctx& ctx, const Args& a) {
        modnorm_fwd(ctx, a[y], a[mean], a[rstd], a[h], a[mod], at, seg.view(), 1e-6);
    };
    c.call = [=](const Ctx& ctx, const Args& a) {
        modnorm_bwd(ctx, a[dh], a[dmod], a[dy], a[h], a[mean], a[rstd], a[mod], at, seg.view());
    };
    return c;
}

}  // namespace

TEST_CASE("cuda/norm: more segments than a launch takes, and segments that share a row") {
    std::vector<int64_t> lengths, rows;
    for (int64_t i = 0; i < 150; ++i) {
        lengths.push_back(i % 7 == 3 ? 0 : 1 + i % 3);
        rows.push_back(i * i % 5);
    }
    const auto device = open_cuda_device(0);
    for (const bool backward : {false, true}) {
        gpu::state().launches.clear();
        const Case c = modnorm_row(lengths, rows, 20, backward);
        judge_row(c, device->stream());
        CHECK(gpu::state().launches.size() == (backward ? 18 : 9));  // three runs of three lists
    }
    // all of a list empty, first or last
    judge_row(modnorm_row({0, 0}, {0, 1}, 9, true), device->stream());
    judge_row(modnorm_row({0, 4, 0}, {1, 0, 2}, 9, true), device->stream());
}

TEST_CASE("cuda/norm: wide rows take four and eight warps, and more than 48 KiB") {
    const auto device = open_cuda_device(0);
    for (const int64_t D : {513, 1536, 4104, 6000}) {
        judge_row(modnorm_row({3, 2}, {1, 0}, D, false), device->stream());
        judge_row(modnorm_row({3, 2}, {1, 0}, D, true), device->stream());
    }
    CHECK(cuda::row_threads(512) == 32);
    CHECK(cuda::row_threads(1536) == 128);
    CHECK(cuda::row_threads(5120) == 256);
}

#ifndef __SANITIZE_ADDRESS__  // traffic is counted where races are watched

namespace {

struct Moved {
    int64_t read = 0, written = 0;
};
// What kernels moved of each argument in one run of the case.
std::map<std::string, Moved> traffic_of(const Case& c) {
    const auto device = open_cuda_device(0);
    const Memory inputs = make_inputs(c);
    Memory work(c);
    emu::traffic().clear();
    for (const Tensor& t : work.args.tensors) {
        const char* p = static_cast<const char*>(t.data);
        emu::traffic().push_back({.lo = p, .hi = p + t.bytes()});
    }
    CHECK(run_case(norm_ops(), nullptr, c, inputs, work, device->stream()).empty());
    std::map<std::string, Moved> moved;
    for (size_t k = 0; k < c.args.size(); ++k) {
        moved[c.args[k].name] = {emu::traffic()[k].read, emu::traffic()[k].written};
    }
    emu::traffic().clear();
    return moved;
}

}  // namespace

TEST_CASE("cuda/norm: each row tensor is read and written once") {
    for (const Case& c : norm_rows()) {
        if (c.shape.find("S40+200+7") == std::string::npos && c.shape.find("S33") != 0) continue;
        const auto moved = traffic_of(c);
        for (const Arg& arg : c.args) {
            // of the rows; gains, tables and statistics are small
            if (arg.shape.rank != 2 || arg.shape[1] < 8 || arg.name == "y") continue;
            const int64_t bytes = arg.shape.numel() * size_of(arg.dtype);
            const Moved& m = moved.at(arg.name);
            INFO(c.name(), ": ", arg.name);
            CHECK(m.read == (arg.role == Role::kOut ? 0 : bytes));
            CHECK(m.written == (arg.role == Role::kIn ? 0 : bytes));
        }
    }
}

TEST_CASE("cuda/norm: a launch declares the bytes it moves") {
    // rows of 96 columns: gains come from the caches and are not part of what is declared
    for (const Case& c : norm_rows()) {
        if (c.shape.find("S40+200+7") == std::string::npos && c.shape.find("S33") != 0) continue;
        gpu::state().launches.clear();
        const auto moved = traffic_of(c);
        double declared = 0, counted = 0, sums = 0;
        for (const auto& l : gpu::state().launches) {
            (l.name.find(".sums") == std::string::npos ? declared : sums) += l.bytes;
        }
        for (const Arg& arg : c.args) {
            const bool row = arg.shape.rank == 2 && arg.shape[1] >= 8;
            const bool statistic = arg.shape.rank == 1 && arg.shape[0] == c.need.rows;
            if (!row && !statistic) continue;
            const Moved& m = moved.at(arg.name);
            // every thread of a block reads a statistic: once from memory
            counted += statistic ? static_cast<double>(arg.shape.numel()) * 4 *
                                       ((m.read > 0 ? 1 : 0) + (m.written > 0 ? 1 : 0))
                                 : static_cast<double>(m.read + m.written);
        }
        // what a backward adds are its pieces' sums, which are read again by the launch after it
        INFO(c.name());
        if (sums == 0) {
            CHECK(declared == counted);
        } else {
            CHECK(declared > counted);
            CHECK(declared < counted + sums + 1);
        }
    }
}

#endif
