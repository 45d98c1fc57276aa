// SPDX-License-Identifier: MIT
// The files of drawn samples.
// Floor 5.
#include <system_error>

#include "core/check.h"
#include "data/codec.h"
#include "data/image.h"
#include "data/video.h"
#include "sample/sampler.h"

namespace vt {

SampleFiles write_samples(const fs::path& dir, const LatentFacts& facts, const LatentShape& shape,
                          const std::vector<Sample>& samples,
                          const std::vector<float>& empty_caption_text) {
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
    if (!have_video()) return files;
    for (size_t i = 0; i < samples.size(); ++i) {
        files.videos.push_back(dir / fmt::format("sample-{:06}.mp4", samples[i].index));
        write_mp4(files.videos.back(), clips[i]);
    }
    return files;
}

}  // namespace vt
