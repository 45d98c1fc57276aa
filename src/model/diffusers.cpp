// SPDX-License-Identifier: MIT
#include "model/diffusers.h"

#include <algorithm>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "core/log.h"
#include "data/safetensors.h"

namespace vt {

namespace {

using Json = nlohmann::json;

constexpr const char* kStem = "diffusion_pytorch_model";
constexpr const char* kClass = "WanTransformer3DModel";
constexpr const char* kOriginalClass = "WanModel";

Json parse_json(const std::string& text, const fs::path& path) {
    try {
        return Json::parse(text);
    } catch (const Json::exception& e) {
        raise(Fault::kData, fmt::format("{} is not JSON: {}", path.string(), e.what()));
    }
}

Json read_json(const fs::path& path) {
    return parse_json(read_file(path), path);
}

// --- config.json ------------------------------------------------------------------------------

// Takes fields out one by one, so that what is left over is unknown.
class Fields {
  public:
    Fields(Json json, fs::path path) : json_(std::move(json)), path_(std::move(path)) {
        if (!json_.is_object()) {
            raise(Fault::kData, fmt::format("{} does not hold an object", path_.string()));
        }
    }
    void take(const char* key, int64_t& value) {
        take_as(key, value, "an integer", [](const Json& j) { return j.is_number_integer(); });
    }
    void take(const char* key, double& value) {
        take_as(key, value, "a number", [](const Json& j) { return j.is_number(); });
    }
    void take(const char* key, std::string& value) {
        take_as(key, value, "a string", [](const Json& j) { return j.is_string(); });
    }
    void take(const char* key, Patch& value) {
        std::vector<int64_t> v{value.t, value.h, value.w};
        take_as(key, v, "three integers", [](const Json& j) {
            return j.is_array() && j.size() == 3 &&
                   std::all_of(j.begin(), j.end(), [](auto& e) { return e.is_number_integer(); });
        });
        value = {v[0], v[1], v[2]};
    }
    /// The field must be absent or equal to `only`.
    void require(const char* key, const Json& only, const char* why) {
        const auto it = json_.find(key);
        if (it == json_.end()) return;
        if (*it != only) {
            raise(Fault::kData,
                  fmt::format("{}: \"{}\" is {}; {}", path_.string(), key, it->dump(), why));
        }
        json_.erase(it);
    }
    void ignore(const char* key) { json_.erase(key); }
    void warn_about_the_rest() const {
        for (const auto& [key, value] : json_.items()) {
            warn("{}: unknown field \"{}\" = {} is ignored", path_.string(), key, value.dump());
        }
    }

