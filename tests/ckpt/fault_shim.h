// SPDX-License-Identifier: MIT
// System calls that change files, as defined by the test program: counted, recorded, and made to
// fail or to end the process at the n-th call. Only the thread that armed them is affected.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vt::test {

enum class Mischief : uint8_t {
    kNone,   // count and record
    kExit,   // the n-th call ends the process by _exit: a write has done half of its bytes
    kErrno,  // the n-th call fails with the error number
    kShort,  // the n-th call, if a write, does half of its bytes and says so; later ones fail
};

// Exit status of a process ended by kExit: before or after something was written to stdout.
inline constexpr int kExitQuiet = 98, kExitSaid = 99;

struct Call {
    std::string what;  // "open" "write" "fsync" "close" "rename" "exchange" "mkdir" ...
    std::string path;  // first path, or the file behind the descriptor
};

// Arms on construction, disarms on destruction. Calls are numbered from 0. fsync and
// posix_fallocate are not passed on and stdout is swallowed while armed.
class Armed {
  public:
    Armed(Mischief mischief, int64_t at, int error_number = 0, bool can_exchange = true);
    ~Armed();
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;
    [[nodiscard]] static const std::vector<Call>& calls();
};

}  // namespace vt::test
