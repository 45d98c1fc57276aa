// SPDX-License-Identifier: MIT
// linear_fwd on the GPU's side: the descriptors that the wrapper builds, evaluated by a double of
// cuBLASLt; the passes around the product, emulated.
#include <malloc.h>
#include <string>

#include <doctest/doctest.h>

#include "cuda/blas.h"
#include "cuda/cuda_backend.h"
#include "tests/cuda/blas_double.h"
#include "tests/cuda/emu/emu.h"
#include "tests/cuda/runtime_double.h"
#include "tests/ops/run.h"
#include "tests/ref/ref.h"

using namespace vt;
using namespace vt::test;

namespace {

// Each run takes a poisoned workspace of 32 MiB: from a heap that keeps it, not from new pages.
[[maybe_unused]] const bool kKeepHeap =
    mallopt(M_MMAP_THRESHOLD, 1 << 28) + mallopt(M_TRIM_THRESHOLD, 1 << 28) > 0;

std::vector<Case> linear_rows() {
    std::vector<Case> rows, kept;
    add_linear_cases(rows);
    for (Case& c : rows) {
        if (c.bench || c.op != "linear_fwd") continue;
        // cuBLASLt takes a bias in y's dtype: rounded to bf16, u |b| more than the table allows
        int b = -1;
        for (size_t k = 0; k < c.args.size(); ++k) {
            if (c.args[k].name == "b") b = static_cast<int>(k);
        }
        for (Arg& arg : c.args) {
            if (arg.role != Role::kOut || b < 0) continue;
            const bool gelu = c.shape.find("gelu") != std::string::npos;
            const bool rounded = (gelu ? c.dtype : arg.dtype) == DType::kBF16;
            // |gelu'| <= 1.13
            if (rounded) arg.bound.terms.push_back({1.13, kUBF16, Mag::kMax, b});
        }
        kept.push_back(std::move(c));
    }
    return kept;
}

std::string judged(const Ops& ops, const Case& c, void* stream, bool odd) {
    const Memory inputs = make_inputs(c);
    Memory want(c), got(c, odd);
    CHECK(run_case(ref_ops(), nullptr, c, inputs, want).empty());
    const std::string hurt = run_case(ops, nullptr, c, inputs, got, stream);
    return hurt.empty() ? judge(c, inputs, want, got).failure : hurt;
}

}  // namespace

TEST_CASE("cuda/linear: every row of the table, aligned and not") {
    const auto device = open_cuda_device(0);
    int rows = 0;
    for (const Case& c : linear_rows()) {
        for (const bool odd : {false, true}) {
            const std::string wrong = judged(cuda_ops(), c, device->stream(), odd);
            CHECK_MESSAGE(wrong.empty(), c.name(), odd ? " odd" : "", ": ", wrong,
                          gpu::blas_state().refused);
        }
        ++rows;
    }
    CHECK(rows >= 40);
}

TEST_CASE("cuda/linear: tf32 rounds the operands and nothing else") {
    const auto device = open_cuda_device(0);
    for (Case& c : linear_rows()) {
        if (c.dtype != DType::kF32) continue;
        gpu::blas_state().tf32 = false;
        // two operands rounded to 11 bits: 2 u of each product, u = 2^-11, and gelu' <= 1.13
        for (Arg& arg : c.args) {
            if (arg.role != Role::kOut) continue;
            int pre = -1;
            for (size_t k = 0; k < c.args.size(); ++k) {
                if (c.args[k].name == "pre") pre = static_cast<int>(k);
            }
            arg.bound.terms.push_back({2.3, 0x1p-11, Mag::kAbs, arg.name == "y" ? pre : -1});
        }
        const std::string wrong = judged(cuda_ops(true), c, device->stream(), false);
        CHECK_MESSAGE(wrong.empty(), c.name(), ": ", wrong);
        CHECK(gpu::blas_state().tf32);
    }
    // bf16 products have no tf32
    for (const Case& c : linear_rows()) {
        if (c.dtype != DType::kBF16 || c.shape.find("S64") != 0) continue;
        CHECK(judged(cuda_ops(true), c, device->stream(), false).empty());
        CHECK_FALSE(gpu::blas_state().tf32);
    }
}

TEST_CASE("cuda/linear: an algorithm is asked for once for each shape, dtype and alignment") {
    const auto device = open_cuda_device(0);
    const auto rows = linear_rows();
    const auto asked = [&](const Case& c, bool odd) {
        const int64_t before = gpu::blas_state().heuristics;
        CHECK(judged(cuda_ops(), c, device->stream(), odd).empty());
        return gpu::blas_state().heuristics - before;
    };
    const Case *f32 = nullptr, *b16 = nullptr;
    for (const Case& c : rows) {
        if (c.shape == "S64 N48 K32 b") (c.dtype == DType::kF32 ? f32 : b16) = &c;
    }
    REQUIRE(f32 != nullptr);
    REQUIRE(b16 != nullptr);
    CHECK(asked(*f32, false) == 1);
    CHECK(asked(*f32, false) == 0);
    CHECK(asked(*f32, true) == 1);
    CHECK(asked(*b16, false) == 1);
    CHECK(asked(*f32, false) + asked(*f32, true) + asked(*b16, false) == 0);
}

TEST_CASE("cuda/linear: a refusal names the call and the shape; nothing is left behind") {
    const Case c = [] {
        for (const Case& row : linear_rows()) {
            if (row.shape == "S17 N33 K65 b" && row.dtype == DType::kBF16) return row;
        }
        raise(Fault::kBug, "no such row");
    }();
    const int64_t live = gpu::blas_state().live;
    {
        const auto device = open_cuda_device(0);
        gpu::blas_state().no_algorithm = true;
        CHECK_THROWS_WITH_AS(
            judged(cuda_ops(), c, device->stream(), false),
            doctest::Contains(
                "cublasLtMatmulAlgoGetHeuristic (S 17, N 33, K 65, bf16 to bf16, bias)"),
            Error);
        gpu::blas_state().no_algorithm = false;
        CHECK(judged(cuda_ops(), c, device->stream(), false).empty());
    }
    CHECK(gpu::blas_state().live == live);
}

TEST_CASE("cuda/linear: an empty batch asks for nothing") {
    const auto device = open_cuda_device(0);
    const int64_t before = gpu::blas_state().products;
    float w[6] = {}, b[2] = {};
    const Ctx ctx{.ops = &cuda_ops(), .stream = device->stream()};
    linear_fwd(ctx, Tensor(nullptr, {0, 2}, DType::kF32), {}, CTensor(nullptr, {0, 3}, DType::kF32),
               CTensor(w, {2, 3}, DType::kF32), CTensor(b, {2}, DType::kF32), Epilogue::kNone);
    CHECK(gpu::blas_state().products == before);
}
