// SPDX-License-Identifier: MIT
// `vtrain --config run.toml` and `vtrain train`: from the configuration to a running Trainer.
// Floor 7.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <thread>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "app/ending.h"
#include "app/run_config.h"
#include "app/runtime.h"
#include "core/log.h"
#include "fault/signal.h"
#include "prof/machine.h"
#include "train/trainer.h"

namespace vt {

namespace {

std::string human(double value, const char* unit) {
    static constexpr const char* kPrefix[] = {"", "k", "M", "G", "T", "P", "E"};
    size_t i = 0;
    while (value >= 1000 && i + 1 < std::size(kPrefix)) {
        value /= 1000;
        ++i;
    }
    return fmt::format("{:.4g} {}{}", value, kPrefix[i], unit);
}

std::string binary(int64_t bytes) {
    static constexpr const char* kUnit[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    auto value = static_cast<double>(bytes);
    size_t i = 0;
    while (value >= 1024 && i + 1 < std::size(kUnit)) {
        value /= 1024;
        ++i;
    }
    return i == 0 ? fmt::format("{:8} B", bytes) : fmt::format("{:8.2f} {}", value, kUnit[i]);
}

void print_ops(const RunConfig& c, const RunPlan& p) {
    const auto& s = p.ops_shape;
    say("operations of a step of one micro-batch ({} x ({},{},{},{})):", c.data.micro_batch_size,
        s[0], s[1], s[2], s[3]);
    say("  {:<22}{:>8}{:>14}{:>14}{:>12}", "op", "calls", "Gflop", "MB moved", "flop/byte");
    OpTotal sum;
    const auto row = [](const std::string& name, const OpTotal& t) {
        say("  {:<22}{:>8}{:>14.4f}{:>14.3f}{:>12.2f}", name, t.calls, t.flop / 1e9, t.bytes / 1e6,
            t.intensity());
    };
    for (const OpTotal& t : p.ops) {
        row(t.op, t);
        sum.calls += t.calls;
        sum.flop += t.flop;
        sum.bytes += t.bytes;
    }
    row("sum", sum);
}

void print_plan(const RunConfig& c, const RunPlan& p, bool details) {
    say("parameters: {} in {} tensors", p.parameters, p.tensors);
    for (const RunPlan::GroupRow& g : p.groups) {
        if (g.name == "frozen") {
            say("  {:<28}{:>12} in {:>4} tensors", g.name, g.parameters, g.tensors);
        } else {
            say("  {:<28}{:>12} in {:>4} tensors, peak lr {}, weight decay {} in {}", g.name,
                g.parameters, g.tensors, g.lr, g.weight_decay, g.decayed);
        }
    }
    say("memory by category (declared; taken at start, none of size later):");
    for (int i = 0; i < kNumMemCategories; ++i) {
        const int64_t b = p.bytes.at(static_cast<size_t>(i));
        if (b > 0) say("  {:<14}{}", name_of(static_cast<MemCategory>(i)), binary(b));
    }
    say("  {:<14}{}", "sum", binary(p.total_bytes));
    for (const RunPlan::ShapeRow& s : p.shapes) {
        say("shape (C,T,H,W) = ({},{},{},{}): {} tokens and {} of training per sample; {} tokens, "
            "{} "
            "per step",
            s.shape[0], s.shape[1], s.shape[2], s.shape[3], s.tokens,
            human(s.flop_per_sample, "flop"), s.tokens * c.data.global_batch_size,
            human(s.flop_per_sample * static_cast<double>(c.data.global_batch_size), "flop"));
    }
    say("executed per step, recompute and all row operations included: {}",
        human(p.executed_flop_per_step, "flop"));
    if (!details) return;
    print_ops(c, p);
    // Each block declares the same names: add them up.
    struct Total {
        int64_t bytes = 0, count = 0;
    };
    std::map<std::string, Total> by_name;
    for (const Arena::Item& item : p.activations) {
        by_name[item.what].bytes += item.bytes;
        ++by_name[item.what].count;
    }
    std::vector<std::pair<std::string, Total>> items(by_name.begin(), by_name.end());
    std::stable_sort(items.begin(), items.end(),
                     [](const auto& x, const auto& y) { return x.second.bytes > y.second.bytes; });
    say("largest activations (one micro-batch, all blocks):");
    for (size_t i = 0; i < std::min<size_t>(items.size(), 12); ++i) {
        say("  {:<22}x {:<5}{}", items[i].first, items[i].second.count,
            binary(items[i].second.bytes));
    }
}

// A run that is larger than the machine would be killed without a word, hours later perhaps.
void expect_memory(const RunPlan& plan, bool dry_run) {
    const int64_t machine = machine_memory();
    if (machine <= 0 || plan.total_bytes <= machine) return;
    const std::string rule = fmt::format("the run declares {} bytes of memory, this machine has {}",
                                         plan.total_bytes, machine);
    if (dry_run) {
        warn("{}", rule);
        return;
    }
    raise(Fault::kUser, rule,
          "lower data.micro_batch_size or the model's size, or set model.recompute; `--dry-run` "
          "prints the plan");
}

int train(const std::string& file, const std::vector<std::string>& sets, bool dry_run) {
    const double begin = seconds_now();
    const RunConfig config = load_run_config(file, sets);
    const SignalGuard signals;  // SIGTERM, SIGINT, SIGUSR1, SIGHUP: from here on ...
    nothing_to_save(true);      // ... they end the process; once it trains, they ask for a save
    Runtime runtime(config);
    const TrainerInput input{
        .config = config,
        .config_text = dump(config),
        .mesh = runtime.mesh.str(),
        .backend = *runtime.ops,
        .pool = runtime.pool,
        .world = *runtime.world,
        .train = *runtime.train,
        .valid = runtime.valid.get(),
        .check_resume = [&](const std::string& old) { check_resumed_config(old, config); },
        .init_weights = {},
        .begin = begin};
    Trainer trainer(input);
    const RunPlan& plan = trainer.plan();
    say("vtrain {} ({}), {} threads, {}", VTRAIN_VERSION, VTRAIN_BUILD, runtime.pool.threads(),
        runtime.ops->instruction_path);
    print_line(input.config_text);
    print_plan(config, plan, dry_run);
    const auto cores = static_cast<int>(std::thread::hardware_concurrency());
    if (cores > 0 && runtime.pool.threads() > cores) {
        warn("run.threads = {} on {} cores: threads will wait for each other",
             runtime.pool.threads(), cores);
    }
    expect_memory(plan, dry_run);
    const int code = dry_run ? 0 : trainer.run();
    if (code != kExitRequeue) {
        print_ending("done", "", code);
        return code;
    }
    print_ending("requeue", trainer.stopped_by(), code);
    // All that matters is on disk. Whoever sent the signal will not wait for readers that a dead
    // file server holds.
    std::_Exit(code);
}

struct TrainFlags {
    std::string config;
    std::vector<std::string> sets;
    bool dry_run = false;
};

void add_flags(CLI::App& app, TrainFlags& flags) {
    app.add_option("--config", flags.config,
                   "the run's TOML file (configs/README.md has every key)");
    app.add_option("--set", flags.sets, "override one key, e.g. --set optim.lr=2e-4 (repeatable)")
        ->allow_extra_args(false);
    app.add_flag("--dry-run", flags.dry_run,
                 "print parameters, memory by category, tokens and flop per step; write nothing");
}

}  // namespace

void add_train_command(CLI::App& app, Work& work) {
    // The same flags with and without the word "train".
    const auto flags = std::make_shared<TrainFlags>();
    const auto start = [flags, &work] {
        if (flags->config.empty() && flags->sets.empty() && !flags->dry_run) return;
        work = [flags] { return train(flags->config, flags->sets, flags->dry_run); };
    };
    add_flags(app, *flags);
    app.parse_complete_callback([&app, start] {
        if (app.get_subcommands().empty()) start();
    });
    CLI::App* sub = app.add_subcommand("train", "train a model (the default command)");
    add_flags(*sub, *flags);
    sub->callback([start, flags] {
        if (flags->config.empty() && flags->sets.empty()) {
            throw CLI::RequiredError("--config");
        }
        start();
    });
}

}  // namespace vt
