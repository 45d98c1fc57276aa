// SPDX-License-Identifier: MIT
#include "tests/cuda/runtime_double.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

#include <cuda_runtime_api.h>

#include "tests/cuda/emu/emu.h"

// What the opaque handles point to.
struct CUstream_st {
    std::vector<std::function<void()>> queue;
    size_t done = 0;
    void run(size_t until) {
        while (done < until) queue[done++]();
    }
};
struct CUevent_st {
    CUstream_st* stream = nullptr;
    size_t at = 0;
};

namespace vt::test::gpu {

namespace {

void before_kernel(const char* name, double bytes, void* stream) {
    state().launches.push_back({name, bytes});
    auto* s = static_cast<CUstream_st*>(stream);
    if (s != nullptr) s->run(s->queue.size());
}

const bool kInstalled = (emu::launching = before_kernel, true);

}  // namespace

State& state() {
    static State the;
    (void)kInstalled;
    return the;
}

namespace {

cudaError_t called(const char* name) {
    state().calls.emplace_back(name);
    if (state().fail != name) return cudaSuccess;
    state().fail.clear();
    return cudaErrorMemoryAllocation;
}

cudaError_t take(void** p, size_t bytes, const char* name) {
    if (const cudaError_t e = called(name); e != cudaSuccess) return e;
    *p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (*p == nullptr) return cudaErrorMemoryAllocation;
    std::memset(*p, 0xff, bytes);
    ++state().live;
    return cudaSuccess;
}

}  // namespace

}  // namespace vt::test::gpu

using vt::test::gpu::called;
using vt::test::gpu::state;
using vt::test::gpu::take;

extern "C" {

const char* cudaGetErrorString(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "out of memory" : "some error";
}
const char* cudaGetErrorName(cudaError_t e) {
    return e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorUnknown";
}
cudaError_t cudaGetDeviceCount(int* n) {
    *n = state().devices;
    return called("cudaGetDeviceCount");
}
cudaError_t cudaSetDevice(int /*index*/) {
    return called("cudaSetDevice");
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int /*index*/) {
    *p = {};
    std::snprintf(p->name, sizeof(p->name), "Double");
    p->major = 9;
    p->totalGlobalMem = size_t{3} << 30;
    return called("cudaGetDeviceProperties");
}
cudaError_t cudaMalloc(void** p, size_t bytes) {
    return take(p, bytes, "cudaMalloc");
}
cudaError_t cudaFree(void* p) {
    std::free(p);
    --state().live;
    return called("cudaFree");
}
cudaError_t cudaMallocHost(void** p, size_t bytes) {
    return take(p, bytes, "cudaMallocHost");
}
cudaError_t cudaFreeHost(void* p) {
    std::free(p);
    --state().live;
    return called("cudaFreeHost");
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* s, unsigned /*flags*/) {
    if (const cudaError_t e = called("cudaStreamCreateWithFlags"); e != cudaSuccess) return e;
    *s = new CUstream_st;
    ++state().live;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    delete s;
    --state().live;
    return called("cudaStreamDestroy");
}
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    if (const cudaError_t e = called("cudaStreamSynchronize"); e != cudaSuccess) return e;
    s->run(s->queue.size());
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind /*kind*/,
                            cudaStream_t s) {
    if (const cudaError_t e = called("cudaMemcpyAsync"); e != cudaSuccess) return e;
    s->queue.emplace_back([=] { std::memcpy(to, from, bytes); });
    return cudaSuccess;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* e, unsigned /*flags*/) {
    if (const cudaError_t error = called("cudaEventCreateWithFlags"); error != cudaSuccess) {
        return error;
    }
    *e = new CUevent_st;
    ++state().live;
    return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    delete e;
    --state().live;
    return called("cudaEventDestroy");
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t s) {
    if (const cudaError_t error = called("cudaEventRecord"); error != cudaSuccess) return error;
    *e = {s, s->queue.size()};
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    if (const cudaError_t error = called("cudaEventSynchronize"); error != cudaSuccess) {
        return error;
    }
    if (e->stream != nullptr) e->stream->run(e->at);  // an event that was never recorded is done
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void* /*kernel*/, cudaFuncAttribute /*what*/,
                                 int /*value*/) {
    return called("cudaFuncSetAttribute");
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* /*config*/, const void* /*kernel*/,
                                void** /*arguments*/) {
    return called("cudaLaunchKernelExC");
}

}  // extern "C"
