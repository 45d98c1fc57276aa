// SPDX-License-Identifier: MIT
// A cached shard index. The checksum at its end is repaired, so that the input gets past it. What
// is accepted survives a round trip.
#include <cstring>

#include "core/hash.h"
#include "data/index.h"
#include "tests/fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace vt;
    std::string bytes(test::as_text(data, size));
    if (bytes.size() >= 8) {
        const uint64_t sum = xxh3(std::string_view(bytes).substr(0, bytes.size() - 8));
        std::memcpy(bytes.data() + bytes.size() - 8, &sum, 8);
    }
    const auto index = decode_index(bytes);
    if (!index) return 0;
    const std::string again = encode_index(*index);
    if (again != bytes) std::abort();
    return 0;
}
