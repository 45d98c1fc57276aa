// SPDX-License-Identifier: MIT
// Rows of [optim], and which of its values contradict each other. Floor 4.
#include <fmt/format.h>

#include "optim/options.h"

namespace vt {

std::vector<Field> fields(ParamGroup& o) {
    return {
        {.key = "params",
         .target = &o.params,
         .help = "Globs over parameter names, e.g. \"blocks.*.attn2.*\"; one that matches nothing "
                 "is refused. Of several groups that match a name the last one holds, whole.",
         .required = true},
        {.key = "lr_scale",
         .target = &o.lr_scale,
         .help = "Factor on the learning rate of every step.",
         .min = 0},
        {.key = "lr",
         .target = &o.lr,
         .help = "Or: peak learning rate instead of optim.lr; the whole curve is scaled to it, "
                 "min_lr too.",
         .min = 0},
        {.key = "weight_decay",
         .target = &o.weight_decay,
         .help = "Instead of optim.weight_decay.",
         .min = 0},
        {.key = "decay_all",
         .target = &o.decay_all,
         .help = "Decay those that are no matrices too: biases, norms, tables."},
    };
}

std::vector<Field> fields(EmaOptions& o) {
    return {
        {.key = "decay",
         .target = &o.decay,
         .help = "Decay per update; with a warm-up its largest value.",
         .min = 0,
         .max = 1,
         .min_exclusive = true,
         .max_exclusive = true},
        {.key = "warmup",
         .target = &o.warmup,
         .help =
             "How the decay rises, s = updates before this one, the first a copy: none (constant "
             "from the first on), diffusers "
             "((1 + s) / (10 + s)) or power (1 - (1 + s / inv_gamma)^-power).",
         .choices = {"none", "diffusers", "power"}},
        {.key = "inv_gamma",
         .target = &o.inv_gamma,
         .help = "Of warmup = power.",
         .min = 0,
         .min_exclusive = true},
        {.key = "power",
         .target = &o.power,
         .help = "Of warmup = power.",
         .min = 0,
         .max = 10,
         .min_exclusive = true},
        {.key = "min_decay",
         .target = &o.min_decay,
         .help = "Smallest decay of a warm-up, from its second update on.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "update_after_step",
         .target = &o.update_after_step,
         .help = "Up to this step the average is a copy of the weights.",
         .min = 0},
        {.key = "every", .target = &o.every, .help = "Steps between updates.", .min = 1},
        {.key = "switch_step",
         .target = &o.switch_step,
         .help = "From this step on switch_decay stands for decay; the average goes on. 0: never.",
         .min = 0},
        {.key = "switch_decay",
         .target = &o.switch_decay,
         .help = "See switch_step.",
         .min = 0,
         .max = 1,
         .min_exclusive = true,
         .max_exclusive = true},
        {.key = "adopt_step",
         .target = &o.adopt_step,
         .help = "After this step the weights that are trained become the average; moments stay. "
                 "0: never.",
         .min = 0},
    };
}

namespace {

std::vector<Field> lr_rows(OptimOptions& o) {
    return {
        {.key = "optim.lr",
         .target = &o.lr,
         .help = "Peak learning rate of AdamW.",
         .aliases = {"optim.learning_rate"},
         .min = 0},
        {.key = "optim.min_lr",
         .target = &o.min_lr,
         .help = "Learning rate at the end of the decay; the least of inverse_sqrt.",
         .min = 0},
        {.key = "optim.lr_decay_style",
         .target = &o.lr_decay_style,
         .help = "Learning rate after the warm-up: constant; linear or cosine down to min_lr at "
                 "lr_decay_iters; wsd (constant, then lr_wsd_decay_style over the last "
                 "lr_wsd_decay_iters); cosine_restarts (lr_cycles of them); inverse_sqrt (lr "
                 "sqrt(lr_warmup_iters / step), at least min_lr).",
         .choices = {"constant", "linear", "cosine", "wsd", "cosine_restarts", "inverse_sqrt"}},
        {.key = "optim.lr_warmup_iters",
         .target = &o.lr_warmup_iters,
         .help = "Steps of linear warm-up from lr_warmup_init to lr.",
         .min = 0},
        {.key = "optim.lr_warmup_init",
         .target = &o.lr_warmup_init,
         .help = "Learning rate the warm-up starts from.",
         .min = 0},
        {.key = "optim.lr_decay_iters",
         .target = &o.lr_decay_iters,
         .help = "Step at which the decay ends. 0: run.train_iters.",
         .min = 0},
        {.key = "optim.lr_wsd_decay_iters",
         .target = &o.lr_wsd_decay_iters,
         .help = "Steps of the decay of wsd, the last ones before lr_decay_iters.",
         .min = 0},
        {.key = "optim.lr_wsd_decay_style",
         .target = &o.lr_wsd_decay_style,
         .help = "Factor on lr - min_lr with x the share of the decay that is done: 1 - x; (1 + "
                 "cos(pi x)) / 2; 2 / 2^x - 1; 1 - sqrt(x).",
         .choices = {"linear", "cosine", "exponential", "minus_sqrt"}},
        {.key = "optim.lr_cycles",
         .target = &o.lr_cycles,
         .help = "Cycles of cosine_restarts between warm-up and lr_decay_iters.",
         .min = 1,
         .max = 1000},
        {.key = "optim.lr_cycle_length",
         .target = &o.lr_cycle_length,
         .help = "Length of a cycle over that of the one before.",
         .min = 0.1,
         .max = 10},
        {.key = "optim.lr_cycle_peak",
         .target = &o.lr_cycle_peak,
         .help = "Peak of a cycle over that of the one before, both above min_lr.",
         .min = 0,
         .max = 1,
         .min_exclusive = true},
        {.key = "optim.lr_warmup_samples",
         .target = &o.lr_warmup_samples,
         .help = "lr_warmup_iters, lr_decay_iters and lr_wsd_decay_iters in samples. Where any of "
                 "the three is set, the curve follows the samples consumed, this step's included, "
                 "instead of steps: for batches that grow.",
         .min = 0},
        {.key = "optim.lr_decay_samples",
         .target = &o.lr_decay_samples,
         .help = "See lr_warmup_samples.",
         .min = 0},
        {.key = "optim.lr_wsd_decay_samples",
         .target = &o.lr_wsd_decay_samples,
         .help = "See lr_warmup_samples.",
         .min = 0},
    };
}

}  // namespace

std::vector<Field> fields(OptimOptions& o) {
    std::vector<Field> rows = lr_rows(o);
    const std::vector<Field> rest = {
        {.key = "optim.adam_beta1",
         .target = &o.adam_beta1,
         .help = "Decay of the first moment.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "optim.adam_beta2",
         .target = &o.adam_beta2,
         .help = "Decay of the second moment.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "optim.adam_eps",
         .target = &o.adam_eps,
         .help = "Added to the root of the second moment.",
         .min = 0,
         .max = 1,
         .min_exclusive = true},
        {.key = "optim.weight_decay",
         .target = &o.weight_decay,
         .help = "Decoupled weight decay, per unit of learning rate; matrices only.",
         .min = 0},
        {.key = "optim.clip_grad",
         .target = &o.clip_grad,
         .help = "Largest global gradient norm; larger gradients are scaled to it. 0: off.",
         .min = 0},
        {.key = "optim.groups",
         .target = table_list(&o.groups),
         .help = "Parameters with a learning rate or a weight decay of their own."},
        {.key = "optim.freeze",
         .target = &o.freeze,
         .help = "Globs over names of parameters that are not trained: they have no gradient, no "
                 "moments and no update. \"!glob\" thaws what an earlier entry froze."},
        {.key = "optim.ema_decay",
         .target = &o.ema_decay,
         .help = "Decay per step of each exponential moving average of the weights; "
                 "[[optim.ema]] has more to set.",
         .min = 0,
         .max = 1,
         .min_exclusive = true,
         .max_exclusive = true},
        {.key = "optim.ema",
         .target = table_list(&o.ema),
         .help = "Further averages, counted on from those of ema_decay. The first of all is what "
                 "samples are drawn with."},
    };
    rows.insert(rows.end(), rest.begin(), rest.end());
    return rows;
}

namespace {

// Collects what is wrong; keys without their section.
class Refusals {
  public:
    explicit Refusals(std::vector<Conflict>& out) : out_(out) {}
    void operator()(bool wrong, std::vector<std::string> keys, std::string rule, std::string hint) {
        for (std::string& key : keys) {
            if (key.find('.') == std::string::npos) key = "optim." + key;
        }
        if (wrong) out_.push_back({std::move(keys), std::move(rule), std::move(hint)});
    }

