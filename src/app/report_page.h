// SPDX-License-Identifier: MIT
// The one HTML file of `vtrain report`: everything of one or several runs, to be opened in a
// browser without a network. Its look and its drawing are in src/app/report, which the build
// embeds. Floor 7.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace vt {

struct ReportOptions {
    int64_t points = 2000;           // about so many of a curve; extremes are always kept
    int64_t columns = 12;            // steps whose samples are shown, evenly spread
    int64_t media_bytes = 64 << 20;  // of videos and pictures, all runs together
};

/// The page of runs, each a run's folder or a metrics.jsonl. Lines that cannot be read (a crash
/// tears at most the last) are left out and counted; a run without rows has a card that says so.
/// kUser if a path is neither.
[[nodiscard]] std::string report_page(const std::vector<fs::path>& runs,
                                      const ReportOptions& options = {});

/// Indices of the points to keep of a curve that is to have about `points`: of each of the equal
/// pieces of the list the first, the least, the largest, the last, and the first that is not
/// finite.
[[nodiscard]] std::vector<size_t> thinned(const std::vector<double>& y, int64_t points);

[[nodiscard]] std::string base64(std::string_view bytes);

// What the build embeds.
struct PageParts {
    std::string_view html, css, charts, script;
};
[[nodiscard]] const PageParts& page_parts();

}  // namespace vt
