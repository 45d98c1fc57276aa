// SPDX-License-Identifier: MIT
// LatentFacts as JSON, the form they have in a checkpoint: a model is of no use without the codec
// and the text encoder it was trained with. And facts given beside files that lack them.
// Floor 3.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/shard.h"

namespace vt {

[[nodiscard]] std::string facts_json(const LatentFacts& facts);
/// kData naming `where` and the field if the text is not what facts_json writes.
[[nodiscard]] LatentFacts facts_from_json(const std::string& text, const std::string& where);

// What is published of a latent space. Latents are normalised as (z - mean) / std; a codec with one
// scaling factor s and shift m, normalised as (z - m) * s, has mean m and std 1 / s everywhere.
struct KnownCodec {
    std::string_view name, what;
    int64_t channels = 0;
    std::array<int64_t, 3> scale{};  // pixels per latent along t, h, w
    std::vector<double> mean, std;   // per channel; empty: kept in the codec's own files
};
[[nodiscard]] const std::vector<KnownCodec>& known_codecs();
[[nodiscard]] const KnownCodec* known_codec(std::string_view name);  // null if not known

// Some of the facts: what an option, a facts file or a foreign file says.
struct FactsGiven {
    std::optional<std::string> codec, text_encoder;
    std::optional<int64_t> channels, text_dim, text_len;
    std::optional<std::array<int64_t, 3>> scale;
    std::optional<bool> normalised;
    std::optional<std::vector<double>> mean, std;
    std::optional<double> fps;
    [[nodiscard]] bool empty() const;
};
/// Fields as facts_json names them, any of them. Other keys are refused. kUser naming `where`.
[[nodiscard]] FactsGiven facts_given_from_json(const std::string& text, const std::string& where);
[[nodiscard]] std::string facts_given_json(const FactsGiven& given);
/// Takes from `more` what `facts` lacks. kData naming the fact and both values where they differ;
/// `who` and `other` say whose values they are ("the file", "--facts").
void join_facts(FactsGiven& facts, const FactsGiven& more, std::string_view who,
                std::string_view other);
/// Adds what is published of a known codec (channels, scale, mean, std) where it is lacking, and
/// zero as fps (unknown). Contradictions in channels or scale are refused (kUser).
void add_known(FactsGiven& facts);
// How files are to be read that are not, or not wholly, in the shard format.
struct Foreign {
    // Our name of a data set (see data_set_names) -> theirs, perhaps with groups:
    // "group/vae_latent".
    std::map<std::string, std::string> names;
    FactsGiven facts;              // what their attributes do not say
    std::string layout = "NCTHW";  // order of the dims of latents; N comes first
    [[nodiscard]] bool empty() const { return names.empty() && facts.empty(); }
    [[nodiscard]] std::string name(const std::string& ours) const;
};
[[nodiscard]] const std::vector<std::string>& data_set_names();
[[nodiscard]] std::string foreign_json(const Foreign& foreign);
[[nodiscard]] Foreign foreign_from_json(const std::string& text);
/// OURS=THEIRS, one a text. kUser naming `where` and what OURS may be.
[[nodiscard]] std::map<std::string, std::string> parse_names(const std::vector<std::string>& pairs,
                                                             const std::vector<std::string>& ours,
                                                             std::string_view where);

/// All facts, checked. kUser naming every one that is missing and how to state it (`how`, e.g. "as
/// an option or in --facts").
[[nodiscard]] LatentFacts complete_facts(const FactsGiven& given, std::string_view how);

}  // namespace vt
