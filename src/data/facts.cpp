// SPDX-License-Identifier: MIT
#include "data/facts.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "data/index.h"

namespace vt {

std::string facts_json(const LatentFacts& f) {
    const nlohmann::ordered_json j = {{"codec", f.codec},
                                      {"channels", f.channels},
                                      {"scale", f.scale},
                                      {"normalised", f.normalised},
                                      {"mean", f.mean},
                                      {"std", f.std},
                                      {"text_encoder", f.text_encoder},
                                      {"text_dim", f.text_dim},
                                      {"text_len", f.text_len},
                                      {"fps", f.fps}};
    return j.dump();
}

LatentFacts facts_from_json(const std::string& text, const std::string& where) {
    try {
        const nlohmann::json j = nlohmann::json::parse(text);
        LatentFacts f;
        j.at("codec").get_to(f.codec);
        j.at("channels").get_to(f.channels);
        j.at("scale").get_to(f.scale);
        j.at("normalised").get_to(f.normalised);
        j.at("mean").get_to(f.mean);
        j.at("std").get_to(f.std);
        j.at("text_encoder").get_to(f.text_encoder);
        j.at("text_dim").get_to(f.text_dim);
        j.at("text_len").get_to(f.text_len);
        j.at("fps").get_to(f.fps);
        return f;
    } catch (const nlohmann::json::exception& e) {
        raise(Fault::kData,
              fmt::format("{}: the facts of the latents cannot be read: {}", where, e.what()));
    }
}

// --- facts given piece by piece -----------------------------------------------------------------

namespace {

// The list of fields, once, for every walk.
template <typename Given, typename Visit>
void each(Given& f, const Visit& visit) {
    visit("codec", f.codec);
    visit("channels", f.channels);
    visit("scale", f.scale);
    visit("normalised", f.normalised);
    visit("mean", f.mean);
    visit("std", f.std);
    visit("text_encoder", f.text_encoder);
    visit("text_dim", f.text_dim);
    visit("text_len", f.text_len);
    visit("fps", f.fps);
}

template <typename T>
std::string show(const T& value) {
    std::string text = nlohmann::json(value).dump();
    if (text.size() > 60) text = text.substr(0, 57) + "...";
    return text;
}

}  // namespace

bool FactsGiven::empty() const {
    bool any = false;
    each(*this, [&](const char*, const auto& v) { any |= v.has_value(); });
    return !any;
}

FactsGiven facts_given_from_json(const std::string& text, const std::string& where) {
    FactsGiven out;
    const nlohmann::json j = nlohmann::json::parse(text, nullptr, false);
    if (!j.is_object()) {
        raise(Fault::kUser, fmt::format("{} is not a JSON object", where),
              R"(for example {"codec": "wan2.1-vae", "normalised": true})");
    }
    std::vector<std::string> names;
    each(out, [&](const char* name, auto& v) {
        names.emplace_back(name);
        const auto it = j.find(name);
        if (it == j.end()) return;
        try {
            v = it->template get<typename std::remove_reference_t<decltype(v)>::value_type>();
        } catch (const nlohmann::json::exception&) {
            raise(Fault::kUser,
                  fmt::format("{}: {} = {} has the wrong type", where, name, show(*it)),
                  "data/README.md lists the facts and their types");
        }
    });
    for (const auto& [key, value] : j.items()) {
        if (std::find(names.begin(), names.end(), key) == names.end()) {
            raise(Fault::kUser, fmt::format("{}: '{}' is no fact of latents", where, key),
                  fmt::format("known: {}", fmt::join(names, ", ")));
        }
    }
    return out;
}

std::string facts_given_json(const FactsGiven& given) {
    auto j = nlohmann::ordered_json::object();
    each(given, [&](const char* name, const auto& v) {
        if (v) j[name] = *v;
    });
    return j.dump();
}

void join_facts(FactsGiven& facts, const FactsGiven& more, std::string_view who,
                std::string_view other) {
    // walked side by side: `each` visits both in the same order
    const auto pair = [&](const char* name, auto& mine, const auto& theirs) {
        if (!theirs) return;
        if (mine && *mine != *theirs) {
            raise(Fault::kData,
                  fmt::format("{} says {} = {}, {} says {}", who, name, show(*mine), other,
                              show(*theirs)),
                  "leave the wrong one out");
        }
        mine = theirs;
    };
    pair("codec", facts.codec, more.codec);
    pair("channels", facts.channels, more.channels);
    pair("scale", facts.scale, more.scale);
    pair("normalised", facts.normalised, more.normalised);
    pair("mean", facts.mean, more.mean);
    pair("std", facts.std, more.std);
    pair("text_encoder", facts.text_encoder, more.text_encoder);
    pair("text_dim", facts.text_dim, more.text_dim);
    pair("text_len", facts.text_len, more.text_len);
    pair("fps", facts.fps, more.fps);
}

void add_known(FactsGiven& facts) {
    if (!facts.fps) facts.fps = 0;
    const KnownCodec* known = facts.codec ? known_codec(*facts.codec) : nullptr;
    if (known == nullptr) return;
    if (!facts.channels) facts.channels = known->channels;
    if (!facts.scale) facts.scale = known->scale;
    if (*facts.channels != known->channels || *facts.scale != known->scale) {
        raise(Fault::kUser,
              fmt::format("codec {} has {} channels and scale {}, not {} and {}", known->name,
                          known->channels, show(known->scale), *facts.channels, show(*facts.scale)),
              "name the codec that made the latents");
    }
    if (!facts.mean && !facts.std && !known->mean.empty()) {
        facts.mean = known->mean;
        facts.std = known->std;
    }
}

LatentFacts complete_facts(const FactsGiven& given, std::string_view how) {
    std::vector<std::string> missing;
    each(given, [&](const char* name, const auto& v) {
        if (v) return;
        const std::string_view n = name;
        // raw latents may go without statistics
        if ((n == "mean" || n == "std") && given.normalised && !*given.normalised) return;
        missing.emplace_back(name);
    });
    if (!missing.empty()) {
        std::vector<std::string> known;
        for (const KnownCodec& k : known_codecs()) known.emplace_back(k.name);
        raise(Fault::kUser,
              fmt::format("facts of the latents are not stated: {}", fmt::join(missing, ", ")),
              fmt::format("state them {}; channels, scale, mean and std are known of the codecs {}",
                          how, fmt::join(known, ", ")));
    }
    LatentFacts f{.codec = *given.codec,
                  .channels = *given.channels,
                  .scale = *given.scale,
                  .normalised = *given.normalised,
                  .mean = given.mean.value_or(std::vector<double>{}),
                  .std = given.std.value_or(std::vector<double>{}),
                  .text_encoder = *given.text_encoder,
                  .text_dim = *given.text_dim,
                  .text_len = *given.text_len,
                  .fps = *given.fps};
    check_facts(f);
    return f;
}

// --- foreign files ------------------------------------------------------------------------------

const std::vector<std::string>& data_set_names() {
    static const std::vector<std::string> all{
        "latents",   "text", "text_offsets", "text_lengths", "text_mask",      "empty_text",
        "checksums", "ids",  "id_offsets",   "captions",     "caption_offsets"};
    return all;
}

std::string Foreign::name(const std::string& ours) const {
    const auto it = names.find(ours);
    return it == names.end() ? ours : it->second;
}

std::string foreign_json(const Foreign& f) {
    nlohmann::ordered_json j;
    j["names"] = f.names;
    j["facts"] = nlohmann::ordered_json::parse(facts_given_json(f.facts));
    j["layout"] = f.layout;
    return j.dump();
}

Foreign foreign_from_json(const std::string& text) {
    Foreign f;
    try {
        const nlohmann::json j = nlohmann::json::parse(text);
        j.at("names").get_to(f.names);
        j.at("layout").get_to(f.layout);
        f.facts = facts_given_from_json(j.at("facts").dump(), "facts");
    } catch (const nlohmann::json::exception& e) {
        raise(Fault::kUser,
              fmt::format("a description of foreign files cannot be read: {}", e.what()));
    }
    return f;
}

std::map<std::string, std::string> parse_names(const std::vector<std::string>& pairs,
                                               const std::vector<std::string>& ours,
                                               std::string_view where) {
    std::map<std::string, std::string> out;
    for (const std::string& p : pairs) {
        const size_t eq = p.find('=');
        const std::string key = p.substr(0, eq);
        if (eq == std::string::npos || eq + 1 == p.size() ||
            std::find(ours.begin(), ours.end(), key) == ours.end()) {
            raise(Fault::kUser, fmt::format("{} {}: must be OURS=THEIRS", where, p),
                  fmt::format("OURS is one of {}", fmt::join(ours, ", ")));
        }
        out[key] = p.substr(eq + 1);
    }
    return out;
}

}  // namespace vt
