// SPDX-License-Identifier: MIT
#include "app/runtime.h"

#include <algorithm>
#include <map>

#include "app/run_config.h"
#include "comm/launch.h"
#include "config/toml.h"
#include "core/log.h"
#include "cpu/cpu.h"
#include "data/order.h"
#ifdef VTRAIN_HAVE_CUDA
#include "cuda/cuda_backend.h"
#endif

namespace vt {

const Ops& choose_backend(const std::string& device, const Ops& cpu, const Ops* cuda) {
    if (device == "cuda" && cuda == nullptr) {
        raise(Fault::kUser, "run.device = \"cuda\", but this build has no CUDA backend",
              "set run.device = \"cpu\" or \"auto\", or build where the CUDA toolkit is");
    }
    const std::string missing = cuda == nullptr ? "" : missing_ops(*cuda);
    if (device == "cuda" && !missing.empty()) {
        raise(Fault::kUser,
              fmt::format("run.device = \"cuda\", but the CUDA backend lacks: {}", missing),
              "set run.device = \"cpu\" or \"auto\"");
    }
    if (device != "cpu" && cuda != nullptr && missing.empty()) return *cuda;
    check_complete(cpu);
    return cpu;
}

const Ops& backend_for(const std::string& device) {
#ifdef VTRAIN_HAVE_CUDA
    return choose_backend(device, cpu_ops(), &cuda_ops());
#else
    return choose_backend(device, cpu_ops(), nullptr);
#endif
}

namespace {

// Ranks that do not know of each other would each train alone and write over each other.
std::unique_ptr<Group> world_of_one() {
    const Launch l = launch();
    if (l.ranks > 1) {
        raise(Fault::kUser,
              fmt::format("rank {} of {} ({}): this build trains on one rank", l.rank, l.ranks,
                          l.found),
              "start one process: without a launcher, or with mpirun -n 1 or srun -n 1; it uses "
              "all cores it is given (run.threads)");
    }
    return self_group();
}

IndexOptions index_options(const RunConfig& config) {
    IndexOptions index;
    index.foreign.names = parse_names(config.data.names, data_set_names(), "data.names");
    if (!config.data.facts.empty()) {
        index.foreign.facts =
            facts_given_from_json(read_file(config.data.facts), config.data.facts);
    }
    return index;
}

}  // namespace

std::unique_ptr<Dataset> open_training_data(const RunConfig& config) {
    const IndexOptions index = index_options(config);
    std::unique_ptr<Dataset> data;
    naming_keys(config, {"data.train"}, [&] {
        std::vector<SourceSpec> sources;
        for (const DataSource& s : config.data.train) {
            sources.push_back({expand_globs(s.path, ""), s.weight, s.path});
        }
        data = Dataset::open(sources, index);
    });
    warn_unseen(*data);
    return data;
}

Runtime::Runtime(const RunConfig& config)
    : pool(narrow<int>(config.run.threads)),
      ops(&backend_for(config.run.device)),
      world(world_of_one()),
      mesh(make_mesh(config.parallel, world->size(), world->rank())) {
    train = open_training_data(config);
    if (config.data.valid.empty()) return;
    naming_keys(config, {"data.valid"}, [&] {
        std::vector<SourceSpec> held_out;
        for (const std::string& s : config.data.valid) {
            held_out.push_back({expand_globs(s, ""), 1.0, s});
        }
        valid = Dataset::open(held_out, index_options(config));
        check_held_out(*train, *valid);
    });
}

namespace {

std::map<std::string, std::string> rows_of(const RunConfig& config) {
    RunConfig copy = config;
    std::map<std::string, std::string> out;
    for (const Field& f : fields(copy)) out[f.key] = field_value(f);
    return out;
}

// Would a change of this key make another experiment of the same checkpoint?
bool fixed_for_life(const std::string& key) {
    if (key == "model.recompute") return false;
    return key.rfind("model.", 0) == 0 || key.rfind("objective.", 0) == 0 || key == "run.seed" ||
           key == "run.precision";
}

bool same_weights(const std::vector<DataSource>& a, const std::vector<DataSource>& b) {
    return std::equal(
        a.begin(), a.end(), b.begin(), b.end(),
        [](const DataSource& x, const DataSource& y) { return x.weight == y.weight; });
}

}  // namespace

void check_resumed_config(const std::string& old_text, const RunConfig& now) {
    const RunConfig old = parse_run_config(old_text, "checkpoint's config", "/");
    const std::map<std::string, std::string> before = rows_of(old);
    std::string refused;
    for (const auto& [key, value] : rows_of(now)) {
        const auto was = before.find(key);
        if (was == before.end() || was->second == value) continue;
        if (key == "data.train") {
            // The samples are compared by the data's fingerprint and the folders may move, but the
            // weights decide which sample an ordinal means; data.on_change allows both to change.
            if (same_weights(old.data.train, now.data.train) || now.data.on_change == "new_epoch") {
                say("changed since the checkpoint: data.train: {} -> {}", was->second, value);
            } else {
                refused += fmt::format("{}data.train: {} in the checkpoint, {} now",
                                       refused.empty() ? "" : "; ", was->second, value);
            }
        } else if (fixed_for_life(key)) {
            refused += fmt::format("{}{}: {} in the checkpoint, {} now",
                                   refused.empty() ? "" : "; ", key, was->second, value);
        } else {
            say("changed since the checkpoint: {}: {} -> {}", key, was->second, value);
        }
    }
    if (!refused.empty()) {
        raise(Fault::kUser, "cannot resume: " + refused,
              "set these keys back, or start a new run: another run.out, or checkpoint.resume = "
              "\"none\"");
    }
}

}  // namespace vt
