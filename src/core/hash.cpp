// SPDX-License-Identifier: MIT
#include "core/hash.h"

#include <sys/random.h>
#include <xxhash.h>

#include "core/check.h"

namespace vt {

uint64_t xxh3(const void* data, int64_t bytes) {
    return XXH3_64bits(data, narrow<size_t>(bytes));
}

uint64_t unique_bits() {
    uint64_t bits = 0;
    if (::getrandom(&bits, sizeof bits, 0) != sizeof bits) {
        raise(Fault::kSystem, "the kernel gives no random numbers");
    }
    return bits;
}

std::string hex64(uint64_t value) {
    return fmt::format("{:016x}", value);
}

Xxh3Stream::Xxh3Stream() : state_(XXH3_createState()) {
    VT_CHECK(state_ != nullptr, "no memory for a hash state");
    XXH3_64bits_reset(static_cast<XXH3_state_t*>(state_));
}
Xxh3Stream::~Xxh3Stream() {
    XXH3_freeState(static_cast<XXH3_state_t*>(state_));
}
void Xxh3Stream::update(const void* data, int64_t bytes) {
    XXH3_64bits_update(static_cast<XXH3_state_t*>(state_), data, narrow<size_t>(bytes));
}
uint64_t Xxh3Stream::digest() const {
    return XXH3_64bits_digest(static_cast<XXH3_state_t*>(state_));
}

}  // namespace vt
