// SPDX-License-Identifier: MIT
// vtrain convert: reads weights in diffusers' or the original Wan naming, writes a diffusers
// folder. Floor 7.
#include <memory>

#include <CLI/CLI.hpp>

#include "app/commands.h"
#include "core/log.h"
#include "model/diffusers.h"
#include "model/store.h"
#include "model/wan_params.h"

namespace vt {

namespace {

struct ConvertArgs {
    std::string weights, out, dtype = "bf16";
    int64_t shard_bytes = kMaxShardBytes;
};

int convert(const ConvertArgs& args) {
    const WanConfig config = read_wan_config(args.weights);
    wan::check_config(config);
    ParamStore store(wan::param_table(config), {}, false);
    store.reserve();
    import_diffusers(args.weights, store.table(), store.master());
    export_diffusers(args.out, config, store.table(), store.weights().master,
                     args.dtype == "f32" ? DType::kF32 : DType::kBF16, args.shard_bytes);
    say("wrote {} parameters in {} tensors to {}", count_elements(store.table()),
        store.table().size(), args.out);
    return 0;
}

}  // namespace

void add_convert_command(CLI::App& app, Work& work) {
    CLI::App* sub = app.add_subcommand(
        "convert", "Rewrite diffusers or original Wan weights as a diffusers folder");
    const auto args = std::make_shared<ConvertArgs>();
    sub->add_option("--weights", args->weights, "folder: config.json and safetensors weights")
        ->required();
    sub->add_option("--out", args->out, "new folder to write")->required();
    sub->add_option("--dtype", args->dtype, "of the tensors not kept in f32")
        ->check(CLI::IsMember({"bf16", "f32"}))
        ->capture_default_str();
    sub->add_option("--max-shard-bytes", args->shard_bytes, "a larger model is split into files")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    sub->callback([args, &work] { work = [args] { return convert(*args); }; });
}

}  // namespace vt
