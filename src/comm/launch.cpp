// SPDX-License-Identifier: MIT
// Launchers tell their processes who they are by environment variables. Floor 1.
#include "comm/launch.h"

#include <array>
#include <charconv>
#include <cstdlib>
#include <cstring>

#include <climits>

#include "core/check.h"

namespace vt {

namespace {

struct Launcher {
    const char* size;
    const char* rank;
};
constexpr std::array kLaunchers{Launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"},
                                Launcher{"PMI_SIZE", "PMI_RANK"},
                                Launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID"}};

int number(const char* variable, int least, int most) {
    const char* text = std::getenv(variable);
    if (text == nullptr) text = "";
    int value = 0;
    const char* end = text + std::strlen(text);
    const auto [stop, error] = std::from_chars(text, end, value);
    if (error != std::errc{} || stop != end || value < least || value > most) {
        raise(Fault::kUser,
              fmt::format("{}=\"{}\" in the environment is no number of {} to {}", variable, text,
                          least, most),
              fmt::format("launchers set it; to run one process without one: env -u {} vtrain ...",
                          variable));
    }
    return value;
}

}  // namespace

Launch launch() {
    for (const Launcher& l : kLaunchers) {
        if (std::getenv(l.size) == nullptr) continue;
        Launch out;
        out.ranks = number(l.size, 1, INT_MAX);
        if (out.ranks > 1) out.rank = number(l.rank, 0, out.ranks - 1);
        out.found = fmt::format("{}={}", l.size, out.ranks);
        return out;
    }
    return {};
}

int launched_ranks() {
    return launch().ranks;
}

}  // namespace vt
