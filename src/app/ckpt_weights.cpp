// SPDX-License-Identifier: MIT
// vtrain ckpt export and import: between checkpoints and folders of the diffusers library.
// Floor 7.
#include "app/ckpt_weights.h"

#include <cstdlib>
#include <fmt/ranges.h>
#include <memory>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/run_config.h"
#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "core/log.h"
#include "data/facts.h"
#include "model/diffusers.h"
#include "model/registry.h"
#include "model/wan_params.h"

namespace vt {

void add_ckpt_weights_commands(CLI::App& ckpt, Work& work);

namespace {

// One f32 tensor per row of the table, under the checkpoint names of `kind`.
struct Values {
    std::vector<std::vector<float>> memory;
    std::vector<Tensor> tensors;
    std::vector<StateTensor> states;

    Values(const ParamTable& table, const std::string& kind) {
        memory.reserve(table.size());
        for (const ParamRow& row : table) {
            memory.emplace_back(narrow<size_t>(row.shape.numel()));
            tensors.emplace_back(memory.back().data(), row.shape, DType::kF32);
            states.push_back(
                {.name = kind + "/" + row.name, .global = row.shape, .local = tensors.back()});
        }
    }
};

struct ExportArgs {
    std::string checkpoint, out, dtype = "fp32", ema;
    int64_t shard_bytes = kMaxShardBytes;
};

int export_weights(const ExportArgs& a) {
    const fs::path dir = checkpoint_at(a.checkpoint);
    const CheckpointReader reader(dir);
    const WanConfig wan = sizes_of(reader.manifest().info, dir);
    const std::string kind = weights_kind(reader, dir, a.ema);
    const ParamTable table = wan::param_table(wan);
    const Values values(table, kind);
    for (const StateTensor& t : values.states) reader.read(t.name, t.local);
    export_diffusers(a.out, wan, table, {values.tensors.begin(), values.tensors.end()},
                     a.dtype == "bf16" ? DType::kBF16 : DType::kF32, a.shard_bytes);
    say("exported {} of {} as {}: {} parameters in {} tensors, to {}",
        kind == "model" ? "the weights" : "EMA " + kind.substr(3), dir.string(), a.dtype,
        count_elements(table), table.size(), a.out);
    return 0;
}

int import_weights(const std::string& weights, const std::string& out) {
    const WanConfig wan = read_wan_config(weights);
    wan::check_config(wan);
    if (!step_dirs(out).empty()) {
        raise(Fault::kUser, fmt::format("{} holds checkpoints already", out),
              "import into a new folder and name it in checkpoint.resume");
    }
    const ParamTable table = wan::param_table(wan);
    const Values values(table, "model");
    import_diffusers(weights, table, values.tensors);
    CheckpointInfo info;
    info.build = VTRAIN_BUILD;
    info.run_id = "import";
    // moments, EMAs and the step start afresh
    info.extra = {{"weights_only", "1"},
                  {"imported_from", fs::absolute(weights).lexically_normal().string()},
                  {kWanSizes, wan_config_json(wan)}};
    const auto world = self_group();
    const fs::path at = save(out, info, values.states, *world);
    say("imported {} parameters in {} tensors; train from them with checkpoint.resume = \"{}\"",
        count_elements(table), table.size(), fs::absolute(at).lexically_normal().string());
    return 0;
}

}  // namespace

WanConfig sizes_of(const CheckpointInfo& info, const fs::path& dir) {
    if (const auto sizes = info.extra.find(kWanSizes); sizes != info.extra.end()) {
        return wan_config_from_json(sizes->second, dir / "manifest.json");
    }
    const std::string where = fmt::format("{} (its configuration)", dir.string());
    const RunConfig config = parse_run_config(info.config, where, "/");
    return wan_config(config.model, facts_from_json(info.facts_json, dir.string()));
}

std::string weights_kind(const CheckpointReader& checkpoint, const fs::path& dir,
                         const std::string& ema) {
    if (ema.empty()) return "model";
    // The averages by number; their decays where the checkpoint tells them.
    int64_t count = 0;
    const auto has = [&](int64_t k) {
        const auto at = checkpoint.manifest().tensors.lower_bound(fmt::format("ema{}/", k));
        return at != checkpoint.manifest().tensors.end() &&
               at->first.rfind(fmt::format("ema{}/", k), 0) == 0;
    };
    while (has(count)) ++count;
    std::vector<std::string> decays;
    const auto stored = checkpoint.manifest().info.extra.find("ema_decay");
    if (count > 0 && stored != checkpoint.manifest().info.extra.end()) {
        size_t begin = 0, comma = 0;
        do {
            comma = stored->second.find(',', begin);
            decays.push_back(stored->second.substr(begin, comma - begin));
            begin = comma + 1;
        } while (comma != std::string::npos);
    }
    if (ema.find_first_not_of("0123456789") == std::string::npos && ema.size() < 10) {
        if (std::stoll(ema) < count) return "ema" + std::to_string(std::stoll(ema));
    } else {
        char* end = nullptr;
        const double wanted = std::strtod(ema.c_str(), &end);
        // a definition ("0.9999 diffusers"), or a decay that only one average has
        std::vector<size_t> alike;
        for (size_t k = 0; k < decays.size(); ++k) {
            if (decays[k] == ema) return "ema" + std::to_string(k);
            if (*end == 0 && std::strtod(decays[k].c_str(), nullptr) == wanted) alike.push_back(k);
        }
        if (alike.size() == 1) return "ema" + std::to_string(alike.front());
    }
    raise(Fault::kUser, fmt::format("--ema {}, but {} holds {} EMAs", ema, dir.string(), count),
          count == 0 ? std::string("leave --ema out")
                     : fmt::format("by number: 0 to {}; by decay: {}", count - 1,
                                   decays.empty() ? "not stored"
                                                  : fmt::format("{}", fmt::join(decays, ", "))));
}

void add_ckpt_weights_commands(CLI::App& ckpt, Work& work) {
    const auto a = std::make_shared<ExportArgs>();
    CLI::App* ex = ckpt.add_subcommand("export", "Write the weights as a diffusers folder");
    ex->add_option("--checkpoint", a->checkpoint, "a step-N folder, or a run's folder (its newest)")
        ->required();
    ex->add_option("--out", a->out, "new folder: config.json and safetensors")->required();
    ex->add_option(
        "--ema", a->ema,
        "this EMA: its number from 0, as optim.ema_decay and then optim.ema list them, or "
        "its decay (0.999)");
    ex->add_option("--dtype", a->dtype, "of the tensors not kept in fp32")
        ->check(CLI::IsMember({"fp32", "bf16"}))
        ->capture_default_str();
    ex->add_option("--max-shard-bytes", a->shard_bytes, "a larger model is split into files")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    ex->callback([a, &work] { work = [a] { return export_weights(*a); }; });

    const auto b = std::make_shared<ExportArgs>();
    CLI::App* im =
        ckpt.add_subcommand("import", "Make a checkpoint of diffusers or original Wan weights");
    im->add_option("--weights", b->checkpoint,
                   "folder: config.json and safetensors, in diffusers' or Wan's own names")
        ->required();
    im->add_option("--out", b->out, "folder that gets step-00000000")->required();
    im->callback([b, &work] { work = [b] { return import_weights(b->checkpoint, b->out); }; });
}

}  // namespace vt
