// SPDX-License-Identifier: MIT
// Options that subcommands of `data` share.
// Floor 7.
#pragma once

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "data/encode.h"
#include "data/facts.h"

namespace vt {

struct EncodeArgs {
    fs::path out, stats_from;
    std::string size = "64x64", dtype = "bf16";
    int64_t frames = 17;
    std::vector<ClipShape> shapes;  // if not empty, instead of size and frames
    EncodeSpec spec;
    uint64_t seed = 1;
};
void add_encode_options(CLI::App& command, EncodeArgs& args, bool out_required);
/// Reads shapes and dtype into args.spec and checks it.
void finish_encode_args(EncodeArgs& args);
/// "wrote 120 training and 12 validation samples ... to DIR"
void say_report(const EncodeArgs& args, const EncodeReport& report);

/// kUser unless `value` is a finite number in [low, high].
void check_range(const char* option, double value, double low, double high);

// Lines that say how far a long work is and how long it will take, at most one every two seconds,
// from the first tick on.
// From any thread.
class Progress {
  public:
    explicit Progress(std::string what);
    /// `share` of the whole is done, in [0, 1]; `where` in words.
    void tick(double share, const std::string& where);

  private:
    using Clock = std::chrono::steady_clock;
    std::string what_;
    std::mutex mutex_;
    Clock::time_point begin_, next_;
};

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

/// Files as named; a folder stands for its *.h5 (and *.hdf5), sorted. kUser for one without.
[[nodiscard]] std::vector<fs::path> shards_of(const std::vector<std::string>& names);

}  // namespace vt