  private:
    std::vector<Conflict>& out_;
};

void unit_conflicts(const OptimOptions& o, Refusals& refuse) {
    if (!lr_counts_samples(o)) return;
    const struct {
        const char *iters, *samples;
        int64_t set;
    } pairs[] = {{"lr_warmup_iters", "lr_warmup_samples", o.lr_warmup_iters},
                 {"lr_decay_iters", "lr_decay_samples", o.lr_decay_iters},
                 {"lr_wsd_decay_iters", "lr_wsd_decay_samples", o.lr_wsd_decay_iters}};
    for (const auto& p : pairs) {
        refuse(p.set > 0, {p.iters, "lr_warmup_samples", "lr_decay_samples"},
               fmt::format("optim.{} = {} beside keys in samples", p.iters, p.set),
               fmt::format("the whole curve follows steps or samples; give {}", p.samples));
    }
    const bool ends = o.lr_decay_style != "constant" && o.lr_decay_style != "inverse_sqrt";
    refuse(ends && o.lr_decay_samples == 0, {"lr_decay_style", "lr_warmup_samples"},
           fmt::format("optim.lr_decay_style = \"{}\" in samples without lr_decay_samples",
                       o.lr_decay_style),
           "say at how many samples consumed the decay ends");
}

void lr_conflicts(const OptimOptions& o, int64_t train_iters, Refusals& refuse) {
    unit_conflicts(o, refuse);
    const bool samples = lr_counts_samples(o);
    const std::string& style = o.lr_decay_style;
    const std::string unit = samples ? "samples" : "iters";
    const int64_t warmup = samples ? o.lr_warmup_samples : o.lr_warmup_iters;
    const int64_t decay = samples ? o.lr_decay_samples : o.lr_decay_iters;
    const int64_t wsd = samples ? o.lr_wsd_decay_samples : o.lr_wsd_decay_iters;
    refuse(!samples && warmup > train_iters, {"lr_warmup_iters", "run.train_iters"},
           fmt::format("optim.lr_warmup_iters = {} is larger than run.train_iters = {}", warmup,
                       train_iters),
           "the learning rate would never reach optim.lr");
    refuse(decay != 0 && decay <= warmup, {"lr_decay_" + unit, "lr_warmup_" + unit},
           fmt::format("[optim] lr_decay_{} = {} must be larger than lr_warmup_{} = {}", unit,
                       decay, unit, warmup),
           samples ? "it is where the decay ends"
                   : "it is the step at which the decay ends; 0 stands for run.train_iters");
    refuse(o.min_lr > o.lr, {"min_lr", "lr"},
           fmt::format("[optim] min_lr = {} is larger than lr = {}", o.min_lr, o.lr),
           "the decay goes from lr to min_lr");
    refuse(
        o.lr_warmup_init > o.lr, {"lr_warmup_init", "lr"},
        fmt::format("[optim] lr_warmup_init = {} is larger than lr = {}", o.lr_warmup_init, o.lr),
        "the warm-up goes from lr_warmup_init to lr");
    refuse(o.lr_warmup_init > 0 && warmup == 0, {"lr_warmup_init"},
           fmt::format("optim.lr_warmup_init = {} without a warm-up", o.lr_warmup_init),
           "set lr_warmup_iters or lr_warmup_samples, or drop it");
    refuse(style == "inverse_sqrt" && warmup == 0, {"lr_decay_style"},
           "optim.lr_decay_style = \"inverse_sqrt\" without a warm-up",
           "its length is what the decay is measured by: set lr_warmup_iters");
    refuse(
        style == "inverse_sqrt" && decay > 0, {"lr_decay_" + unit},
        fmt::format("optim.lr_decay_{} = {} with lr_decay_style = \"inverse_sqrt\"", unit, decay),
        "that decay has no end; min_lr bounds it from below");
    const int64_t left = (decay > 0 ? decay : train_iters) - warmup;
    refuse(style == "wsd" && (wsd < 1 || wsd > left), {"lr_wsd_decay_" + unit, "lr_decay_style"},
           fmt::format("optim.lr_wsd_decay_{} = {} with lr_decay_style = \"wsd\"; allowed: 1 to "
                       "{}, what follows the warm-up",
                       unit, wsd, left),
           "wsd decays over the last so many before the end of the decay");
    const auto only = [&](const char* of, bool set, const std::string& key,
                          const std::string& value) {
        refuse(set && style != of, {key, "lr_decay_style"},
               fmt::format("optim.{} = {} belongs to lr_decay_style = \"{}\", this is \"{}\"", key,
                           value, of, style),
               "drop it, or set that style");
    };
    const auto text = [](double v) { return fmt::format("{}", v); };
    only("wsd", wsd > 0, "lr_wsd_decay_" + unit, fmt::format("{}", wsd));
    only("wsd", o.lr_wsd_decay_style != "linear", "lr_wsd_decay_style",
         "\"" + o.lr_wsd_decay_style + "\"");
    only("cosine_restarts", o.lr_cycles > 1, "lr_cycles", fmt::format("{}", o.lr_cycles));
    only("cosine_restarts", o.lr_cycle_length != 1, "lr_cycle_length", text(o.lr_cycle_length));
    only("cosine_restarts", o.lr_cycle_peak != 1, "lr_cycle_peak", text(o.lr_cycle_peak));
}

void ema_conflicts(const OptimOptions& o, Refusals& refuse) {
    const std::vector<EmaOptions> emas = all_emas(o);
    const EmaOptions plain;
    for (size_t i = 0; i < emas.size(); ++i) {
        const EmaOptions& e = emas[i];
        const char* key = i < o.ema_decay.size() ? "ema_decay" : "ema";
        const auto wrong = [&](bool is, const std::string& rule, const std::string& hint) {
            refuse(is, {key}, fmt::format("optim.{}: {}", key, rule), hint);
        };
        for (size_t j = 0; j < i; ++j) {
            refuse(ema_name(e) == ema_name(emas[j]), {key},
                   fmt::format("optim.{} holds {} twice", key, ema_name(e)),
                   "averages are named by their decay and how it rises");
            wrong(e.adopt_step > 0 && e.adopt_step == emas[j].adopt_step,
                  fmt::format("adopt_step = {} of two averages", e.adopt_step),
                  "the weights can become only one of them");
        }
        for (const double d : {e.decay, e.switch_decay.value_or(e.decay)}) {
            wrong(static_cast<float>(d) == 1.0F,
                  fmt::format("decay {} is 1 in float32: the average would never move", d),
                  "0.9999999 is the next below");
            wrong(e.min_decay > d,
                  fmt::format("min_decay = {} is larger than decay {}", e.min_decay, d),
                  "the decay rises from the one to the other");
        }
        wrong(e.warmup == "none" && e.min_decay != 0,
              fmt::format("min_decay = {} with warmup = \"none\"", e.min_decay),
              "a constant decay does not rise; drop it, or set a warm-up");
        wrong(e.warmup != "power" && (e.inv_gamma != plain.inv_gamma || e.power != plain.power),
              fmt::format("inv_gamma = {}, power = {} with warmup = \"{}\"", e.inv_gamma, e.power,
                          e.warmup),
              "they belong to warmup = \"power\"");
        wrong((e.switch_step > 0) != e.switch_decay.has_value(),
              e.switch_step > 0
                  ? fmt::format("switch_step = {} without switch_decay", e.switch_step)
                  : std::string("switch_decay without switch_step"),
              "the one says when, the other to what");
        wrong(e.every > 1 && e.adopt_step > 0 && e.adopt_step < e.every,
              fmt::format("adopt_step = {} is before the first update, every = {}", e.adopt_step,
                          e.every),
              "the weights would go back to where they began");
    }
}

}  // namespace

std::vector<Conflict> conflicts(const OptimOptions& o, int64_t train_iters) {
    std::vector<Conflict> out;
    Refusals refuse(out);
    lr_conflicts(o, train_iters, refuse);
    ema_conflicts(o, refuse);
    for (size_t i = 0; i < o.groups.size(); ++i) {
        const ParamGroup& g = o.groups[i];
        refuse(g.lr && g.lr_scale != 1, {"groups"},
               fmt::format("optim.groups: lr = {} and lr_scale = {} in table {}", g.lr.value_or(0),
                           g.lr_scale, i + 1),
               "keep one of them");
        refuse(g.lr && o.lr == 0, {"groups"},
               fmt::format("optim.groups: lr = {} in table {} with optim.lr = 0", g.lr.value_or(0),
                           i + 1),
               "a group's learning rate follows the curve of optim.lr, scaled");
    }
    refuse(!o.freeze.empty() && o.freeze.front().rfind('!', 0) == 0, {"freeze"},
           fmt::format("optim.freeze begins with \"{}\", which thaws what nothing froze",
                       o.freeze.empty() ? "" : o.freeze.front()),
           "put \"*\" in front to train these alone");
    return out;
}

}  // namespace vt
