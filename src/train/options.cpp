// SPDX-License-Identifier: MIT
// Rows of [run], [data] and [log], and the list of all sections. Floor 6.
#include "train/options.h"

#include <iterator>

namespace vt {

std::vector<Field> fields(RunOptions& o) {
    return {
        {.key = "run.name", .target = &o.name, .help = "Name of the run in logs."},
        {.key = "run.out",
         .target = &o.out,
         .help = "Folder of the run's logs, checkpoints and samples, relative to the working "
                 "directory.",
         .required = true},
        {.key = "run.seed",
         .target = &o.seed,
         .help = "Seed of weights, sample order, noise, timesteps and caption drops.",
         .min = 0},
        {.key = "run.device",
         .target = &o.device,
         .help = "Where tensors live; auto takes cuda only where every op runs on it.",
         .choices = {"auto", "cpu", "cuda"}},
        {.key = "run.precision",
         .target = &o.precision,
         .help = "Number format of the operands of matrix products; master weights, moments, "
                 "reductions and loss are fp32 with either.",
         .choices = {"fp32", "bf16"}},
        {.key = "run.train_iters",
         .target = &o.train_iters,
         .help = "Optimizer steps of the whole run.",
         .aliases = {"train.train_iters"},
         .min = 1,
         .required = true},
        {.key = "run.time_limit",
         .target = &o.time_limit,
         .help = "Minutes after the start of the process at which it saves and ends with exit code "
                 "75, to be started again. 0: none.",
         .aliases = {"train.exit_duration_in_mins"},
         .min = 0},
        {.key = "run.threads",
         .target = &o.threads,
         .help = "Compute threads. 0: all cores the process may use. Results do not depend on it.",
         .min = 0,
         .max = 4096},
    };
}

std::vector<Field> fields(DataOptions& o) {
    return {
        {.key = "data.train",
         .target = &o.train,
         .help = "Training shards: globs, or tables { path = glob, weight = share of samples }. "
                 "Relative paths start at the folder of the config file (with --set: at the "
                 "working directory).",
         .min = 0,
         .min_exclusive = true,
         .required = true,
         .is_path = true},
        {.key = "data.valid",
         .target = &o.valid,
         .help = "Validation shards: globs, relative as in train. Empty: no validation.",
         .is_path = true},
        {.key = "data.names",
         .target = &o.names,
         .help = "What data sets are called in files that are not in the shard format: texts "
                 "\"ours=theirs\", e.g. [\"latents=vae_latent\", \"text=cond/prompt_embeds\"]."},
        {.key = "data.facts",
         .target = &o.facts,
         .help = "JSON file with the facts that such files do not state (codec, normalised, "
                 "text_encoder, ...; data/README.md lists them), relative to the working "
                 "directory."},
        {.key = "data.global_batch_size",
         .target = &o.global_batch_size,
         .help = "Samples per optimizer step, over all ranks.",
         .aliases = {"train.global_batch_size"},
         .min = 1,
         .max = 1 << 24},
        {.key = "data.micro_batch_size",
         .target = &o.micro_batch_size,
         .help = "Largest number of samples in one forward pass of one rank.",
         .aliases = {"train.micro_batch_size"},
         .min = 1,
         .max = 1 << 24},
        {.key = "data.rampup_batch_size",
         .target = &o.rampup_batch_size,
         .help = "[start, increment, samples]: steps of `start` samples first, `increment` more at "
                 "equal distances, global_batch_size from `samples` consumed on. Empty: no ramp.",
         .aliases = {"train.rampup_batch_size"},
         .min = 1},
        {.key = "data.reader_threads",
         .target = &o.reader_threads,
         .help = "Threads that read and check samples ahead of the step.",
         .min = 1,
         .max = 256},
        {.key = "data.prefetch_steps",
         .target = &o.prefetch_steps,
         .help = "Steps whose samples are read ahead; each takes the memory of one more step's "
                 "data.",
         .min = 1,
         .max = 64},
        {.key = "data.max_bad_samples",
         .target = &o.max_bad_samples,
         .help = "Different bad samples that are replaced, named and counted, over all restarts, "
                 "before the run ends. 0: the first ends it.",
         .min = 0},
        {.key = "data.on_bad_file",
         .target = &o.on_bad_file,
         .help = "When a whole shard fails during the run (gone, changed, cut, forbidden, or I/O "
                 "errors that last for seconds): save and stop, or replace its samples by others "
                 "of their shape and source.",
         .choices = {"stop", "replace"}},
        {.key = "data.stall_warn_s",
         .target = &o.stall_warn_s,
         .help = "Seconds after which a read that does not come back is reported; training waits "
                 "for it.",
         .min = 0,
         .min_exclusive = true},
        {.key = "data.on_change",
         .target = &o.on_change,
         .help = "When the data set differs from the checkpoint's: refuse to resume, or begin a "
                 "new epoch.",
         .choices = {"refuse", "new_epoch"}},
    };
}

std::vector<Field> fields(LogOptions& o) {
    return {
        {.key = "log.log_interval",
         .target = &o.log_interval,
         .help = "Steps between console lines and rows of metrics.jsonl.",
         .min = 1},
        {.key = "log.eval_interval",
         .target = &o.eval_interval,
         .help = "Steps between validations. 0: never.",
         .min = 0},
        {.key = "log.eval_samples",
         .target = &o.eval_samples,
         .help = "Largest number of validation samples used.",
         .min = 1},
        {.key = "log.eval_quantiles",
         .target = &o.eval_quantiles,
         .help = "Fixed timestep quantiles per validation sample.",
         .min = 1,
         .max = 1000},
        {.key = "log.sample_interval",
         .target = &o.sample_interval,
         .help = "Steps between sampled videos. 0: never.",
         .min = 0},
        {.key = "log.sample_count",
         .target = &o.sample_count,
         .help = "Captions sampled each time: of the validation set, or of the training set "
                 "where there is no validation set.",
         .min = 1,
         .max = 1000},
        {.key = "log.sample_steps",
         .target = &o.sample_steps,
         .help = "Steps of the solver for these samples.",
         .min = 1,
         .max = 1000},
        {.key = "log.sample_guidance",
         .target = &o.sample_guidance,
         .help = "Classifier-free guidance of these samples. 1 or less: none.",
         .min = 0,
         .max = 1000},
        {.key = "log.sample_solver",
         .target = &o.sample_solver,
         .help = "How these samples go from noise to data: euler or unipc for rectified flows, "
                 "ddim or ddpm for a noise schedule. auto: euler, or ddim.",
         .choices = {"auto", "euler", "unipc", "ddim", "ddpm"}},
        {.key = "log.sample_shift",
         .target = &o.sample_shift,
         .help = "Timestep shift of these samples, for rectified flows. 0: the objective's for "
                 "their shape.",
         .min = 0,
         .max = 1000},
        {.key = "log.sample_weights",
         .target = &o.sample_weights,
         .help = "Which weights draw them: raw, ema0, ema1, ... as optim.ema_decay, then "
                 "optim.ema list them. auto: the first average, or raw where there is none."},
        {.key = "log.sample_negative_prompt",
         .target = &o.sample_negative_prompt,
         .help = "What guidance leads away from, in place of the empty caption. Needs data whose "
                 "text encoder is built in."},
    };
}

void naming_keys(const RunConfig& c, const std::vector<std::string>& keys,
                 const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& e) {
        if (e.fault() != Fault::kUser && e.fault() != Fault::kData) throw;
        for (const std::string& key : keys) {
            const auto it = c.origins.find(key);
            if (it == c.origins.end()) continue;
            throw Error(e.fault(), fmt::format("{}: {}: {}", it->second.text, key, e.message()),
                        e.hint(), Where::here());
        }
        throw;
    }
}

std::vector<Field> fields(RunConfig& c) {
    std::vector<Field> all;
    const auto add = [&](std::vector<Field> rows) {
        all.insert(all.end(), std::move_iterator(rows.begin()), std::move_iterator(rows.end()));
    };
    add(fields(c.run));
    add(fields(c.model));
    add(fields(c.objective));
    add(fields(c.data));
    add(fields(c.optim));
    add(fields(c.parallel));
    add(fields(c.checkpoint));
    add(fields(c.health));
    add(fields(c.log));
    return all;
}

}  // namespace vt
