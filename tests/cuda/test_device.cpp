// SPDX-License-Identifier: MIT
// Device memory, the stream and its copies, launches and errors, on a double of the CUDA runtime.
#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "core/arena.h"
#include "cuda/cuda_backend.h"
#include "cuda/launch.h"
#include "cuda/stream.h"
#include "ops/transfer.h"
#include "tests/cuda/runtime_double.h"

using namespace vt;
using namespace vt::test;
using cuda::Stream;

namespace {

std::vector<int32_t> counted(int64_t n, int32_t from) {
    std::vector<int32_t> v(static_cast<size_t>(n));
    std::iota(v.begin(), v.end(), from);
    return v;
}

}  // namespace

TEST_CASE("cuda/device: arenas on device memory, copies of any length both ways") {
    const int64_t live = gpu::state().live;
    {
        const auto device = open_cuda_device(0);
        const Ctx ctx{.ops = &cuda_ops(), .stream = device->stream()};
        constexpr int64_t kStageInts = Stream::kStage / 4;
        for (const int64_t n :
             {int64_t{1}, int64_t{1000}, kStageInts, kStageInts + 1, 3 * kStageInts + 7}) {
            Arena arena("test", MemCategory::kData, device->memory());
            static_cast<void>(arena.alloc("a", {n}, DType::kI32));
            arena.reserve();
            const Tensor t = arena.alloc("a", {n}, DType::kI32);
            std::vector<int32_t> in = counted(n, 5), out(in.size());
            upload(ctx, t, in);
            std::fill(in.begin(), in.end(), 0);  // allowed at once: the bytes are staged
            download(ctx, out, CTensor(t));
            CHECK(out == counted(n, 5));
        }
        // one copy after another through the same staging, read back in the end
        Arena arena("test", MemCategory::kData, device->memory());
        static_cast<void>(arena.alloc("a", {8, 1000}, DType::kI32));
        arena.reserve();
        const Tensor t = arena.alloc("a", {8, 1000}, DType::kI32);
        for (int64_t i = 0; i < 8; ++i) {
            upload(ctx, t.rows(i, i + 1), counted(1000, static_cast<int32_t>(i * 1000)));
        }
        std::vector<int32_t> out(8000);
        download(ctx, out, CTensor(t));
        CHECK(out == counted(8000, 0));
        CHECK(device->describe() == "Double, sm_90, 3 GiB");
    }
    CHECK(gpu::state().live == live);
}

TEST_CASE("cuda/device: a failed call is named, with its size, and nothing leaks") {
    const int64_t live = gpu::state().live;
    const auto fails = [](const char* call, const char* says, const auto& what) {
        gpu::state().fail = call;
        try {
            what();
            FAIL(call << " did not fail");
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kSystem);
            CHECK_MESSAGE(e.message().find(says) == 0, e.message());
        }
        gpu::state().fail.clear();
    };
    for (const char* call : {"cudaGetDeviceCount", "cudaSetDevice", "cudaStreamCreateWithFlags",
                             "cudaMallocHost", "cudaEventCreateWithFlags"}) {
        fails(call, call, [] { static_cast<void>(open_cuda_device(0)); });
        CHECK(gpu::state().live == live);
    }
    CHECK_THROWS_WITH_AS(static_cast<void>(open_cuda_device(1)),
                         "device 1 of 1: there is no such CUDA device", Error);
    {
        const auto device = open_cuda_device(0);
        fails("cudaMalloc", "cudaMalloc(4096 bytes): out of memory (cudaErrorMemoryAllocation)",
              [&] {
                  Arena arena("test", MemCategory::kData, device->memory());
                  static_cast<void>(arena.alloc("a", {1024}, DType::kF32));
                  arena.reserve();
              });
        Stream& stream = *static_cast<Stream*>(device->stream());
        std::vector<char> from(100), to(100);
        fails("cudaMemcpyAsync", "cudaMemcpyAsync(100 bytes to the device)",
              [&] { stream.copy_in(to.data(), from.data(), 100); });
        fails("cudaMemcpyAsync", "cudaMemcpyAsync(100 bytes from the device)",
              [&] { stream.copy_out(to.data(), from.data(), 100); });
        fails("cudaStreamSynchronize", "cudaStreamSynchronize", [&] { device->wait(); });
    }
    CHECK(gpu::state().live == live);
}

TEST_CASE("cuda/device: a launch is checked before and after") {
    const cuda::Launch good{.name = "some_op", .grid = {7, 1, 1}, .block = {256, 1, 1}};
    CHECK_NOTHROW(cuda::before_launch(good));
    const auto bad = [&](const char* says, const auto& spoil) {
        cuda::Launch l = good;
        spoil(l);
        CHECK_THROWS_WITH_AS(cuda::before_launch(l), doctest::Contains(says), Error);
    };
    bad("some_op: a grid of (0,1,1) blocks", [](cuda::Launch& l) { l.grid.x = 0; });
    bad("some_op: a grid of (2147483648,1,1)", [](cuda::Launch& l) { l.grid.x = 1U << 31; });
    bad("some_op: a grid of (7,65536,1) blocks", [](cuda::Launch& l) { l.grid.y = 65536; });
    bad("some_op: a block of (256,5,1) threads", [](cuda::Launch& l) { l.block.y = 5; });
    bad("some_op: 232449 bytes of shared memory", [](cuda::Launch& l) { l.shared = 232449; });

    const auto calls = [](const cuda::Launch& l) {
        gpu::state().calls.clear();
        cuda::start(l, nullptr, nullptr);
        return gpu::state().calls;
    };
    cuda::Launch large = good;
    large.shared = 100000;
    CHECK(calls(good) == std::vector<std::string>{"cudaLaunchKernelExC"});
    CHECK(calls(large) == std::vector<std::string>{"cudaFuncSetAttribute", "cudaLaunchKernelExC"});
    gpu::state().fail = "cudaLaunchKernelExC";
    CHECK_THROWS_WITH_AS(
        cuda::start(large, nullptr, nullptr),
        doctest::Contains("cudaLaunchKernelExC(some_op, grid (7,1,1), block (256,1,1), 100000 "
                          "bytes of shared memory): out of memory (cudaErrorMemoryAllocation)"),
        Error);
}

TEST_CASE("cuda/device: the table holds what there is, and says what is missing") {
    const std::string missing = missing_ops(cuda_ops());
    CHECK(missing.find("attention_fwd") != std::string::npos);
    CHECK(missing.find("modnorm_fwd") == std::string::npos);
    CHECK(missing.find("scratch_bytes") == std::string::npos);
    CHECK_THROWS_WITH_AS(check_complete(cuda_ops()),
                         doctest::Contains("'cuda' has no implementation of: "), Error);
    // an op without a stream is a bug of the caller
    float x[4] = {1, 2, 3, 4}, ssq[1] = {};
    const Ctx ctx{.ops = &cuda_ops()};
    CHECK_THROWS_WITH_AS(
        row_sumsq(ctx, Tensor(ssq, {1}, DType::kF32), CTensor(x, {1, 4}, DType::kF32)),
        doctest::Contains("row_sumsq: Ctx::stream is null"), Error);
}
