// SPDX-License-Identifier: MIT
// A safetensors header. The input is the JSON text and what follows it; the eight bytes of its
// length are made here (from its first two bytes). Every tensor that is accepted can be read.
#include <cstring>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "data/safetensors.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vt;
    if (size < 2) return 0;
    const size_t payload = std::min<size_t>(size - 2, (size_t{data[0]} | size_t{data[1]} << 8));
    const uint64_t header = size - 2 - payload;
    const int fd = ::memfd_create("fuzz", 0);
    if (fd < 0) std::abort();
    if (::write(fd, &header, 8) != 8 ||
        ::write(fd, data + 2, size - 2) != static_cast<ssize_t>(size - 2)) {
        std::abort();
    }
    test::must_refuse_or_accept([&] {
        const SafetensorsReader r("/proc/self/fd/" + std::to_string(fd));
        for (const StoredTensor& t : r.tensors()) {
            if (t.type == StoredType::kI64 || t.type == StoredType::kI32 ||
                t.type == StoredType::kU8) {
                continue;
            }
            std::vector<float> values(static_cast<size_t>(t.shape.numel()));
            r.read(t, Tensor(values.data(), t.shape, DType::kF32));
        }
    });
    ::close(fd);
    return 0;
}
