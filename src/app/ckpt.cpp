// SPDX-License-Identifier: MIT
// vtrain ckpt: what checkpoints a run has, and whether every byte of them is what was saved.
// Floor 7.
#include <memory>
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

double mib(const Manifest& m) {
    int64_t bytes = 0;
    for (const ManifestFile& f : m.files) bytes += f.bytes;
    return static_cast<double>(bytes) / 1048576.0;
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
    say("{:>12} {:>10} {:>8} {:>6}  {}", "step", "MiB", "tensors", "files", "run, layout, build");
    int code = 0;
    for (const StepDir& d : checkpoints(dir)) {
        try {
            const Manifest m = read_manifest(d.path);
            say("{:>12} {:>10.1f} {:>8} {:>6}  {}, {}, {} {}", m.info.step, mib(m),
                m.tensors.size(), m.files.size(), m.info.run_id, m.info.mesh, m.info.build,
                m.info.instruction_path);
        } catch (const Error& e) {
            say("{:>12} not usable: {}", d.path.filename().string(), e.message());
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
