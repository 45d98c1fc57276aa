// SPDX-License-Identifier: MIT
// `vtrain report`: one HTML file with everything of one or several runs.
// Floor 7.
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/out_file.h"
#include "app/report_page.h"
#include "core/log.h"

namespace vt {

namespace {

struct Args {
    std::vector<fs::path> runs;
    fs::path out;
    int64_t media_mib = 64;
    ReportOptions options;
};

int report(Args& a) {
    expect_file_place(a.out);
    a.options.media_bytes = a.media_mib << 20;
    const std::string page = report_page(a.runs, a.options);
    write_atomic(a.out, page);
    say("report: {} ({:.1f} MiB)", a.out.string(), static_cast<double>(page.size()) / (1 << 20));
    return 0;
}

}  // namespace

void add_report_command(CLI::App& app, Work& work) {
    const auto a = std::make_shared<Args>();
    CLI::App* c = app.add_subcommand(
        "report", "write one HTML file with curves, samples, events and configuration of runs");
    c->add_option("runs", a->runs, "folders of runs, or metrics.jsonl files")->required();
    c->add_option("--out", a->out, "HTML file to write; it needs no other file and no network")
        ->required();
    c->add_option("--columns", a->options.columns,
                  "steps whose samples are shown, evenly spread over the run")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    c->add_option("--media-mib", a->media_mib, "largest size of all videos and pictures in it")
        ->check(CLI::Range(int64_t{0}, int64_t{4096}))
        ->capture_default_str();
    c->callback([a, &work] { work = [a] { return report(*a); }; });
}

}  // namespace vt
