// SPDX-License-Identifier: MIT
// Rows of [objective], and which of its values contradict each other. Floor 4.
#include <cmath>
#include <fmt/format.h>

#include "model/objective.h"

namespace vt {

namespace {

// 1 - u - a (cos^2(pi u / 2) - 1 + u) falls all the way only up to this a
constexpr double kMaxModeScale = 2 / (M_PI - 2);

Field logit_mean_row(std::string key, double* target) {
    return {.key = std::move(key),
            .target = target,
            .help = "Mean of logit(sigma) for logit_normal.",
            .min = -20,
            .max = 20};
}
Field logit_std_row(std::string key, double* target) {
    return {.key = std::move(key),
            .target = target,
            .help = "Standard deviation of logit(sigma) for logit_normal.",
            .min = 0,
            .max = 20,
            .min_exclusive = true};
}
Field mode_scale_row(std::string key, double* target) {
    return {.key = std::move(key),
            .target = target,
            .help =
                "Scale a of mode: sigma = 1 - u - a (cos^2(pi u / 2) - 1 + u), u uniform; "
                "above 0 the middle is drawn more often.",
            .min = -1,
            .max = kMaxModeScale};
}

std::vector<Field> level_rows(ObjectiveOptions& o) {
    return {
        {.key = "objective.timestep_sampling",
         .target = &o.timestep_sampling,
         .help = "Distribution of sigma before the shift, for ddpm of t / 1000 (where it is then "
                 "uniform unless set); mix takes those of timestep_mix.",
         .choices = {"uniform", "logit_normal", "mode", "mix"}},
        logit_mean_row("objective.logit_mean", &o.logit_mean),
        logit_std_row("objective.logit_std", &o.logit_std),
        mode_scale_row("objective.mode_scale", &o.mode_scale),
        {.key = "objective.timestep_mix",
         .target = table_list(&o.timestep_mix),
         .help = "The distributions that timestep_sampling = mix is made of."},
        {.key = "objective.stratified",
         .target = &o.stratified,
         .help = "Whether the draws of a step share the range of u evenly among them, one in each "
                 "of as many equal parts."},
        {.key = "objective.sigma_range",
         .target = &o.sigma_range,
         .help = "[low, high]: only noise levels (sigma after the shift; t / 1000 for ddpm) inside "
                 "are drawn, from the same density given that.",
         .min = 0,
         .max = 1},
        {.key = "objective.flow_shift",
         .target = &o.flow_shift,
         .help = "Shift s towards noise: sigma' = s sigma / (1 + (s - 1) sigma); 1 leaves sigma "
                 "as it is.",
         .min = 0,
         .max = 1000,
         .min_exclusive = true},
        {.key = "objective.shift_by",
         .target = &o.shift_by,
         .help = "A further factor of the shift by each sample's latent shape: flux e^(0.5 + 0.65 "
                 "(HW/4 - 256) / 3840); sqrt_area sqrt(HW / shift_reference); open_sora (1 + 2 "
                 "(HW/4 - 256) / 3840) sqrt(T).",
         .choices = {"none", "flux", "sqrt_area", "open_sora"}},
        {.key = "objective.shift_reference",
         .target = &o.shift_reference,
         .help = "Latent rows x columns at which sqrt_area is 1.",
         .min = 1,
         .max = 1e12},
        {.key = "objective.sigma_min",
         .target = &o.sigma_min,
         .help = "Noise left at sigma = 0: x_t = (1 - sigma) x0 + (1 - (1 - sigma_min) (1 - "
                 "sigma)) e, target (1 - sigma_min) e - x0.",
         .min = 0,
         .max = 0.1},
    };
}

}  // namespace

std::vector<Field> fields(TimestepSampler& o) {
    return {
        {.key = "sampling",
         .target = &o.sampling,
         .help = "Distribution of sigma before the shift.",
         .choices = {"uniform", "logit_normal", "mode"},
         .required = true},
        {.key = "weight",
         .target = &o.weight,
         .help = "Its share of the draws, relative to the sum over the list.",
         .min = 0,
         .min_exclusive = true},
        logit_mean_row("logit_mean", &o.logit_mean),
        logit_std_row("logit_std", &o.logit_std),
        mode_scale_row("mode_scale", &o.mode_scale),
    };
}

std::vector<Field> fields(ObjectiveOptions& o) {
    std::vector<Field> rows = {
        {.key = "objective.kind",
         .target = &o.kind,
         .help = "rectified_flow: x_t = (1 - sigma) x0 + sigma e, target e - x0, the model sees "
                 "1000 sigma. ddpm: x_t = sqrt(ab) x0 + sqrt(1 - ab) e with ab of beta_schedule at "
                 "t = 0..999, the model sees t.",
         .choices = {"rectified_flow", "ddpm"}},
        {.key = "objective.prediction",
         .target = &o.prediction,
         .help = "What the model predicts: v (rectified_flow: e - x0, its only one; ddpm: "
                 "sqrt(ab) e - sqrt(1 - ab) x0), epsilon (e) or x0.",
         .choices = {"v", "epsilon", "x0"}},
    };
    for (Field& row : level_rows(o)) rows.push_back(std::move(row));
    const std::vector<Field> rest = {
        {.key = "objective.loss_weighting",
         .target = &o.loss_weighting,
         .help = "Factor on each sample's error. rectified_flow: sigma_sqrt 1 / sigma^2, cosmap 2 "
                 "/ (pi (1 - 2 sigma + 2 sigma^2)). ddpm: min_snr, the weight min(snr, "
                 "min_snr_gamma) of an error of x0, divided by snr for epsilon and by snr + 1 for "
                 "v.",
         .choices = {"none", "sigma_sqrt", "cosmap", "min_snr"}},
        {.key = "objective.min_snr_gamma",
         .target = &o.min_snr_gamma,
         .help = "Largest signal-to-noise ratio that still raises the weight, for min_snr.",
         .min = 0,
         .min_exclusive = true},
        {.key = "objective.beta_schedule",
         .target = &o.beta_schedule,
         .help = "Noise added per step of ddpm.",
         .choices = {"linear", "scaled_linear", "cosine"}},
        {.key = "objective.beta_start",
         .target = &o.beta_start,
         .help = "First beta. 0: 0.0001 for linear, 0.00085 for scaled_linear.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "objective.beta_end",
         .target = &o.beta_end,
         .help = "Last beta. 0: 0.02 for linear, 0.012 for scaled_linear.",
         .min = 0,
         .max = 1,
         .max_exclusive = true},
        {.key = "objective.zero_terminal_snr",
         .target = &o.zero_terminal_snr,
         .help = "Rescale the schedule of ddpm so that t = 999 is pure noise."},
        {.key = "objective.cfg_dropout_prob",
         .target = &o.cfg_dropout_prob,
         .help = "Probability that a sample is trained with the empty caption, for "
                 "classifier-free guidance.",
         .min = 0,
         .max = 1},
        {.key = "objective.loss_reduction",
         .target = &o.loss_reduction,
         .help = "Whether each sample or each latent element counts the same in the loss.",
         .choices = {"sample", "element"}},
    };
    rows.insert(rows.end(), rest.begin(), rest.end());
    return rows;
}

std::vector<Conflict> conflicts(const ObjectiveOptions& o) {
    std::vector<Conflict> out;
    const auto refuse = [&](bool wrong, std::vector<std::string> keys, std::string rule,
                            std::string hint) {
        for (std::string& key : keys) key = "objective." + key;
        if (wrong) out.push_back({std::move(keys), std::move(rule), std::move(hint)});
    };
    const bool mix = o.timestep_sampling == "mix";
    refuse(
        mix && o.timestep_mix.empty(), {"timestep_sampling"},
        "objective.timestep_sampling = \"mix\" without objective.timestep_mix",
        "list its distributions: timestep_mix = [{ sampling = \"uniform\", weight = 1.0 }, ...]");
    refuse(!mix && !o.timestep_mix.empty(), {"timestep_mix"},
           fmt::format("objective.timestep_mix is set, but timestep_sampling = \"{}\"",
                       o.timestep_sampling),
           "set timestep_sampling = \"mix\", or drop the list");
    refuse(o.sigma_range.size() != 2 || !(o.sigma_range[0] < o.sigma_range[1]), {"sigma_range"},
           fmt::format("objective.sigma_range = [{}] is not [low, high] with low < high",
                       fmt::join(o.sigma_range, ", ")),
           "for example [0.0, 0.875]");

    const auto only = [&](const char* kind, bool set, const char* key, const std::string& value) {
        refuse(set && o.kind != kind, {key, "kind"},
               fmt::format("objective.{} = {} belongs to kind = \"{}\", this is \"{}\"", key, value,
                           kind, o.kind),
               fmt::format("drop it, or set objective.kind = \"{}\"", kind));
    };
    const auto quoted = [](const std::string& s) { return "\"" + s + "\""; };
    const ObjectiveOptions d;
    only("ddpm", o.prediction != d.prediction, "prediction", quoted(o.prediction));
    only("ddpm", o.loss_weighting == "min_snr", "loss_weighting", quoted(o.loss_weighting));
    only("ddpm", o.beta_schedule != d.beta_schedule, "beta_schedule", quoted(o.beta_schedule));
    only("ddpm", o.beta_start != 0, "beta_start", fmt::format("{}", o.beta_start));
    only("ddpm", o.beta_end != 0, "beta_end", fmt::format("{}", o.beta_end));
    only("ddpm", o.zero_terminal_snr, "zero_terminal_snr", "true");
    only("rectified_flow", o.loss_weighting == "sigma_sqrt" || o.loss_weighting == "cosmap",
         "loss_weighting", quoted(o.loss_weighting));
    only("rectified_flow", o.flow_shift != 1, "flow_shift", fmt::format("{}", o.flow_shift));
    only("rectified_flow", o.shift_by != "none", "shift_by", quoted(o.shift_by));
    only("rectified_flow", o.sigma_min != 0, "sigma_min", fmt::format("{}", o.sigma_min));

    refuse(o.min_snr_gamma != d.min_snr_gamma && o.loss_weighting != "min_snr", {"min_snr_gamma"},
           fmt::format("objective.min_snr_gamma = {} without loss_weighting = \"min_snr\"",
                       o.min_snr_gamma),
           "it would do nothing");
    refuse(o.zero_terminal_snr && o.prediction == "epsilon", {"zero_terminal_snr", "prediction"},
           "objective.zero_terminal_snr with prediction = \"epsilon\"",
           "at t = 999 the input is the noise itself and nothing is learned; predict v or x0");
    refuse(o.beta_schedule == "cosine" && (o.beta_start != 0 || o.beta_end != 0),
           {"beta_start", "beta_end"},
           "objective.beta_start and beta_end with beta_schedule = \"cosine\"",
           "the cosine schedule has no ends to set");
    const bool linear = o.beta_schedule == "linear";
    const double start = o.beta_start > 0 ? o.beta_start : linear ? 1e-4 : 0.00085;
    const double end = o.beta_end > 0 ? o.beta_end : linear ? 0.02 : 0.012;
    refuse(!(start < end), {"beta_start", "beta_end"},
           fmt::format("objective.beta_start = {} is not below beta_end = {}", start, end),
           "noise grows with t");
    return out;
}

}  // namespace vt
