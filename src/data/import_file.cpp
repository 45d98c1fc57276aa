// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/import_file.h"

#include <algorithm>
#include <fmt/format.h>
#include <fnmatch.h>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <sstream>

#include "core/check.h"

namespace vt {

namespace {

bool matches(const std::string& glob, const std::string& name) {
    return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0;
}

// The names under which common programs save each array.
const std::vector<std::string>& usual_names(const std::string& role) {
    static const std::map<std::string, std::vector<std::string>> all{
        {"latents", {"latents", "latent", "latents_*", "vae_latent", "vae_latents", "x0"}},
        {"text",
         {"text", "text_embedding", "text_embeddings", "text_embeds", "text_embed", "prompt_embeds",
          "prompt_embed", "encoder_hidden_states", "context", "context_embeddings", "varlen_t5_*",
          "t5_*"}},
        {"mask",
         {"mask", "text_mask", "attention_mask", "text_attention_mask", "prompt_attention_mask",
          "prompt_embeds_mask", "encoder_attention_mask"}},
        {"lengths", {"lengths", "text_lengths", "text_length", "prompt_lengths", "seq_lens"}}};
    return all.at(role);
}

std::string list_of(const ArrayFile& file) {
    std::string out;
    for (size_t i = 0; i < file.arrays().size() && i < 8; ++i) {
        const ArrayFile::Array& a = file.arrays()[i];
        out += fmt::format("{}{} {}", i > 0 ? ", " : "", a.name.empty() ? "(one array)" : a.name,
                           a.shape.str());
    }
    return out + (file.arrays().size() > 8 ? ", ..." : "");
}

// The array for a role. Null where there is none and it need not be.
const ArrayFile::Array* find_array(const ArrayFile& file, const ImportSpec& spec,
                                   const std::string& role, bool needed) {
    const auto given = spec.names.find(role);
    std::vector<const ArrayFile::Array*> found;
    for (const ArrayFile::Array& a : file.arrays()) {
        if (given != spec.names.end()) {
            if (matches(given->second, a.name)) found.push_back(&a);
            continue;
        }
        const auto& names = usual_names(role);
        if (std::any_of(names.begin(), names.end(),
                        [&](const std::string& n) { return matches(n, a.name); })) {
            found.push_back(&a);
        }
    }
    // a file of one array needs no name
    if (found.empty() && needed && given == spec.names.end() && file.arrays().size() == 1) {
        return &file.arrays()[0];
    }
    if (found.size() == 1 || (found.empty() && !needed && given == spec.names.end())) {
        return found.empty() ? nullptr : found[0];
    }
    raise(Fault::kData,
          fmt::format("{}: {} arrays can be {}; it holds {}", file.path().string(),
                      found.empty() ? std::string("no") : std::to_string(found.size()), role,
                      list_of(file)),
          fmt::format("name the right one: --map {}=NAME", role));
}

std::string without_ending(const fs::path& path) {
    return (path.parent_path() / path.stem()).generic_string();
}

void replace_all(std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at)) {
        text.replace(at, from.size(), to);
        at += to.size();
    }
}

// Where the text of the latents in `path` is looked for.
fs::path text_of(const ImportSpec& spec, const fs::path& path, const std::string& name) {
    if (spec.text.empty()) return {};
    std::string text = spec.text;
    if (text.find("{stem}") != std::string::npos) {
        const fs::path dir = path.parent_path();
        replace_all(text, "{dir}", dir.empty() ? "." : dir.string());
        replace_all(text, "{stem}", fs::path(name).filename().string());
        return text;
    }
    for (const char* ending : {".safetensors", ".npy", ".npz"}) {
        const fs::path at = fs::path(text) / (name + ending);
        if (fs::exists(at)) return at;
    }
    return fs::path(text) / (name + path.extension().string());  // named where it is missing
}

const nlohmann::json* first_of(const nlohmann::json& j, std::initializer_list<const char*> keys) {
    for (const char* key : keys) {
        if (const auto it = j.find(key); it != j.end()) return &*it;
    }
    return nullptr;
}

