// SPDX-License-Identifier: MIT
// Where tests find the source tree and the program, and a scratch folder of their own. In one
// translation unit, so that moving the tree recompiles one file.
#pragma once

#include <filesystem>
#include <string>

namespace vt::test {

[[nodiscard]] std::filesystem::path source_dir();
[[nodiscard]] std::filesystem::path program();        // build/.../vtrain
[[nodiscard]] std::filesystem::path stall_library();  // of tests/preload

// A fresh directory, removed at scope end.
class TempDir {
  public:
    TempDir();
    ~TempDir();
    TempDir(const TempDir&) = delete;
    TempDir& operator=(const TempDir&) = delete;
    [[nodiscard]] const std::filesystem::path& path() const { return path_; }
    std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

// Runs a shell command; returns exit status, stdout and stderr together.
struct Ran {
    int code = -1;  // exit status, or 128 + signal
    std::string output;
};
Ran run(const std::string& command);

}  // namespace vt::test
