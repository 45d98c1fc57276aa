// SPDX-License-Identifier: MIT
// A program under test as a process of its own: started, killed, waited for, measured.
#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

namespace vt::test {

class Child {
  public:
    /// Starts args[0] with stdout and stderr appended to `log`.
    Child(const std::vector<std::string>& args, const std::string& log);
    ~Child();  // kills and reaps what still runs
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    void kill(int signal);
    /// Waits; exit status, or 128 + signal.
    int wait();
    /// Peak resident bytes, after wait().
    [[nodiscard]] long peak_resident() const { return peak_; }
    [[nodiscard]] pid_t pid() const { return pid_; }

  private:
    pid_t pid_ = -1;
    bool reaped_ = false;
    int code_ = -1;
    long peak_ = 0;
};

}  // namespace vt::test
