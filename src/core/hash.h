// SPDX-License-Identifier: MIT
// XXH3-64, the project's only checksum (samples, checkpoint extents, parameter name ids).
// Floor 0.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace vt {

[[nodiscard]] uint64_t xxh3(const void* data, int64_t bytes);
[[nodiscard]] inline uint64_t xxh3(std::string_view s) {
    return xxh3(s.data(), static_cast<int64_t>(s.size()));
}
/// 16 lower-case hex digits, most significant first; how checksums are written in JSON.
[[nodiscard]] std::string hex64(uint64_t value);
/// Bits from the kernel, for names that must not meet: everything else is a function of the seed.
/// Needs no descriptor, since a process that is out of them must be able to save. kSystem.
[[nodiscard]] uint64_t unique_bits();

// The same hash of pieces fed one after another.
class Xxh3Stream {
  public:
    Xxh3Stream();
    ~Xxh3Stream();
    Xxh3Stream(const Xxh3Stream&) = delete;
    Xxh3Stream& operator=(const Xxh3Stream&) = delete;
    void update(const void* data, int64_t bytes);
    [[nodiscard]] uint64_t digest() const;

  private:
    void* state_;
};

}  // namespace vt
