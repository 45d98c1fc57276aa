// SPDX-License-Identifier: MIT
// Floor 6.
#include "train/environment.h"

#include <fmt/format.h>
#include <fstream>
#include <sys/utsname.h>
#include <thread>

#include "prof/machine.h"

namespace vt {

namespace {

std::string processor() {
    std::ifstream in("/proc/cpuinfo");
    for (std::string line; std::getline(in, line);) {
        if (line.rfind("model name", 0) != 0) continue;
        const size_t colon = line.find(": ");
        return colon == std::string::npos ? "" : line.substr(colon + 2);
    }
    return "";
}

}  // namespace

std::vector<std::pair<std::string, std::string>> environment(const std::string& instruction_path,
                                                             int threads, const std::string& mesh) {
    std::vector<std::pair<std::string, std::string>> out = {
        {"version", "vtrain " VTRAIN_VERSION},
        {"build", VTRAIN_BUILD},
        {"instruction path", instruction_path},
        {"threads", fmt::format("{} of {}", threads, std::thread::hardware_concurrency())},
        {"mesh", mesh}};
    if (const std::string name = processor(); !name.empty()) out.emplace_back("processor", name);
    if (const int64_t bytes = machine_memory(); bytes > 0) {
        const double gib = static_cast<double>(bytes) / (1 << 30);
        out.emplace_back("memory", fmt::format("{:.1f} GiB", gib));
    }
    struct utsname u {};
    if (::uname(&u) == 0) {
        out.emplace_back("system", fmt::format("{} {} {}", u.sysname, u.release, u.machine));
        out.emplace_back("host", u.nodename);
    }
    return out;
}

}  // namespace vt
