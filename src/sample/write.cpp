// SPDX-License-Identifier: MIT
// The files of drawn samples.
// Floor 5.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/check.h"
#include "data/codec.h"
#include "data/image.h"
#include "data/video.h"
#include "sample/sampler.h"

namespace vt {

namespace {

// Videos of small training sizes, to be watched: every pixel becomes a square of whole pixels, so
// that the short side reaches kWatchable. Larger ones are left as they are.
Clip watchable(const Clip& clip) {
    constexpr int64_t kWatchable = 240;
    const int64_t k = std::max<int64_t>(1, kWatchable / std::min(clip.H, clip.W));
    if (k == 1) return clip;
    Clip out{.T = clip.T, .H = clip.H * k, .W = clip.W * k, .fps = clip.fps, .rgb = {}};
    out.rgb.reserve(static_cast<size_t>(out.T * out.H * out.W * 3));
    for (int64_t t = 0; t < out.T; ++t) {
        for (int64_t y = 0; y < out.H; ++y) {
            for (int64_t x = 0; x < out.W; ++x) {
                const uint8_t* from =
                    &clip.rgb[static_cast<size_t>(((t * clip.H + y / k) * clip.W + x / k) * 3)];
                out.rgb.insert(out.rgb.end(), from, from + 3);
            }
        }
    }
    return out;
}

// {"samples":[{"index":0,"caption":"..."}]}, for those who look at the folder without HDF5.
std::string captions_json(const std::vector<Sample>& samples) {
    nlohmann::ordered_json out;
    for (const Sample& s : samples) {
        out["samples"].push_back({{"index", s.index}, {"caption", s.caption}});
    }
    return out.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace

SampleFiles write_samples(const fs::path& dir, const LatentFacts& facts, const LatentShape& shape,
                          const std::vector<Sample>& samples,
                          const std::vector<float>& empty_caption_text, bool gif) {
    VT_CHECK(!samples.empty(), "no samples to write");
    std::error_code ec;
    fs::create_directories(dir, ec);
    if (ec) raise(Fault::kSystem, fmt::format("cannot make {}: {}", dir.string(), ec.message()));
    SampleFiles files;
    files.latents = dir / "samples.h5";
    ShardWriter writer(files.latents, facts, {shape.C, shape.T, shape.H, shape.W},
                       empty_caption_text, {.dtype = DType::kF32});
    for (const Sample& s : samples) {
        VT_CHECK(static_cast<int64_t>(s.latent.size()) == shape.numel(), "latent of {} numbers",
                 s.latent.size());
        writer.add({.id = fmt::format("sample-{:06}", s.index),
                    .caption = s.caption,
                    .latent = s.latent,
                    .text = s.text.empty() ? empty_caption_text : s.text});
    }
    writer.close();
    write_atomic(dir / "samples.json", captions_json(samples));
    if (!is_builtin_codec(facts.codec)) return files;

    std::vector<Clip> clips;
    clips.reserve(samples.size());
    std::vector<SheetRow> rows;
    for (const Sample& s : samples) {
        clips.push_back(decode_latent(facts, s.latent.data(), shape.T, shape.H, shape.W));
        rows.push_back({s.caption, &clips.back()});
    }
    files.sheet = dir / "samples.png";
    write_contact_sheet(files.sheet, rows);
    for (size_t i = 0; i < samples.size(); ++i) {
        if (clips[i].T == 1) {  // an image
            files.videos.push_back(dir / fmt::format("sample-{:06}.png", samples[i].index));
            const Clip image = watchable(clips[i]);
            write_png(files.videos.back(), image.rgb.data(), image.H, image.W);
            continue;
        }
        if (!have_video()) continue;
        files.videos.push_back(dir / fmt::format("sample-{:06}.mp4", samples[i].index));
        const Clip shown = watchable(clips[i]);
        write_mp4(files.videos.back(), shown);
        if (!gif) continue;
        files.gifs.push_back(dir / fmt::format("sample-{:06}.gif", samples[i].index));
        write_gif(files.gifs.back(), shown);
    }
    return files;
}

}  // namespace vt
