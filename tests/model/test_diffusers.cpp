// SPDX-License-Identifier: MIT
// Folders in diffusers' form: what is written is read back, and what does not fit is named.
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>

#include <doctest/doctest.h>

#include "data/safetensors.h"
#include "model/diffusers.h"
#include "model/wan_params.h"
#include "tests/model/fill.h"
#include "tests/model/wan_run.h"
#include "tests/paths.h"

using namespace vt;
using namespace vt::test;

namespace {

WanConfig tiny() {
    WanConfig c = odd_config();
    c.eps = 1e-5;  // not the class default
    return c;
}

// All parameters in host memory.
struct Values {
    ParamTable table;
    std::vector<std::vector<float>> memory;
    explicit Values(const WanConfig& c, bool fill = true) : table(wan::param_table(c)) {
        for (const std::vector<double>& v : fill_weights(table)) {
            memory.emplace_back(v.begin(), v.end());
            if (!fill) std::fill(memory.back().begin(), memory.back().end(), -1.0F);
        }
    }
    std::vector<Tensor> tensors() {
        std::vector<Tensor> out;
        for (size_t i = 0; i < table.size(); ++i) {
            out.emplace_back(memory[i].data(), table[i].shape, DType::kF32);
        }
        return out;
    }
    std::vector<CTensor> views() {
        const std::vector<Tensor> t = tensors();
        return {t.begin(), t.end()};
    }
};

Error refusal(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& e) {
        return e;
    }
    FAIL("accepted");
    return {Fault::kBug, "", "", Where::here()};
}
bool says(const Error& e, const std::string& what) {
    return (e.message() + " " + e.hint()).find(what) != std::string::npos;
}

const char* kFile = "diffusion_pytorch_model.safetensors";

// The original checkpoint's name of each of diffusers' (see the Wan 2.1 repository's modules).
std::string original_name(std::string name) {
    const std::vector<std::pair<std::string, std::string>> pairs = {
        {"condition_embedder.time_embedder.linear_1", "time_embedding.0"},
        {"condition_embedder.time_embedder.linear_2", "time_embedding.2"},
        {"condition_embedder.time_proj", "time_projection.1"},
        {"condition_embedder.text_embedder.linear_1", "text_embedding.0"},
        {"condition_embedder.text_embedder.linear_2", "text_embedding.2"},
        {"proj_out", "head.head"},
        {"attn1.norm", "self_attn.norm"},
        {"attn2.norm", "cross_attn.norm"},
        {"attn1.to_out.0", "self_attn.o"},
        {"attn2.to_out.0", "cross_attn.o"},
        {"attn1.to_", "self_attn."},
        {"attn2.to_", "cross_attn."},
        {"norm2", "norm3"},
        {"ffn.net.0.proj", "ffn.0"},
        {"ffn.net.2", "ffn.2"},
    };
    if (name == "scale_shift_table") return "head.modulation";
    for (const auto& [ours, theirs] : pairs) {
        const size_t at = name.find(ours);
        if (at != std::string::npos) return name.replace(at, ours.size(), theirs);
    }
    const std::string table = "scale_shift_table";
    const size_t at = name.find(table);
    if (at != std::string::npos) name.replace(at, table.size(), "modulation");
    return name;
}

}  // namespace

TEST_CASE("diffusers: exported f32 weights and config read back unchanged") {
    const TempDir tmp;
    Values a(tiny()), b(tiny(), false);
    export_diffusers(tmp / "model", tiny(), a.table, a.views(), DType::kF32);
    CHECK(read_wan_config(tmp / "model") == tiny());
    import_diffusers(tmp / "model", b.table, b.tensors());
    CHECK(a.memory == b.memory);
    const SafetensorsReader file(tmp / "model" / kFile);
    CHECK(file.metadata().at("format") == "pt");
    CHECK(!fs::exists(tmp / "model.partial"));
    // never over something that is there
    CHECK(refusal([&] {
              export_diffusers(tmp / "model", tiny(), a.table, a.views(), DType::kF32);
          }).fault() == Fault::kUser);
}

TEST_CASE("diffusers: bf16 export rounds all but the keep-in-f32 rows") {
    const TempDir tmp;
    Values a(tiny()), b(tiny(), false);
    export_diffusers(tmp / "m", tiny(), a.table, a.views(), DType::kBF16);
    import_diffusers(tmp / "m", b.table, b.tensors());
    const SafetensorsReader file(tmp / "m" / kFile);
    for (size_t i = 0; i < a.table.size(); ++i) {
        CAPTURE(a.table[i].name);
        const bool keep = a.table[i].keep_f32;
        CHECK(file.at(a.table[i].name).type == (keep ? StoredType::kF32 : StoredType::kBF16));
        for (size_t j = 0; j < a.memory[i].size(); ++j) {
            const float want = keep ? a.memory[i][j] : to_float(to_bf16(a.memory[i][j]));
            CHECK(b.memory[i][j] == want);
        }
    }
}

