// SPDX-License-Identifier: MIT
// pread as defined by the test program: made to fail, to lie or to hang for one file, in whichever
// thread. One at a time.
#pragma once

#include <cstdint>
#include <string>

namespace vt::test {

class BadReads {
  public:
    enum class Kind : uint8_t { kError, kHang, kWrong };
    /// Reads of files whose path ends in `suffix`: the first `calls` of them (all if < 0) fail with
    /// error_number (kError), have their first bit turned (kWrong), or do not return before
    /// release() (kHang).
    BadReads(std::string suffix, Kind kind, int64_t calls, int error_number = 0);
    ~BadReads();  // releases
    BadReads(const BadReads&) = delete;
    BadReads& operator=(const BadReads&) = delete;
    void release();
    [[nodiscard]] int64_t calls() const;    // reads of such files so far
    [[nodiscard]] int64_t hanging() const;  // now
};

// What is written to descriptor 2 while it lives.
class Stderr {
  public:
    Stderr();
    ~Stderr();
    Stderr(const Stderr&) = delete;
    Stderr& operator=(const Stderr&) = delete;
    [[nodiscard]] std::string text() const;

  private:
    int saved_ = -1, file_ = -1;
};

}  // namespace vt::test
