// SPDX-License-Identifier: MIT
// vtrain ckpt diff and average: what two checkpoints differ in, and the mean of several.
// Floor 7.
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "app/ckpt_weights.h"
#include "app/commands.h"
#include "app/run_config.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "config/toml.h"
#include "core/log.h"
#include "model/diffusers.h"

namespace vt {

void add_ckpt_compare_commands(CLI::App& ckpt, Work& work);

namespace {

constexpr int kExitDiffer = 1;

double value_at(const char* data, DType dtype, int64_t i) {
    switch (dtype) {
        case DType::kF64:
            return reinterpret_cast<const double*>(data)[i];
        case DType::kF32:
            return static_cast<double>(reinterpret_cast<const float*>(data)[i]);
        case DType::kBF16:
            return static_cast<double>(to_float(reinterpret_cast<const bf16*>(data)[i]));
        case DType::kI64:
            return static_cast<double>(reinterpret_cast<const int64_t*>(data)[i]);
        case DType::kI32:
            return static_cast<double>(reinterpret_cast<const int32_t*>(data)[i]);
        case DType::kU8:
            return static_cast<double>(static_cast<unsigned char>(data[i]));
    }
    return 0;
}

struct Difference {
    int64_t elements = 0;              // whose bits differ
    double largest = 0;                // |a - b|; infinite where one of them is no number
    double squares = 0, of_first = 0;  // sums of (a - b)^2 and a^2
    [[nodiscard]] double relative() const {
        return of_first > 0 ? std::sqrt(squares / of_first) : squares > 0 ? HUGE_VAL : 0;
    }
    void add(const Difference& o) {
        elements += o.elements;
        largest = std::max(largest, o.largest);
        squares += o.squares;
        of_first += o.of_first;
    }
};

Difference compare(const CheckpointReader& a, const CheckpointReader& b, const std::string& name) {
    const ManifestTensor& t = a.manifest().tensors.at(name);
    const int64_t n = t.shape.numel(), width = size_of(t.dtype);
    std::vector<char> x(static_cast<size_t>(n * width)), y(x.size());
    a.read(name, {x.data(), t.shape, t.dtype});
    b.read(name, {y.data(), t.shape, t.dtype});
    Difference d;
    for (int64_t i = 0; i < n; ++i) {
        const double u = value_at(x.data(), t.dtype, i);
        d.of_first += u * u;
        const auto at = static_cast<size_t>(i * width);
        if (std::memcmp(&x[at], &y[at], static_cast<size_t>(width)) == 0) continue;
        ++d.elements;
        const double delta = std::abs(u - value_at(y.data(), t.dtype, i));
        d.largest = std::max(d.largest, std::isnan(delta) ? HUGE_VAL : delta);
        d.squares += delta * delta;
    }
    return d;
}

std::map<std::string, std::string> config_rows(const CheckpointInfo& info, const fs::path& dir) {
    std::map<std::string, std::string> rows;
    if (info.config.empty()) return rows;
    RunConfig config = parse_run_config(info.config, dir.string(), "/");
    for (const Field& f : fields(config)) rows[f.key] = field_value(f);
    return rows;
}

// Prints the keys that differ; returns how many.
int64_t diff_configs(const CheckpointInfo& a, const fs::path& at, const CheckpointInfo& b,
                     const fs::path& bt) {
    std::map<std::string, std::string> x, y;
    try {
        x = config_rows(a, at);
        y = config_rows(b, bt);
    } catch (const Error& e) {
        say("the configurations cannot be compared: {}", e.message());
        return a.config == b.config ? 0 : 1;
    }
    std::set<std::string> keys;
    for (const auto& rows : {x, y}) {
        for (const auto& [key, value] : rows) keys.insert(key);
    }
    const auto shown = [](const std::map<std::string, std::string>& rows, const std::string& key) {
        const auto it = rows.find(key);
        return it == rows.end() ? std::string("(none)") : it->second;
    };
    int64_t n = 0;
    for (const std::string& key : keys) {
        if (shown(x, key) == shown(y, key)) continue;
        say("config {}: {} | {}", key, shown(x, key), shown(y, key));
        ++n;
    }
    return n;
}

int diff(const std::string& first, const std::string& second) {
    const fs::path at = checkpoint_at(first), bt = checkpoint_at(second);
    const CheckpointReader a(at), b(bt);
    const auto& ta = a.manifest().tensors;
    const auto& tb = b.manifest().tensors;
    say("A {}: step {}, {} samples", at.string(), a.manifest().info.step, a.manifest().info.cursor);
    say("B {}: step {}, {} samples", bt.string(), b.manifest().info.step, b.manifest().info.cursor);
    std::set<std::string> names;
    for (const auto* tensors : {&ta, &tb}) {
        for (const auto& [name, t] : *tensors) names.insert(name);
    }
    int64_t equal = 0, differ = 0, other = 0;
    std::map<std::string, Difference> by_kind;
    for (const std::string& name : names) {
        const auto x = ta.find(name), y = tb.find(name);
        if (x == ta.end() || y == tb.end()) {
            say("only in {}: {}", x == ta.end() ? 'B' : 'A', name);
            ++other;
            continue;
        }
        if (x->second.shape != y->second.shape || x->second.dtype != y->second.dtype) {
            say("{}: {} {} | {} {}", name, name_of(x->second.dtype), x->second.shape.str(),
                name_of(y->second.dtype), y->second.shape.str());
            ++other;
            continue;
        }
        const Difference d = compare(a, b, name);
        by_kind[name.substr(0, name.find('/'))].add(d);
        if (d.elements == 0) {
            ++equal;
            continue;
        }
        ++differ;
        say("{}: {} of {} elements differ, by at most {:.3g}; relative {:.3g}", name, d.elements,
            x->second.shape.numel(), d.largest, d.relative());
    }
    for (const auto& [kind, d] : by_kind) {
        say("{}/: {} elements differ, by at most {:.3g}; relative {:.3g}", kind, d.elements,
            d.largest, d.relative());
    }
    const int64_t keys = diff_configs(a.manifest().info, at, b.manifest().info, bt);
    say("{} tensors equal, {} differ, {} not comparable; {} keys of the configuration differ",
        equal, differ, other, keys);
    return differ + other + keys == 0 ? 0 : kExitDiffer;
}

struct AverageFlags {
    std::vector<std::string> checkpoints;
    std::vector<double> weights;
    std::string out, ema;
};

// What a checkpoint must agree in to be averaged with another.
void require_alike(const fs::path& a, const CheckpointInfo& x, const fs::path& b,
                   const CheckpointInfo& y) {
    if (wan_config_json(sizes_of(x, a)) != wan_config_json(sizes_of(y, b))) {
        raise(Fault::kUser,
              fmt::format("{} and {} are of different models", a.string(), b.string()),
              "`vtrain ckpt diff` shows where");
    }
    if (!x.facts_json.empty() && !y.facts_json.empty() && x.facts_json != y.facts_json) {
        raise(Fault::kUser,
              fmt::format("{} and {} were trained on latents of different meaning (codec, "
                          "statistics or text encoder)",
                          a.string(), b.string()));
    }
}

std::vector<double> shares(const AverageFlags& f) {
    std::vector<double> w = f.weights;
    if (w.empty()) w.assign(f.checkpoints.size(), 1.0);
    double sum = 0;
    for (const double x : w) sum += std::isfinite(x) && x >= 0 ? x : NAN;
    if (w.size() != f.checkpoints.size() || !(sum > 0) || !std::isfinite(sum)) {
        raise(
            Fault::kUser,
            fmt::format("--weights: {} given for {} checkpoints; one each, none negative, not all "
                        "zero",
                        w.size(), f.checkpoints.size()));
    }
    for (double& x : w) x /= sum;
    return w;
}

int average(const AverageFlags& f) {
    const std::vector<double> share = shares(f);
    if (!step_dirs(f.out).empty()) {
        raise(Fault::kUser, fmt::format("{} holds checkpoints already", f.out),
              "average into a new folder");
    }
    std::vector<fs::path> dirs;
    std::vector<std::unique_ptr<CheckpointReader>> readers;
    std::vector<std::string> kinds;
    std::string from;
    for (const std::string& c : f.checkpoints) {
        dirs.push_back(checkpoint_at(c));
        readers.push_back(std::make_unique<CheckpointReader>(dirs.back()));
        const CheckpointInfo& info = readers.back()->manifest().info;
        require_alike(dirs.front(), readers.front()->manifest().info, dirs.back(), info);
        kinds.push_back(weights_kind(*readers.back(), dirs.back(), f.ema));
        from += fmt::format("{}{} x {} of {}", from.empty() ? "" : " + ", share[dirs.size() - 1],
                            kinds.back(), fs::absolute(dirs.back()).lexically_normal().string());
    }
    const CheckpointInfo& first = readers.front()->manifest().info;
    const WanConfig wan = sizes_of(first, dirs.front());
    const ParamTable table = wan::param_table(wan);
    std::vector<std::vector<float>> memory;
    std::vector<StateTensor> states;
    memory.reserve(table.size());
    std::vector<float> one;
    std::vector<double> sum;
    for (const ParamRow& row : table) {
        const auto n = static_cast<size_t>(row.shape.numel());
        one.resize(n);
        sum.assign(n, 0.0);
        for (size_t c = 0; c < readers.size(); ++c) {
            readers[c]->read(kinds[c] + "/" + row.name, {one.data(), row.shape, DType::kF32});
            for (size_t i = 0; i < n; ++i) sum[i] += share[c] * static_cast<double>(one[i]);
        }
        std::vector<float>& mean = memory.emplace_back(n);
        for (size_t i = 0; i < n; ++i) mean[i] = static_cast<float>(sum[i]);
        states.push_back({.name = "model/" + row.name,
                          .global = row.shape,
                          .local = {mean.data(), row.shape, DType::kF32}});
    }
    CheckpointInfo info;
    info.build = VTRAIN_BUILD;
    info.run_id = "average";
    info.config = first.config;  // what sampling needs to know
    info.facts_json = first.facts_json;
    info.extra = {
        {"weights_only", "1"}, {"imported_from", from}, {kWanSizes, wan_config_json(wan)}};
    if (const auto shape = first.extra.find("shape"); shape != first.extra.end()) {
        info.extra.insert(*shape);
    }
    const fs::path at = save(f.out, info, states, *self_group());
    say("averaged {} checkpoints into {}", dirs.size(), at.string());
    return 0;
}

}  // namespace

void add_ckpt_compare_commands(CLI::App& ckpt, Work& work) {
    const auto two = std::make_shared<std::pair<std::string, std::string>>();
    CLI::App* d = ckpt.add_subcommand(
        "diff", "Compare two checkpoints, tensors and configuration; exit 0 if equal, 1 if not");
    d->add_option("A", two->first, "a step-N folder, or a run's folder (its newest)")->required();
    d->add_option("B", two->second, "another")->required();
    d->callback([two, &work] { work = [two] { return diff(two->first, two->second); }; });

    const auto f = std::make_shared<AverageFlags>();
    CLI::App* avg = ckpt.add_subcommand(
        "average",
        "Make a checkpoint of the mean of the weights of several, to sample, export or "
        "train from");
    avg->add_option("CHECKPOINTS", f->checkpoints,
                    "step-N folders, or runs' folders (their newest)")
        ->required();
    avg->add_option("--out", f->out, "folder that gets step-00000000")->required();
    avg->add_option("--weights", f->weights, "share of each, e.g. 0.5,0.3,0.2; default: equal")
        ->delimiter(',');
    avg->add_option("--ema", f->ema, "average this EMA: its number from 0, or its decay (0.999)");
    avg->callback([f, &work] { work = [f] { return average(*f); }; });
}

}  // namespace vt
