// SPDX-License-Identifier: MIT
// System calls that change files, as defined by the test program: counted, recorded, and made to
// fail, to wait or to end the process at the n-th call. The wall clock can be moved.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vt::test {

enum class Mischief : uint8_t {
    kNone,    // count and record
    kExit,    // the n-th call ends the process by _exit: a write has done half of its bytes
    kErrno,   // the n-th call fails with the error number
    kAlways,  // the n-th call and all after it fail with the error number
    kShort,   // the n-th call, if a write, does half of its bytes and says so; later ones fail
    kStall,   // the n-th call does not begin before Armed::release()
};

// Exit status of a process ended by kExit: before or after something was written to stdout.
inline constexpr int kExitQuiet = 98, kExitSaid = 99;

struct Call {
    std::string what{};  // "open" "write" "reserve" "fsync" "close" "rename" "exchange" "mkdir" ...
    std::string path{};  // first path, or the file behind the descriptor; "stdout"
    std::string to{};    // of a rename and an exchange
    std::string data{};  // of a write
    int64_t offset = 0;  // of a write; bytes of a reserve
    bool creates = false;  // of an open
};

enum class Who : uint8_t { kThisThread, kEveryThread };

// Arms on construction, disarms on destruction. Calls are numbered from 0. fsync and
// posix_fallocate are not passed on and stdout is swallowed while armed. kEveryThread: threads that
// are stalled at the destruction are released; they must have ended when the next one is armed.
class Armed {
  public:
    Armed(Mischief mischief, int64_t at, int error_number = 0, bool can_exchange = true,
          Who who = Who::kThisThread);
    ~Armed();
    Armed(const Armed&) = delete;
    Armed& operator=(const Armed&) = delete;
    [[nodiscard]] static std::vector<Call> calls();
    /// The n-th call has been reached.
    [[nodiscard]] static bool reached();
    static void release();
};

// Moves the wall clock (not the steady one) of this process by `seconds` while it lives.
class MovedClock {
  public:
    explicit MovedClock(int64_t seconds);
    ~MovedClock();
    MovedClock(const MovedClock&) = delete;
    MovedClock& operator=(const MovedClock&) = delete;
};

}  // namespace vt::test