// One sample's entry: a text, or an object with the caption and perhaps an id.
void take_entry(const nlohmann::json& j, Sidecar& to) {
    std::optional<std::string> caption, id;
    if (j.is_string()) {
        caption = j.get<std::string>();
    } else if (j.is_object()) {
        const nlohmann::json* c = first_of(j, {"caption", "prompt", "text"});
        if (c != nullptr && c->is_string()) caption = c->get<std::string>();
        const nlohmann::json* i = first_of(j, {"id", "video_id", "key"});
        if (i != nullptr) id = i->is_string() ? i->get<std::string>() : i->dump();
    }
    to.captions.push_back(std::move(caption));
    to.ids.push_back(std::move(id));
}

std::vector<std::string> lines_of(const std::string& text) {
    std::istringstream in(text);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) {
        if (!line.empty() && line.back() == '\r') line.pop_back();
        out.push_back(line);
    }
    while (!out.empty() && out.back().empty()) out.pop_back();
    return out;
}

nlohmann::json parse_json(const std::string& text, const fs::path& path) {
    nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
    if (j.is_discarded()) raise(Fault::kData, fmt::format("{} is not JSON", path.string()));
    return j;
}

// {"captions": [...], "ids": [...]}: lists side by side instead of a list of objects
bool take_lists(const nlohmann::json& j, Sidecar& to) {
    const nlohmann::json* captions = first_of(j, {"captions", "prompts", "texts"});
    if (captions == nullptr || !captions->is_array()) return false;
    const nlohmann::json* ids = first_of(j, {"ids"});
    for (size_t i = 0; i < captions->size(); ++i) {
        nlohmann::json entry{{"caption", (*captions)[i]}};
        if (ids != nullptr && ids->is_array() && i < ids->size()) entry["id"] = (*ids)[i];
        take_entry(entry, to);
    }
    return true;
}

Sidecar read_sidecar(const ImportInput& input, const ArrayFile& file, int64_t count) {
    Sidecar out;
    fs::path at = input.path;
    std::error_code ec;
    if (fs::is_regular_file(at.replace_extension(".json"), ec)) {
        const nlohmann::json j = parse_json(read_file(at), at);
        if (j.is_array()) {
            for (const auto& entry : j) take_entry(entry, out);
        } else if (!take_lists(j, out)) {
            take_entry(j, out);
        }
    } else if (fs::is_regular_file(at.replace_extension(".jsonl"), ec)) {
        for (const std::string& line : lines_of(read_file(at))) {
            take_entry(parse_json(line, at), out);
        }
    } else if (fs::is_regular_file(at.replace_extension(".txt"), ec)) {
        std::vector<std::string> lines = lines_of(read_file(at));
        if (count == 1) lines = {fmt::format("{}", fmt::join(lines, " "))};
        for (std::string& line : lines) take_entry(line, out);
    } else {
        for (const char* key : {"caption", "prompt", "text"}) {
            const auto it = file.metadata().find(key);
            if (it == file.metadata().end() || count != 1) continue;
            take_entry(it->second, out);
            break;
        }
        if (out.captions.empty()) {
            out.captions.resize(static_cast<size_t>(count));
            out.ids.resize(static_cast<size_t>(count));
        }
    }
    if (out.captions.size() != static_cast<size_t>(count)) {
        raise(Fault::kData, fmt::format("{} has {} entries for the {} samples of {}", at.string(),
                                        out.captions.size(), count, input.path.string()));
    }
    return out;
}

// How many of the rows are text. -1: a row is marked behind one that is not.
int64_t marked_rows(const std::vector<int64_t>& mask) {
    const auto end = std::find(mask.begin(), mask.end(), 0);
    if (std::any_of(end, mask.end(), [](int64_t v) { return v != 0; })) return -1;
    return end - mask.begin();
}

int64_t nonzero_rows(const std::vector<float>& text, int64_t rows, int64_t dim) {
    while (rows > 0) {
        const auto* row = text.data() + (rows - 1) * dim;
        if (std::any_of(row, row + dim, [](float v) { return v != 0; })) break;
        --rows;
    }
    return rows;
}

}  // namespace

