// SPDX-License-Identifier: MIT
#include "tests/paths.h"

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <sys/wait.h>

namespace vt::test {

namespace fs = std::filesystem;

fs::path source_dir() {
    return VTRAIN_SOURCE_DIR;
}
fs::path program() {
    return VTRAIN_PROGRAM;
}
fs::path stall_library() {
    return VTRAIN_STALL_LIBRARY;
}

TempDir::TempDir() {
    std::string pattern = (fs::temp_directory_path() / "vtrain-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
    path_ = pattern;
}

TempDir::~TempDir() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
}

Ran run(const std::string& command) {
    Ran out;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (pipe == nullptr) throw std::runtime_error("popen failed");
    char buffer[4096];
    size_t n = 0;
    while ((n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0) out.output.append(buffer, n);
    const int status = ::pclose(pipe);
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return out;
}

}  // namespace vt::test