TEST_CASE("diffusers: large models are sharded in table order with an index") {
    const TempDir tmp;
    Values a(tiny()), b(tiny(), false);
    export_diffusers(tmp / "m", tiny(), a.table, a.views(), DType::kF32, 4000);
    std::ifstream in(tmp / "m" / (std::string(kFile) + ".index.json"));
    const nlohmann::json index = nlohmann::json::parse(in);
    CHECK(index["metadata"]["total_size"] == 4 * count_elements(a.table));
    CHECK(index["weight_map"].size() == a.table.size());
    std::set<std::string> files;
    for (const auto& [tensor, file] : index["weight_map"].items()) files.insert(file);
    CHECK(files.size() > 2);
    const std::string first =
        fmt::format("diffusion_pytorch_model-00001-of-{:05}.safetensors", files.size());
    CHECK(index["weight_map"]["scale_shift_table"] == first);
    CHECK(files.count(first) == 1);
    CHECK(!fs::exists(tmp / "m" / kFile));
    import_diffusers(tmp / "m", b.table, b.tensors());
    CHECK(a.memory == b.memory);

    // an index that reaches outside its folder, or names a file that is not there
    for (const std::string& bad : {std::string("../x.safetensors"), std::string("x.safetensors")}) {
        nlohmann::json changed = index;
        changed["weight_map"]["scale_shift_table"] = bad;
        write_atomic(tmp / "m" / (std::string(kFile) + ".index.json"), changed.dump());
        const Error e = refusal([&] { import_diffusers(tmp / "m", b.table, b.tensors()); });
        CHECK(e.fault() == Fault::kData);
        CHECK(says(e, bad));
    }
}

TEST_CASE("diffusers: missing, extra and wrongly shaped tensors are all named") {
    const TempDir tmp;
    Values a(tiny());
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < a.table.size(); ++i) named.push_back({a.table[i].name, a.views()[i]});
    named[5].name = "blocks.7.attn1.to_q.weight";
    named[6].tensor = named[6].tensor.view({2, named[6].tensor.numel() / 2});
    fs::create_directories(tmp / "m");
    write_safetensors(tmp / "m" / kFile, named, {});
    const Error e = refusal([&] { import_diffusers(tmp / "m", a.table, a.tensors()); });
    CHECK(e.fault() == Fault::kData);
    CHECK(says(e, "1 missing: " + a.table[5].name));
    CHECK(says(e, "1 extra: blocks.7.attn1.to_q.weight"));
    CHECK(says(e, "1 of another shape: " + a.table[6].name + " (2,12) instead of (24)"));
}

TEST_CASE("diffusers: original Wan checkpoints are read through the table of names") {
    const TempDir tmp;
    Values a(tiny()), b(tiny(), false);
    std::vector<NamedTensor> named;
    for (size_t i = 0; i < a.table.size(); ++i) {
        const std::string theirs = original_name(a.table[i].name);
        CHECK(diffusers_name(theirs) == a.table[i].name);
        named.push_back({theirs, a.views()[i]});
    }
    CHECK(original_name("blocks.1.norm2.weight") == "blocks.1.norm3.weight");
    CHECK(original_name("blocks.1.attn2.to_k.bias") == "blocks.1.cross_attn.k.bias");
    fs::create_directories(tmp / "m");
    write_safetensors(tmp / "m" / kFile, named, {});
    write_atomic(tmp / "m" / "config.json",
                 R"({"_class_name": "WanModel", "_diffusers_version": "0.30.0", "dim": 24,
                     "num_heads": 3, "in_dim": 2, "out_dim": 3, "text_dim": 10, "freq_dim": 14,
                     "ffn_dim": 20, "num_layers": 2, "eps": 1e-5, "model_type": "t2v",
                     "patch_size": [2, 1, 2], "text_len": 512})");
    WanConfig want = tiny();
    want.rope_max_seq_len = 1024;
    CHECK(read_wan_config(tmp / "m") == want);
    import_diffusers(tmp / "m", b.table, b.tensors());
    CHECK(a.memory == b.memory);

    // in shards, as the large ones are published
    fs::remove(tmp / "m" / kFile);
    nlohmann::json map;
    for (size_t shard = 0; shard < 3; ++shard) {
        std::vector<NamedTensor> part;
        const std::string file =
            fmt::format("diffusion_pytorch_model-{:05}-of-00003.safetensors", shard + 1);
        for (size_t i = shard; i < named.size(); i += 3) {
            part.push_back(named[i]);
            map[named[i].name] = file;
        }
        write_safetensors(tmp / "m" / file, part, {});
    }
    const nlohmann::json index = {{"metadata", {{"total_size", 1}}}, {"weight_map", map}};
    write_atomic(tmp / "m" / (std::string(kFile) + ".index.json"), index.dump());
    Values c(tiny(), false);
    import_diffusers(tmp / "m", c.table, c.tensors());
    CHECK(a.memory == c.memory);
}