  private:
    template <typename T, typename Is>
    void take_as(const char* key, T& value, const char* what, const Is& is) {
        const auto it = json_.find(key);
        if (it == json_.end()) return;
        if (!is(*it)) {
            raise(Fault::kData, fmt::format("{}: \"{}\" is {}, but must be {}", path_.string(), key,
                                            it->dump(), what));
        }
        value = it->template get<T>();
        json_.erase(it);
    }
    Json json_;
    fs::path path_;
};

constexpr const char* kImageVariant =
    "image-conditioned variants have an image embedder and image keys and values, which this model "
    "does not; use the text-to-video checkpoint";

void take_diffusers(Fields& f, WanConfig& c) {
    f.take("patch_size", c.patch_size);
    f.take("num_attention_heads", c.num_attention_heads);
    f.take("attention_head_dim", c.attention_head_dim);
    f.take("in_channels", c.in_channels);
    f.take("out_channels", c.out_channels);
    f.take("text_dim", c.text_dim);
    f.take("freq_dim", c.freq_dim);
    f.take("ffn_dim", c.ffn_dim);
    f.take("num_layers", c.num_layers);
    f.take("eps", c.eps);
    f.take("rope_max_seq_len", c.rope_max_seq_len);
    f.require("cross_attn_norm", true, "only true is supported");
    f.require("qk_norm", "rms_norm_across_heads", "only \"rms_norm_across_heads\" is supported");
    f.require("image_dim", nullptr, kImageVariant);
    f.require("added_kv_proj_dim", nullptr, kImageVariant);
    f.require("pos_embed_seq_len", nullptr, kImageVariant);
}

void take_original(Fields& f, WanConfig& c) {
    int64_t dim = 5120;
    f.take("dim", dim);
    f.take("num_heads", c.num_attention_heads);
    if (c.num_attention_heads < 1 || dim % c.num_attention_heads != 0) {
        raise(Fault::kData, fmt::format("\"dim\" = {} is not a multiple of \"num_heads\" = {}", dim,
                                        c.num_attention_heads));
    }
    c.attention_head_dim = dim / c.num_attention_heads;
    f.take("patch_size", c.patch_size);
    f.take("in_dim", c.in_channels);
    f.take("out_dim", c.out_channels);
    f.take("text_dim", c.text_dim);
    f.take("freq_dim", c.freq_dim);
    f.take("ffn_dim", c.ffn_dim);
    f.take("num_layers", c.num_layers);
    f.take("eps", c.eps);
    f.require("cross_attn_norm", true, "only true is supported");
    f.require("qk_norm", true, "only true is supported");
    f.require("window_size", Json::array({-1, -1}), "attention windows are not supported");
    std::string type = "t2v";
    f.take("model_type", type);
    if (type != "t2v" && type != "ti2v") {
        raise(Fault::kData, fmt::format("\"model_type\" is \"{}\"; {}", type, kImageVariant));
    }
    f.ignore("text_len");  // a property of the data
}

}  // namespace

namespace {

bool is_pickle(const fs::path& path) {
    const std::string ext = path.extension().string();
    return ext == ".pt" || ext == ".pth" || ext == ".bin" || ext == ".ckpt" || ext == ".pkl";
}

// PyTorch's own format: reading it means running what is in it.
[[noreturn]] void refuse_pickle(const fs::path& path) {
    raise(Fault::kUser,
          fmt::format("{} is a pickle: to read one is to run the program inside it", path.string()),
          "convert it where you trust it: python -c \"import torch, safetensors.torch as s; "
          "s.save_file(torch.load('IN.pt', weights_only=True), 'OUT.safetensors')\"");
}

}  // namespace

WanConfig read_wan_config(const fs::path& dir) {
    if (is_pickle(dir) && !fs::is_directory(dir)) refuse_pickle(dir);
    const fs::path path = dir / "config.json";
    if (!fs::is_directory(dir) || !fs::exists(path)) {
        raise(Fault::kUser, fmt::format("{} is not a folder with a config.json", dir.string()),
              "give the `transformer` folder of a diffusers pipeline");
    }
    return wan_config_from_json(read_file(path), path);
}

WanConfig wan_config_from_json(const std::string& text, const fs::path& where) {
    Fields f(parse_json(text, where), where);
    std::string name = kClass;
    f.take("_class_name", name);
    f.ignore("_diffusers_version");
    f.ignore("_name_or_path");
    WanConfig c;
    if (name == kClass) {
        take_diffusers(f, c);
    } else if (name == kOriginalClass) {
        take_original(f, c);
    } else {
        raise(Fault::kData, fmt::format("{}: \"_class_name\" is \"{}\", but must be \"{}\"",
                                        where.string(), name, kClass));
    }
    f.warn_about_the_rest();
    return c;
}

// --- names ------------------------------------------------------------------------------------

namespace {

struct Rename {
    std::string_view original, diffusers;
};
// Prefixes of whole names, then of what follows "blocks.<i>.".
constexpr Rename kGlobal[] = {
    {"patch_embedding.", "patch_embedding."},
    {"time_embedding.0.", "condition_embedder.time_embedder.linear_1."},
    {"time_embedding.2.", "condition_embedder.time_embedder.linear_2."},
    {"time_projection.1.", "condition_embedder.time_proj."},
    {"text_embedding.0.", "condition_embedder.text_embedder.linear_1."},
    {"text_embedding.2.", "condition_embedder.text_embedder.linear_2."},
    {"head.modulation", "scale_shift_table"},
    {"head.head.", "proj_out."},
};
constexpr Rename kBlock[] = {
    {"modulation", "scale_shift_table"},
    {"self_attn.q.", "attn1.to_q."},
    {"self_attn.k.", "attn1.to_k."},
    {"self_attn.v.", "attn1.to_v."},
    {"self_attn.o.", "attn1.to_out.0."},
    {"self_attn.norm_q.", "attn1.norm_q."},
    {"self_attn.norm_k.", "attn1.norm_k."},
    {"cross_attn.q.", "attn2.to_q."},
    {"cross_attn.k.", "attn2.to_k."},
    {"cross_attn.v.", "attn2.to_v."},
    {"cross_attn.o.", "attn2.to_out.0."},
    {"cross_attn.norm_q.", "attn2.norm_q."},
    {"cross_attn.norm_k.", "attn2.norm_k."},
    {"norm3.", "norm2."},  // the affine norm before the cross-attention
    {"ffn.0.", "ffn.net.0.proj."},
    {"ffn.2.", "ffn.net.2."},
};

template <size_t N>
std::optional<std::string> renamed(const Rename (&table)[N], std::string_view name) {
    for (const Rename& r : table) {
        if (name.starts_with(r.original)) {
            return std::string(r.diffusers) + std::string(name.substr(r.original.size()));
        }
    }
    return std::nullopt;
}

// Parts of names that only image-conditioned checkpoints have, in either naming.
bool of_image_variant(const std::string& name) {
    static constexpr std::string_view kParts[] = {"image_embedder.", "img_emb.",     "add_k_proj",
                                                  "add_v_proj",      "norm_added_k", ".k_img.",
                                                  ".v_img.",         "norm_k_img"};
    return std::any_of(std::begin(kParts), std::end(kParts),
                       [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

}  // namespace

std::optional<std::string> diffusers_name(const std::string& original) {
    constexpr std::string_view kPrefix = "blocks.";
    if (!original.starts_with(kPrefix)) return renamed(kGlobal, original);
    const size_t dot = original.find('.', kPrefix.size());
    if (dot == std::string::npos) return std::nullopt;
    const auto rest = renamed(kBlock, std::string_view(original).substr(dot + 1));
    if (!rest) return std::nullopt;
    return original.substr(0, dot + 1) + *rest;
}

// --- import -----------------------------------------------------------------------------------

namespace {

// Where each tensor lies, by its diffusers name.
struct Source {
    const SafetensorsReader* file;
    const StoredTensor* tensor;
};
struct Folder {
    std::vector<std::unique_ptr<SafetensorsReader>> files;
    std::map<std::string, Source> tensors;
};

void add_file(Folder& folder, const fs::path& path) {
    folder.files.push_back(std::make_unique<SafetensorsReader>(path));
    const SafetensorsReader* file = folder.files.back().get();
    for (const StoredTensor& t : file->tensors()) {
        if (!folder.tensors.emplace(t.name, Source{file, &t}).second) {
            raise(Fault::kData,
                  fmt::format("{}: tensor {} is in another shard too", path.string(), t.name));
        }
    }
}

void add_shards(Folder& folder, const fs::path& dir, const fs::path& index) {
    const Json json = read_json(index);
    const auto map = json.find("weight_map");
    if (!json.is_object() || map == json.end() || !map->is_object()) {
        raise(Fault::kData, fmt::format("{} has no \"weight_map\" object", index.string()));
    }
    std::set<std::string> names;
    for (const auto& [tensor, file] : map->items()) {
        // a plain file name: an index must not reach outside its folder
        if (!file.is_string() || file.get<std::string>().empty() ||
            fs::path(file.get<std::string>()).filename() != file.get<std::string>()) {
            raise(Fault::kData, fmt::format("{}: {} lies in {}, which is not a file name",
                                            index.string(), tensor, file.dump()));
        }
        names.insert(file.get<std::string>());
    }
    for (const std::string& name : names) {
        if (!fs::exists(dir / name)) {
            raise(Fault::kData,
                  fmt::format("{} names {}, which does not exist", index.string(), name));
        }
        add_file(folder, dir / name);
    }
    for (const auto& [tensor, file] : map->items()) {
        const auto it = folder.tensors.find(tensor);
        if (it == folder.tensors.end() ||
            it->second.file->path().filename() != file.get<std::string>()) {
            raise(Fault::kData, fmt::format("{}: {} is not in {}", index.string(), tensor,
                                            file.get<std::string>()));
        }
    }
}

// The one safetensors file of the folder, whatever its name.
void add_only_file(Folder& folder, const fs::path& dir) {
    std::vector<fs::path> found, pickles;
    if (fs::is_directory(dir)) {
        for (const auto& entry : fs::directory_iterator(dir)) {
            if (entry.path().extension() == ".safetensors") found.push_back(entry.path());
            if (is_pickle(entry.path())) pickles.push_back(entry.path());
        }
    }
    if (found.size() == 1) return add_file(folder, found.front());
    if (found.empty() && !pickles.empty()) {
        refuse_pickle(*std::min_element(pickles.begin(), pickles.end()));
    }
    raise(Fault::kUser,
          fmt::format("{} holds {} safetensors files, but neither {}.safetensors nor its index",
                      dir.string(), found.size(), kStem),
          "give the `transformer` folder of a diffusers pipeline");
}

Folder open_folder(const fs::path& dir) {
    Folder folder;
    const fs::path whole = dir / fmt::format("{}.safetensors", kStem);
    const fs::path index = dir / fmt::format("{}.safetensors.index.json", kStem);
    if (fs::exists(index)) {
        add_shards(folder, dir, index);
    } else if (fs::exists(whole)) {
        add_file(folder, whole);
    } else {
        add_only_file(folder, dir);
    }
    const auto& t = folder.tensors;
    if (t.contains("head.modulation") || t.contains("time_embedding.0.weight")) {
        std::map<std::string, Source> renamed_tensors;
        for (const auto& [name, source] : t) {
            renamed_tensors.emplace(diffusers_name(name).value_or(name), source);
        }
        folder.tensors = std::move(renamed_tensors);
    }
    return folder;
}

// "3 missing tensors: a, b, c"; at most eight names.
void list(std::string& out, const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    constexpr size_t kShown = 8;
    const std::vector<std::string> shown(
        names.begin(), names.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, names.size())));
    out += fmt::format("\n  {} {}: {}{}", names.size(), what, fmt::join(shown, ", "),
                       names.size() > kShown ? ", ..." : "");
}

void check_tensors(const fs::path& dir, const ParamTable& table, const Folder& folder) {
    std::vector<std::string> missing, extra, shaped;
    std::set<std::string> known;
    for (const ParamRow& row : table) {
        known.insert(row.name);
        const auto it = folder.tensors.find(row.name);
        if (it == folder.tensors.end()) {
            missing.push_back(row.name);
        } else if (it->second.tensor->shape != row.shape) {
            shaped.push_back(fmt::format("{} {} instead of {}", row.name,
                                         it->second.tensor->shape.str(), row.shape.str()));
        }
    }
    bool image = false;
    for (const auto& [name, source] : folder.tensors) {
        if (!known.contains(name)) extra.push_back(name);
        image = image || of_image_variant(name);
    }
    if (missing.empty() && extra.empty() && shaped.empty()) return;
    std::string message = fmt::format("{} does not hold this model's tensors:", dir.string());
    list(message, "missing", missing);
    list(message, "extra", extra);
    list(message, "of another shape", shaped);
    raise(Fault::kData, message,
          image ? kImageVariant : "config.json and the tensors must belong together");
}

}  // namespace

void import_diffusers(const fs::path& dir, const ParamTable& table,
                      const std::vector<Tensor>& master) {
    VT_CHECK(master.size() == table.size(), "{} tensors for {} parameters", master.size(),
             table.size());
    const Folder folder = open_folder(dir);
    check_tensors(dir, table, folder);
    for (size_t i = 0; i < table.size(); ++i) {
        const Source& source = folder.tensors.at(table[i].name);
        source.file->read(*source.tensor, master[i]);
    }
}

}  // namespace vt
