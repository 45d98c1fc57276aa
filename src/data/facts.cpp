// SPDX-License-Identifier: MIT
#include "data/facts.h"

#include <nlohmann/json.hpp>

#include "core/check.h"

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

}  // namespace vt