std::vector<ImportInput> find_inputs(const ImportSpec& spec) {
    std::vector<ImportInput> out;
    std::set<fs::path> texts;
    std::regex stem;
    try {
        stem = std::regex(spec.stem_regex);
    } catch (const std::regex_error& e) {
        raise(Fault::kUser, fmt::format("--stem {}: {}", spec.stem_regex, e.what()),
              R"(for example '^(.*)_\d+x\d+$')");
    }
    const auto add = [&](const fs::path& path, const fs::path& below) {
        std::string name = without_ending(below);
        if (!spec.stem_regex.empty()) {
            std::smatch m;
            const std::string file = fs::path(name).filename().string();
            if (!std::regex_search(file, m, stem) || m.size() < 2) return;
            name = (fs::path(name).parent_path() / m[1].str()).generic_string();
        }
        out.push_back({.path = path, .name = name, .text = text_of(spec, path, name)});
        if (!out.back().text.empty()) texts.insert(out.back().text.lexically_normal());
    };
    for (const fs::path& input : spec.inputs) {
        if (!fs::exists(input)) {
            raise(Fault::kUser, fmt::format("{}: no such file or folder", input.string()));
        }
        if (!fs::is_directory(input)) {
            add(input, input.filename());
            continue;
        }
        std::vector<fs::path> files;
        for (const auto& e : fs::recursive_directory_iterator(
                 input, fs::directory_options::skip_permission_denied)) {
            if (e.is_regular_file() && ArrayFile::is_one(e.path()) &&
                matches(spec.only, e.path().filename().string())) {
                files.push_back(e.path());
            }
        }
        std::sort(files.begin(), files.end());
        for (const fs::path& f : files) add(f, f.lexically_relative(input));
    }
    // text that lies among the latents is no latent
    std::erase_if(out, [&](const ImportInput& i) {
        return texts.contains(i.path.lexically_normal()) && i.text != i.path;
    });
    if (out.empty()) {
        raise(Fault::kUser, "no .safetensors, .npy or .npz file is there to import",
              "look at --only and --stem");
    }
    return out;
}

// --- one file -----------------------------------------------------------------------------------

ImportFile::ImportFile(ImportInput input, const ImportSpec& spec)
    : input_(std::move(input)), spec_(spec), file_(input_.path, spec.two_bytes_are_bf16) {
    if (!input_.text.empty() && input_.text != input_.path) {
        other_ = std::make_unique<ArrayFile>(input_.text, spec.two_bytes_are_bf16);
    }
    place_latents();
    place_text();
}

void ImportFile::bad(int64_t row, const std::string& what, const std::string& hint) const {
    raise(Fault::kData, fmt::format("{}, sample {}: {}", input_.path.string(), row, what), hint);
}

void ImportFile::place_latents() {
    latents_ = find_array(file_, spec_, "latents", true);
    const Shape& s = latents_->shape;
    const std::string& layout = spec_.layout;
    if (s.rank != static_cast<int>(layout.size())) {
        raise(Fault::kData,
              fmt::format("{}: latents are {}, --layout {} has {} letters", input_.path.string(),
                          s.str(), layout, layout.size()),
              "a leading N stands for the samples of a batch");
    }
    const bool batched = layout[0] == 'N';
    if (batched) count_ = s[0];
    constexpr std::string_view kOrder = "CTHW";
    for (size_t k = 0; k < 4; ++k) {
        const size_t at = layout.find(kOrder[k]);
        source_.at(k) = at == std::string::npos ? -1 : static_cast<int>(at) - (batched ? 1 : 0);
        shape_.at(k) = at == std::string::npos ? 1 : s[static_cast<int>(at)];
        if (shape_.at(k) < 1) {
            raise(Fault::kData, fmt::format("{}: latents are {}", input_.path.string(), s.str()));
        }
    }
    const bool floating = latents_->type == StoredType::kF64 ||
                          latents_->type == StoredType::kF32 ||
                          latents_->type == StoredType::kF16 || latents_->type == StoredType::kBF16;
    if (!floating) {
        raise(Fault::kData, fmt::format("{}: latents are of type {}", input_.path.string(),
                                        name_of(latents_->type)));
    }
    if (spec_.facts.channels && shape_[0] != *spec_.facts.channels) {
        raise(Fault::kData,
              fmt::format("{}: latents {} read as {} have {} channels, the codec {} has {}",
                          input_.path.string(), s.str(), layout, shape_[0],
                          spec_.facts.codec.value_or("?"), *spec_.facts.channels),
              "is --layout right? T and C are easily confused");
    }
}