TEST_CASE("diffusers: one safetensors file of any name will do, two will not; pickles never") {
    const TempDir tmp;
    Values a(tiny()), b(tiny(), false);
    export_diffusers(tmp / "m", tiny(), a.table, a.views(), DType::kF32);
    fs::rename(tmp / "m" / kFile, tmp / "m" / "Wan2.1-T2V.safetensors");
    import_diffusers(tmp / "m", b.table, b.tensors());
    CHECK(a.memory == b.memory);
    fs::copy_file(tmp / "m" / "Wan2.1-T2V.safetensors", tmp / "m" / "other.safetensors");
    CHECK(says(refusal([&] { import_diffusers(tmp / "m", b.table, b.tensors()); }),
               "2 safetensors files"));

    for (const char* name : {"Wan2.1_VAE.pth", "model.pt", "diffusion_pytorch_model.bin"}) {
        CAPTURE(name);
        const fs::path dir = tmp / (std::string("of ") + name);
        fs::create_directories(dir);
        write_atomic(dir / name, "PK");
        write_atomic(dir / "config.json", "{}");
        const Error e = refusal([&] { import_diffusers(dir, b.table, b.tensors()); });
        CHECK(e.fault() == Fault::kUser);
        CHECK(says(e, name));
        CHECK(says(e, "pickle"));
        CHECK(says(e, "save_file"));
        // given by its own name
        CHECK(says(refusal([&] { (void)read_wan_config(dir / name); }), "pickle"));
    }
}

TEST_CASE("diffusers: image-conditioned checkpoints are refused with the reason") {
    const TempDir tmp;
    Values a(tiny());
    fs::create_directories(tmp / "m");
    write_atomic(tmp / "m" / "config.json",
                 R"({"_class_name": "WanTransformer3DModel", "image_dim": 1280})");
    CHECK(says(refusal([&] { (void)read_wan_config(tmp / "m"); }), "image-conditioned"));
    for (const char* extra : {"blocks.0.attn2.add_k_proj.weight", "blocks.0.cross_attn.k_img.bias",
                              "condition_embedder.image_embedder.norm1.weight"}) {
        std::vector<NamedTensor> named;
        for (size_t i = 0; i < a.table.size(); ++i) {
            named.push_back({a.table[i].name, a.views()[i]});
        }
        named.push_back({extra, a.views()[6]});
        write_safetensors(tmp / "m" / kFile, named, {});
        const Error e = refusal([&] { import_diffusers(tmp / "m", a.table, a.tensors()); });
        CHECK(says(e, extra));
        CHECK(says(e, "image-conditioned"));
    }
}

TEST_CASE("diffusers: what config.json may not say") {
    const TempDir tmp;
    CHECK(refusal([&] { (void)read_wan_config(tmp / "none"); }).fault() == Fault::kUser);
    const auto refused = [&](const std::string& text, const char* what) {
        CAPTURE(text);
        write_atomic(tmp / "config.json", text);
        const Error e = refusal([&] { (void)read_wan_config(tmp.path()); });
        CHECK(e.fault() == Fault::kData);
        CHECK(says(e, what));
    };
    refused("{", "not JSON");
    refused("[]", "object");
    refused(R"({"_class_name": "FluxTransformer2DModel"})", "FluxTransformer2DModel");
    refused(R"({"num_layers": "30"})", "num_layers");
    refused(R"({"patch_size": [1, 2]})", "patch_size");
    refused(R"({"cross_attn_norm": false})", "cross_attn_norm");
    refused(R"({"qk_norm": "rms_norm"})", "qk_norm");
    refused(R"({"_class_name": "WanModel", "model_type": "i2v"})", "image-conditioned");
    write_atomic(tmp / "config.json", "{}");
    CHECK(read_wan_config(tmp.path()) == WanConfig{});
}
