// SPDX-License-Identifier: MIT
#include "app/run_config.h"

#include <map>

#include "config/toml.h"
#include "sample/solver.h"

namespace vt {

namespace {

using Origins = std::map<std::string, Origin>;

// One rule over several keys was broken: "run.toml:12: ...", the place being that of the first of
// `keys` that was set.
[[noreturn]] void refuse(const Origins& origins, const std::vector<std::string>& keys,
                         const std::string& rule, const std::string& hint) {
    for (const std::string& key : keys) {
        if (const auto it = origins.find(key); it != origins.end()) {
            raise(Fault::kUser, it->second.text + ": " + rule, hint);
        }
    }
    raise(Fault::kUser, rule, hint);
}

// What [log] says of samples must go with what [objective] trains.
void check_sampling(const RunConfig& c, const Origins& origins) {
    if (c.log.sample_interval == 0) return;
    const bool flow = c.objective.kind == "rectified_flow";
    const std::string& solver = c.log.sample_solver;
    if (solver != "auto" && for_flow(solver_named(solver)) != flow) {
        refuse(origins, {"log.sample_solver", "objective.kind"},
               fmt::format("log.sample_solver = \"{}\" with objective.kind = \"{}\"", solver,
                           c.objective.kind),
               flow ? "rectified flows take euler or unipc; auto is euler"
                    : "noise schedules take ddim or ddpm; auto is ddim");
    }
    if (c.log.sample_shift != 0 && !flow) {
        refuse(
            origins, {"log.sample_shift", "objective.kind"},
            fmt::format("log.sample_shift = {} with objective.kind = \"ddpm\"", c.log.sample_shift),
            "only rectified flows have a shift; drop it");
    }
}

// The one place for rules that join keys. What depends on the data, the model's sizes or the
// machine is refused where those are known.
void validate(const RunConfig& c, const Origins& origins) {
    if (c.data.micro_batch_size > c.data.global_batch_size) {
        refuse(origins, {"data.micro_batch_size", "data.global_batch_size"},
               fmt::format("[data] micro_batch_size = {} is larger than global_batch_size = {}",
                           c.data.micro_batch_size, c.data.global_batch_size),
               "lower micro_batch_size; it changes memory and speed, never what is learned");
    }
    if (const std::vector<int64_t>& ramp = c.data.rampup_batch_size; !ramp.empty()) {
        const std::vector<std::string> keys = {"data.rampup_batch_size", "data.global_batch_size"};
        if (ramp.size() != 3) {
            refuse(origins, keys,
                   fmt::format("data.rampup_batch_size has {} numbers; allowed: [start, increment, "
                               "samples]",
                               ramp.size()),
                   "for example [16, 16, 100000]");
        }
        const int64_t whole = c.data.global_batch_size, rise = whole - ramp[0];
        if (rise < 0 || rise % ramp[1] != 0) {
            refuse(origins, keys,
                   fmt::format("[data] rampup_batch_size starts at {} and rises by {}, which does "
                               "not reach global_batch_size = {}",
                               ramp[0], ramp[1], whole),
                   "global_batch_size must be start plus a multiple of increment");
        }
    }
    for (const Conflict& x : conflicts(c.optim, c.run.train_iters)) {
        refuse(origins, x.keys, x.rule, x.hint);
    }
    for (const Conflict& x : conflicts(c.objective)) refuse(origins, x.keys, x.rule, x.hint);
    check_sampling(c, origins);
    if (!c.model.patch_size.empty() && c.model.patch_size.size() != 3) {
        refuse(origins, {"model.patch_size"},
               fmt::format("model.patch_size has {} numbers; allowed: [t, h, w]",
                           c.model.patch_size.size()),
               "for example [1, 2, 2]");
    }
    if (c.model.attention_head_dim % 2 != 0) {
        refuse(origins, {"model.attention_head_dim"},
               fmt::format("model.attention_head_dim = {} is odd", c.model.attention_head_dim),
               "rotary position embeddings turn pairs of channels");
    }
    if (c.health.min_history > c.health.window) {
        refuse(origins, {"health.min_history", "health.window"},
               fmt::format("[health] min_history = {} is larger than window = {}",
                           c.health.min_history, c.health.window),
               "spikes would never be looked for; set both thresholds to 0 for that");
    }
    if (c.log.eval_interval > 0 && c.data.valid.empty()) {
        refuse(origins, {"log.eval_interval"},
               fmt::format("log.eval_interval = {} but data.valid is empty", c.log.eval_interval),
               "set data.valid to shards kept out of training, or eval_interval = 0");
    }
}

RunConfig resolve(const std::vector<Setting>& settings) {
    RunConfig config;
    config.origins = apply_settings(fields(config), settings);
    // published ddpm recipes draw t evenly
    if (config.objective.kind == "ddpm" &&
        config.origins.count("objective.timestep_sampling") == 0) {
        config.objective.timestep_sampling = "uniform";
    }
    validate(config, config.origins);
    return config;
}

}  // namespace

RunConfig load_run_config(const std::filesystem::path& file, const std::vector<std::string>& sets) {
    std::vector<Setting> settings;
    if (!file.empty()) settings = parse_toml_file(file);
    for (const std::string& text : sets) settings.push_back(parse_set(text));
    return resolve(settings);
}

RunConfig parse_run_config(const std::string& text, const std::string& name,
                           const std::filesystem::path& base) {
    return resolve(parse_toml(text, name, base));
}

std::string dump(const RunConfig& config) {
    RunConfig copy = config;  // rows point at mutable members
    return dump_toml(fields(copy));
}

std::string help_table() {
    RunConfig defaults;
    return help_text(fields(defaults));
}

std::string config_readme() {
    RunConfig defaults;
    return "# Configuration keys\n\n"
           "Written by `vtrain config docs > configs/README.md` from the rows the parser itself\n"
           "reads; a test fails where this file differs from them.\n\n"
           "A run is `vtrain --config run.toml`. `--set section.key=value` overrides a key, in "
           "TOML\n"
           "value syntax; a bare word is a text. The last `--set` of a key wins. Keys may be\n"
           "written with `-` for `_`. A key that is unknown, of the wrong type or out of range is\n"
           "refused (exit code 2) with its line, its value and what is allowed.\n"
           "`vtrain config show --config run.toml` prints every key as the run would use it.\n\n" +
           help_markdown(fields(defaults));
}

}  // namespace vt
