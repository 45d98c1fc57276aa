// SPDX-License-Identifier: MIT
// Options that subcommands of `data` share.
// Floor 7.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "data/encode.h"
#include "data/facts.h"

namespace vt {

struct EncodeArgs {
    fs::path out, stats_from;
    std::string size = "64x64", dtype = "bf16";
    EncodeSpec spec;
    uint64_t seed = 1;
};
void add_encode_options(CLI::App& command, EncodeArgs& args, bool out_required);
/// Reads size and dtype into args.spec and checks it.
void finish_encode_args(EncodeArgs& args);
/// "wrote 120 training and 12 validation samples ... to DIR"
void say_report(const EncodeArgs& args, const EncodeReport& report);

/// "HxW", e.g. 480x832. kUser otherwise.
void parse_size(const std::string& text, int64_t* H, int64_t* W);

// Facts of latents stated on the command line.
struct FactsArgs {
    std::string codec, text_encoder, normalised;
    int64_t channels = 0, text_len = 0;
    std::vector<int64_t> scale;
    std::vector<double> mean, std;
    double fps = -1;
    fs::path vae, file;
    /// What they say together. Contradictions are refused (kData).
    [[nodiscard]] FactsGiven given() const;
};
void add_facts_options(CLI::App& command, FactsArgs& args);
/// Mean and std of a diffusers autoencoder (config.json or .safetensors). kUser if not there.
[[nodiscard]] FactsGiven facts_of_vae(const fs::path& path);

/// OURS=THEIRS of --map. kUser naming what OURS may be.
[[nodiscard]] std::map<std::string, std::string> parse_maps(const std::vector<std::string>& maps,
                                                            const std::vector<std::string>& known);

}  // namespace vt