void ImportFile::place_text() {
    const ArrayFile& file = other_ ? *other_ : file_;
    text_ = find_array(file, spec_, "text", true);
    if (text_ == latents_) {
        raise(Fault::kData, fmt::format("{} holds no text embedding", input_.path.string()),
              "say with --text where they are");
    }
    Shape s = text_->shape;
    const bool batched = s.rank == 3;
    if ((s.rank != 2 && s.rank != 3) || (batched ? s[0] != count_ : count_ != 1)) {
        raise(Fault::kData,
              fmt::format("{}: text is {} for {} sample(s)", file.path().string(), s.str(), count_),
              "it must be (rows, dim), in a batch (samples, rows, dim)");
    }
    text_rows_ = s[s.rank - 2];
    if (spec_.facts.text_dim && s[s.rank - 1] != *spec_.facts.text_dim) {
        raise(Fault::kData,
              fmt::format("{}: text has width {}, others have {}", file.path().string(),
                          s[s.rank - 1], *spec_.facts.text_dim));
    }
    const bool wanted = spec_.text_rows == "mask";
    if (spec_.text_rows == "auto" || wanted) {
        lengths_ = find_array(file, spec_, "lengths", false);
        if (lengths_ == nullptr) mask_ = find_array(file, spec_, "mask", false);
        if (wanted && mask_ == nullptr && lengths_ == nullptr) {
            raise(Fault::kData,
                  fmt::format("{}: no mask and no lengths of the text; it holds {}",
                              file.path().string(), list_of(file)),
                  "name one: --map mask=NAME, or --text-rows trim");
        }
    }
    const bool fits = (mask_ == nullptr || mask_->shape.numel() == count_ * text_rows_) &&
                      (lengths_ == nullptr || lengths_->shape.numel() == count_);
    if (!fits) {
        const ArrayFile::Array& a = mask_ != nullptr ? *mask_ : *lengths_;
        raise(Fault::kData, fmt::format("{}: {} {} does not fit the text {}", file.path().string(),
                                        a.name, a.shape.str(), s.str()));
    }
}

std::vector<float> ImportFile::read_text(int64_t row, int64_t text_len) const {
    const ArrayFile& file = other_ ? *other_ : file_;
    const int64_t dim = text_dim();
    int64_t rows = text_rows_;
    if (lengths_ != nullptr) {
        file.read(*lengths_, row, 1, &rows);
        if (rows < 0 || rows > text_rows_) {
            bad(row, fmt::format("{} says {} rows of {}", lengths_->name, rows, text_rows_), "");
        }
    } else if (mask_ != nullptr) {
        std::vector<int64_t> mask(static_cast<size_t>(text_rows_));
        file.read(*mask_, row * text_rows_, text_rows_, mask.data());
        rows = marked_rows(mask);
        if (rows < 0) {
            bad(row, fmt::format("{} marks rows behind unmarked ones", mask_->name),
                "text is padded at its end; turn left-padded embeddings round, or use --text-rows");
        }
    }
    // read what is left after cutting: padding may be most of it
    if (rows > text_len && spec_.text_rows == "all") {
        bad(row, fmt::format("{} text rows, text_len is {}", rows, text_len),
            "state the right --text-len, or which rows are text (--text-rows)");
    }
    std::vector<float> out(static_cast<size_t>(rows * dim));
    file.read(*text_, row * text_rows_ * dim, rows * dim, out.data());
    if (spec_.text_rows != "all" && lengths_ == nullptr && mask_ == nullptr) {
        rows = nonzero_rows(out, rows, dim);
        out.resize(static_cast<size_t>(rows * dim));
    }
    if (rows > text_len) {
        bad(row, fmt::format("{} text rows, text_len is {}", rows, text_len),
            "state the right --text-len, or which rows are text (--text-rows)");
    }
    return out;
}

