// SPDX-License-Identifier: MIT
// vtrain ckpt: what checkpoints a run has, and whether every byte of them is what was saved.
// Floor 7.
#include <algorithm>
#include <memory>
#include <set>
#include <string>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "core/log.h"

namespace vt {

void add_ckpt_weights_commands(CLI::App& ckpt, Work& work);

namespace {

std::string size_text(const Manifest& m) {
    int64_t bytes = 0;
    for (const ManifestFile& f : m.files) bytes += f.bytes;
    const double mib = static_cast<double>(bytes) / 1048576.0;
    return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

// "weights, moments, 2 EMAs": the kinds of the names "kind/parameter".
std::string contents(const Manifest& m) {
    std::set<std::string> kinds;
    for (const auto& [name, tensor] : m.tensors) kinds.insert(name.substr(0, name.find('/')));
    const auto emas = std::count_if(kinds.begin(), kinds.end(), [](const std::string& kind) {
        return kind.rfind("ema", 0) == 0;
    });
    std::string out = kinds.count("model") != 0 ? "weights" : "no weights";
    if (kinds.count("adam_m") != 0) out += ", moments";
    if (emas > 0) out += fmt::format(", {} EMA{}", emas, emas == 1 ? "" : "s");
    if (const auto from = m.info.extra.find("imported_from"); from != m.info.extra.end()) {
        out += " of " + from->second;
    }
    return out;
}

// The checkpoint at `dir`, or all of the run at `dir`, newest first.
std::vector<StepDir> checkpoints(const fs::path& dir) {
    std::error_code ignored;
    if (fs::exists(dir / kManifestName, ignored)) return {{0, dir}};
    std::vector<StepDir> dirs = step_dirs(dir);
    if (dirs.empty()) {
        raise(Fault::kUser,
              fmt::format("{} is neither a checkpoint nor a folder of them", dir.string()),
              "name run.out, or one step-N directory in it");
    }
    return dirs;
}

int list(const fs::path& dir) {
    static constexpr const char* kRow = "{:>10}  {:>10}  {:>10}  {:<8}  {:<10}  {}";
    say(kRow, "step", "samples", "size", "run", "written on", "holds");
    int code = 0;
    for (const StepDir& d : checkpoints(dir)) {
        try {
            const Manifest m = read_manifest(d.path);
            say(kRow, m.info.step, m.info.cursor, size_text(m), m.info.run_id.substr(0, 8),
                m.info.instruction_path.empty() ? "-" : m.info.instruction_path, contents(m));
        } catch (const Error& e) {
            say("{} not usable: {}", d.path.filename().string(), e.message());
            code = e.exit_code();
        }
    }
    return code;
}

int check(const fs::path& dir) {
    int code = 0;
    for (const StepDir& d : checkpoints(dir)) {
        try {
            verify(d.path);
            say("{}: good", d.path.string());
        } catch (const Error& e) {
            say("{}: {}", d.path.string(), e.message());
            code = e.exit_code();
        }
    }
    return code;
}

}  // namespace

void add_ckpt_command(CLI::App& app, Work& work) {
    CLI::App* ckpt = app.add_subcommand("ckpt", "List, verify, export and import checkpoints");
    ckpt->require_subcommand(1);

    const auto dir = std::make_shared<std::string>();
    CLI::App* ls = ckpt->add_subcommand("ls", "List the checkpoints of a run, newest first");
    ls->add_option("DIR", *dir, "run.out, or one checkpoint")->required();
    ls->callback([dir, &work] { work = [dir] { return list(*dir); }; });

    CLI::App* verify_all =
        ckpt->add_subcommand("verify", "Compare every byte with its checksum; exit 3 on damage");
    verify_all->add_option("DIR", *dir, "run.out, or one checkpoint")->required();
    verify_all->callback([dir, &work] { work = [dir] { return check(*dir); }; });
    add_ckpt_weights_commands(*ckpt, work);
}

}  // namespace vt
