// SPDX-License-Identifier: MIT
// vtrain ckpt ls and verify: what checkpoints a run has, and whether every byte of them is what was
// saved. Floor 7.
#include <algorithm>
#include <ctime>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "ckpt/foreign.h"
#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "core/log.h"

namespace vt {

void add_ckpt_compare_commands(CLI::App& ckpt, Work& work);
void add_ckpt_weights_commands(CLI::App& ckpt, Work& work);

namespace {

int64_t size_of(const Manifest& m) {
    int64_t bytes = 0;
    for (const ManifestFile& f : m.files) bytes += f.bytes;
    return bytes;
}

std::string size_text(int64_t bytes) {
    const double mib = static_cast<double>(bytes) / 1048576.0;
    return mib < 1024 ? fmt::format("{:.1f} MiB", mib) : fmt::format("{:.1f} GiB", mib / 1024);
}

std::string extra(const CheckpointInfo& info, const char* key) {
    const auto it = info.extra.find(key);
    return it == info.extra.end() ? "-" : it->second;
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

// Time since `saved_at` as "5 s", "12 min", "3 h", "9 d".
std::string age_text(const CheckpointInfo& info) {
    struct tm t {};
    if (::strptime(extra(info, "saved_at").c_str(), "%Y-%m-%dT%H:%M:%SZ", &t) == nullptr) {
        return "-";
    }
    const double s = std::difftime(std::time(nullptr), ::timegm(&t));
    if (s < 120) return fmt::format("{:.0f} s", s);
    if (s < 7200) return fmt::format("{:.0f} min", s / 60);
    if (s < 172800) return fmt::format("{:.0f} h", s / 3600);
    return fmt::format("{:.0f} d", s / 86400);
}

// The checkpoint at `dir`, or all of the run at `dir`, newest first.
std::vector<StepDir> checkpoints(const fs::path& dir) {
    std::error_code ignored;
    if (fs::exists(dir / kManifestName, ignored)) return {{0, dir}};
    if (fs::is_directory(dir, ignored) && dir.filename().string().rfind("step-", 0) == 0) {
        raise(Fault::kData, fmt::format("{} has no {}", dir.string(), kManifestName),
              "it is what a damaged or unfinished checkpoint leaves; take another");
    }
    if (!fs::is_directory(dir, ignored)) {
        const std::optional<ForeignKind> kind = foreign_kind(dir);
        raise(Fault::kUser,
              fmt::format("{} {}", dir.string(),
                          kind ? fmt::format("is {}, not a checkpoint of vtrain", kind->what)
                               : "is not a folder"),
              kind ? kind->hint : "name run.out, or one step-N directory in it");
    }
    std::vector<StepDir> dirs = step_dirs(dir);
    if (dirs.empty()) {
        const std::optional<ForeignKind> kind = foreign_kind(dir);
        raise(Fault::kUser,
              fmt::format("{} is {}", dir.string(),
                          kind ? kind->what + ", not a checkpoint of vtrain"
                               : std::string("neither a checkpoint nor a folder of them")),
              kind ? kind->hint : "name run.out, or one step-N directory in it");
    }
    return dirs;
}

// step-N.abandoned-K folders: other futures of the run, never selected.
std::vector<fs::path> abandoned(const fs::path& dir) {
    std::vector<fs::path> out;
    std::error_code error;
    for (fs::directory_iterator it(dir, error); !error && it != fs::directory_iterator();
         it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (name.rfind("step-", 0) == 0 && name.find(".abandoned-") != std::string::npos) {
            out.push_back(it->path());
        }
    }
    std::sort(out.rbegin(), out.rend());
    return out;
}

struct ListFlags {
    std::string dir;
    bool json = false, verify = false, all = false;
};

int list(const ListFlags& f) {
    static constexpr const char* kRow =
        "{:>10}  {:>10}  {:>10}  {:>7}  {:>10}  {:<8}  {:<8}  {:<10}  {}";
    std::vector<StepDir> dirs = checkpoints(f.dir);
    if (f.all) {
        for (const fs::path& p : abandoned(f.dir)) dirs.push_back({-1, p});
    }
    auto rows = nlohmann::ordered_json::array();
    if (!f.json) {
        say(kRow, "step", "samples", "size", "age", "loss", "state", "run", "written on", "holds");
    }
    int code = 0;
    for (const StepDir& d : dirs) {
        nlohmann::ordered_json row;
        row["path"] = d.path.string();
        try {
            const Manifest m = read_manifest(d.path);
            if (f.verify) verify(d.path);
            // "present": manifest, file names and sizes; "verified": every byte
            const char* state = d.step < 0 ? "abandoned" : f.verify ? "verified" : "present";
            row["step"] = m.info.step;
            row["samples"] = m.info.cursor;
            row["bytes"] = size_of(m);
            row["saved_at"] = extra(m.info, "saved_at");
            row["loss"] = extra(m.info, "loss");
            row["state"] = state;
            row["run_id"] = m.info.run_id;
            row["mesh"] = m.info.mesh;
            row["instruction_path"] = m.info.instruction_path;
            row["holds"] = contents(m);
            if (!f.json) {
                say(kRow, m.info.step, m.info.cursor, size_text(size_of(m)), age_text(m.info),
                    extra(m.info, "loss").substr(0, 10), state, m.info.run_id.substr(0, 8),
                    m.info.instruction_path.empty() ? "-" : m.info.instruction_path, contents(m));
            }
        } catch (const Error& e) {
            row["state"] = "bad";
            row["reason"] = e.message();
            if (!f.json) say("{} not usable: {}", d.path.filename().string(), e.message());
            if (d.step >= 0) code = e.exit_code();
        }
        rows.push_back(std::move(row));
    }
    if (f.json) {
        print_line(rows.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    }
    return code;
}

int check(const std::vector<std::string>& dirs) {
    std::vector<StepDir> all;
    for (const std::string& dir : dirs) {
        const std::vector<StepDir> some = checkpoints(dir);
        all.insert(all.end(), some.begin(), some.end());
    }
    int code = 0;
    for (const StepDir& d : all) {
        try {
            verify(d.path);
            say("{}: good", d.path.string());
        } catch (const Error& e) {
            say("{}: {}", d.path.string(), e.message());
            code = std::max(code, e.exit_code());
        }
    }
    return code;
}

}  // namespace

void add_ckpt_command(CLI::App& app, Work& work) {
    CLI::App* ckpt =
        app.add_subcommand("ckpt", "List, verify, compare, average, export and import checkpoints");
    ckpt->require_subcommand(1);

    const auto f = std::make_shared<ListFlags>();
    CLI::App* ls = ckpt->add_subcommand("ls", "List the checkpoints of a run, newest first");
    ls->add_option("DIR", f->dir, "run.out, or one checkpoint")->required();
    ls->add_flag("--json", f->json, "a JSON list, with the reason where one is bad");
    ls->add_flag("--verify", f->verify, "compare every byte with its checksum as well");
    ls->add_flag("--all", f->all, "also those set aside by a rollback or a resume from a path");
    ls->callback([f, &work] { work = [f] { return list(*f); }; });

    const auto dirs = std::make_shared<std::vector<std::string>>();
    CLI::App* verify_all =
        ckpt->add_subcommand("verify", "Compare every byte with its checksum; exit 3 on damage");
    verify_all->add_option("DIR", *dirs, "run.out, or one checkpoint; several of them")->required();
    verify_all->callback([dirs, &work] { work = [dirs] { return check(*dirs); }; });
    add_ckpt_compare_commands(*ckpt, work);
    add_ckpt_weights_commands(*ckpt, work);
}

}  // namespace vt