const Sidecar& ImportFile::sidecar() const {
    if (!sidecar_) sidecar_ = std::make_unique<Sidecar>(read_sidecar(input_, file_, count_));
    return *sidecar_;
}

ShardSample ImportFile::read(int64_t row, const Captions& captions, int64_t text_len,
                             bool* has_caption) const {
    VT_CHECK(0 <= row && row < count_, "sample {} of {}", row, count_);
    const Sidecar& beside = sidecar();
    const auto r = static_cast<size_t>(row);
    ShardSample out;
    const bool batched = spec_.layout[0] == 'N' && count_ > 1;
    out.id = batched ? fmt::format("{}#{}", input_.name, row) : input_.name;
    std::optional<std::string> caption = captions.first(out.id);
    if (!caption && !batched)
        caption = captions.first(input_.name + input_.path.extension().string());
    if (!caption) caption = beside.captions[r];
    if (beside.ids[r]) out.id = *beside.ids[r];
    *has_caption = caption.has_value();
    out.caption = caption.value_or("");
    out.text = read_text(row, text_len);

    const int64_t n = shape_[0] * shape_[1] * shape_[2] * shape_[3];
    std::vector<float> raw(static_cast<size_t>(n));
    file_.read(*latents_, row * n, n, raw.data());
    // strides of C,T,H,W in the array
    const Shape& s = latents_->shape;
    const int skip = spec_.layout[0] == 'N' ? 1 : 0;
    std::array<int64_t, 4> stride{};
    for (size_t k = 0; k < 4; ++k) {
        int64_t step = 1;
        if (source_.at(k) < 0) continue;  // one frame
        for (int d = source_.at(k) + 1 + skip; d < s.rank; ++d) step *= s[d];
        stride.at(k) = step;
    }
    out.latent.resize(raw.size());
    size_t to = 0;
    for (int64_t c = 0; c < shape_[0]; ++c) {
        for (int64_t t = 0; t < shape_[1]; ++t) {
            for (int64_t h = 0; h < shape_[2]; ++h) {
                const int64_t at = c * stride[0] + t * stride[1] + h * stride[2];
                for (int64_t w = 0; w < shape_[3]; ++w) {
                    out.latent[to++] = raw[static_cast<size_t>(at + w * stride[3])];
                }
            }
        }
    }
    return out;
}

std::vector<float> read_empty_text(const ImportSpec& spec, int64_t* dim) {
    if (spec.empty_text == "zero") return {};
    const ArrayFile file(spec.empty_text, spec.two_bytes_are_bf16);
    const ArrayFile::Array* a = find_array(file, spec, "text", true);
    const Shape& s = a->shape;
    if ((s.rank != 2 && s.rank != 3) || (s.rank == 3 && s[0] != 1)) {
        raise(Fault::kUser, fmt::format("--empty-text {}: it is {}", spec.empty_text, s.str()),
              "it must be (rows, dim)");
    }
    int64_t rows = s[s.rank - 2];
    *dim = s[s.rank - 1];
    std::vector<float> out(static_cast<size_t>(s.numel()));
    file.read(*a, 0, s.numel(), out.data());
    ImportSpec usual = spec;
    usual.names.erase("mask");  // a lone embedding need not have what batches have
    if (const ArrayFile::Array* mask = find_array(file, usual, "mask", false);
        mask != nullptr && mask->shape.numel() == rows) {
        std::vector<int64_t> marks(static_cast<size_t>(rows));
        file.read(*mask, 0, rows, marks.data());
        rows = std::max<int64_t>(marked_rows(marks), 0);
    }
    rows = nonzero_rows(out, rows, *dim);
    out.resize(static_cast<size_t>(rows * *dim));
    return out;
}

}  // namespace vt
