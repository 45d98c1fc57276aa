// SPDX-License-Identifier: MIT
#include "ckpt/foreign.h"

#include <array>
#include <fcntl.h>
#include <string_view>
#include <unistd.h>

namespace vt {

namespace {

constexpr const char* kOnlyImport =
    "convert the weights to a diffusers folder (config.json and safetensors) and take that with "
    "`vtrain ckpt import`";

bool has(const fs::path& dir, const char* name) {
    std::error_code ignored;
    return fs::exists(dir / name, ignored);
}

bool any_ends_with(const fs::path& dir, std::string_view end) {
    std::error_code error;
    fs::directory_iterator it(dir, error);
    for (; !error && it != fs::directory_iterator(); it.increment(error)) {
        if (it->path().filename().string().ends_with(end)) return true;
    }
    return false;
}

std::string first_bytes(const fs::path& file) {
    const Fd fd(::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!fd.open()) return {};
    std::array<char, 64> buffer{};
    const ssize_t n = ::pread(fd.get(), buffer.data(), buffer.size(), 0);
    return n > 0 ? std::string(buffer.data(), static_cast<size_t>(n)) : std::string();
}

std::optional<ForeignKind> file_kind(const fs::path& file) {
    using namespace std::string_view_literals;
    const std::string head = first_bytes(file);
    const std::string_view h = head;
    if (h.starts_with("PK\x03\x04"sv) || h.starts_with("\x80\x02"sv)) {
        return ForeignKind{"a file of torch.save (.pt, .pth, .bin)", kOnlyImport};
    }
    if (h.starts_with("\x89HDF\r\n\x1a\n"sv)) {
        return ForeignKind{"an HDF5 file, as shards of training data are",
                           "name a run's folder or a step-N folder in it"};
    }
    if (h.size() > 9 && h[8] == '{' && h[7] == 0) {
        return ForeignKind{
            "a single safetensors file",
            "a checkpoint is the step-N folder around it; weights of other programs are "
            "taken with their config.json by `vtrain ckpt import`"};
    }
    return std::nullopt;
}

std::optional<ForeignKind> folder_kind(const fs::path& dir) {
    if (has(dir, ".metadata") && any_ends_with(dir, ".distcp")) {
        return ForeignKind{"a checkpoint of torch.distributed.checkpoint (DCP)", kOnlyImport};
    }
    if (has(dir, "latest_checkpointed_iteration.txt") ||
        (has(dir, "metadata.json") && has(dir, "common.pt")) || has(dir, "mp_rank_00")) {
        return ForeignKind{"a checkpoint of Megatron", kOnlyImport};
    }
    if (has(dir, "zero_to_fp32.py") || any_ends_with(dir, "_model_states.pt")) {
        return ForeignKind{"a checkpoint of DeepSpeed", kOnlyImport};
    }
    if (has(dir, "model_index.json")) {
        return ForeignKind{"a pipeline folder of diffusers",
                           "take the model in it with `vtrain ckpt import --weights " +
                               (dir / "transformer").string() + " --out DIR`"};
    }
    if (has(dir, "config.json") && any_ends_with(dir, ".safetensors")) {
        return ForeignKind{
            "a model folder of diffusers",
            "take it with `vtrain ckpt import --weights " + dir.string() + " --out DIR`"};
    }
    if (any_ends_with(dir, ".pt") || any_ends_with(dir, ".pth") || any_ends_with(dir, ".bin")) {
        return ForeignKind{"a folder of torch files", kOnlyImport};
    }
    return std::nullopt;
}

}  // namespace

std::optional<ForeignKind> foreign_kind(const fs::path& path) {
    std::error_code ignored;
    if (fs::is_directory(path, ignored)) return folder_kind(path);
    if (fs::is_regular_file(path, ignored)) return file_kind(path);
    return std::nullopt;
}

}  // namespace vt
