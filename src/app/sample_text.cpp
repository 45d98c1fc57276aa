// SPDX-License-Identifier: MIT
// Floor 7.
#include "app/sample_text.h"

#include <algorithm>

#include "core/check.h"
#include "data/codec.h"
#include "data/safetensors.h"

namespace vt {

namespace {

std::vector<std::string> all_prompts(const PromptFlags& f) {
    std::vector<std::string> out = f.prompts;
    if (f.prompts_file.empty()) return out;
    if (!fs::is_regular_file(f.prompts_file)) {
        raise(Fault::kUser, fmt::format("--prompts {}: no such file", f.prompts_file));
    }
    const std::string text = read_file(f.prompts_file);
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find('\n', at), text.size());
        // a carriage return of a foreign line end is not part of the caption
        const size_t last = text.find_last_not_of(" \t\r", end == at ? at : end - 1);
        if (end > at && last != std::string::npos && last >= at) {
            out.push_back(text.substr(at, last + 1 - at));
        }
        at = end + 1;
    }
    return out;
}

std::vector<float> padded(std::vector<float> rows, const LatentFacts& facts) {
    rows.resize(static_cast<size_t>(facts.text_len * facts.text_dim), 0.0F);
    return rows;
}

Texts from_builtin(const PromptFlags& f, const LatentFacts& facts) {
    Texts t;
    t.captions = all_prompts(f);
    if (t.captions.empty()) {
        raise(Fault::kUser, "no caption to sample", "give --prompt \"...\" or --prompts FILE");
    }
    if (facts.text_encoder != kBuiltinTextEncoder) {
        raise(Fault::kUser,
              fmt::format("the model was trained on embeddings of '{}', which is not built in",
                          facts.text_encoder),
              "embed the captions and the empty one yourself and give --text-embeddings "
              "FILE.safetensors (tensors `text` (captions, rows, text_dim), `empty` (rows, "
              "text_dim) and, for a negative prompt, `negative` (rows, text_dim))");
    }
    const auto embed = [&](const std::string& caption) {
        return padded(embed_caption(caption, facts.text_dim, facts.text_len), facts);
    };
    for (const std::string& p : t.captions) t.embedded.push_back(embed(p));
    t.empty = embed("");
    t.negative = embed(f.negative);  // of the empty caption where none is given
    return t;
}

Texts from_file(const PromptFlags& f, const LatentFacts& facts) {
    if (!f.negative.empty()) {
        raise(Fault::kUser, "--negative-prompt with --text-embeddings",
              "put its embedding into the file as tensor `negative`");
    }
    const SafetensorsReader file(f.embeddings);
    const auto read = [&](const StoredTensor& stored, int rank) {
        const Shape& s = stored.shape;
        if (s.rank != rank || s[rank - 1] != facts.text_dim || s[rank - 2] > facts.text_len ||
            s.numel() == 0) {
            raise(Fault::kUser,
                  fmt::format("{}: tensor {} is {}, needs {} dimensions, rows <= {} of width {}",
                              f.embeddings, stored.name, s.str(), rank, facts.text_len,
                              facts.text_dim));
        }
        std::vector<float> out(static_cast<size_t>(s.numel()));
        file.read(stored, Tensor(out.data(), s, DType::kF32));
        return out;
    };
    Texts t;
    const StoredTensor& stored = file.at("text");
    const std::vector<float> all = read(stored, 3);
    const Shape s = stored.shape;
    t.captions = all_prompts(f);
    if (t.captions.empty()) {
        for (int64_t i = 0; i < s[0]; ++i) t.captions.push_back(fmt::format("embedding {}", i));
    }
    if (s[0] != static_cast<int64_t>(t.captions.size())) {
        raise(Fault::kUser, fmt::format("{}: `text` holds {} captions, {} were given", f.embeddings,
                                        s[0], t.captions.size()));
    }
    const int64_t each = s[1] * s[2];
    for (int64_t i = 0; i < s[0]; ++i) {
        t.embedded.push_back(padded({all.begin() + i * each, all.begin() + (i + 1) * each}, facts));
    }
    t.empty = padded(read(file.at("empty"), 2), facts);
    const StoredTensor* negative = file.find("negative");
    t.negative = negative != nullptr ? padded(read(*negative, 2), facts) : t.empty;
    return t;
}

}  // namespace

Texts read_texts(const PromptFlags& flags, const LatentFacts& facts) {
    return flags.embeddings.empty() ? from_builtin(flags, facts) : from_file(flags, facts);
}

}  // namespace vt
