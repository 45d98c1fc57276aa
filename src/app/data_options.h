// SPDX-License-Identifier: MIT
// Options that `data encode` and `data synth` share.
// Floor 7.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "data/encode.h"

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

}  // namespace vt
