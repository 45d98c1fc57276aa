// SPDX-License-Identifier: MIT
// The latent spaces that published models train in. Numbers are those of the models' own
// configuration files as the diffusers library (0.42, read 2026-11-30) carries them:
// `latents_mean`, `latents_std`, `scaling_factor`, `shift_factor` of each autoencoder.
// Floor 3.
#include "data/facts.h"

namespace vt {

namespace {

// (z - shift) * factor
KnownCodec scaled(std::string_view name, std::string_view what, int64_t channels,
                  std::array<int64_t, 3> scale, double shift, double factor) {
    const auto n = static_cast<size_t>(channels);
    return {.name = name,
            .what = what,
            .channels = channels,
            .scale = scale,
            .mean = std::vector<double>(n, shift),
            .std = std::vector<double>(n, 1 / factor)};
}

std::vector<KnownCodec> make() {
    std::vector<KnownCodec> all;
    all.push_back({.name = "wan2.1-vae",
                   .what = "Wan 2.1, Wan 2.2 A14B, Qwen-Image",
                   .channels = 16,
                   .scale = {4, 8, 8},
                   .mean = {-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
                            0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921},
                   .std = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687,
                           2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160}});
    all.push_back(
        {.name = "wan2.2-vae",
         .what = "Wan 2.2 TI2V-5B",
         .channels = 48,
         .scale = {4, 16, 16},
         .mean = {-0.2289, -0.0052, -0.1323, -0.2339, -0.2799, 0.0174,  0.1838,  0.1557,
                  -0.1382, 0.0542,  0.2813,  0.0891,  0.1570,  -0.0098, 0.0375,  -0.1825,
                  -0.2246, -0.1207, -0.0698, 0.5109,  0.2665,  -0.2108, -0.2158, 0.2502,
                  -0.2055, -0.0322, 0.1109,  0.1567,  -0.0729, 0.0899,  -0.2799, -0.1230,
                  -0.0313, -0.1649, 0.0117,  0.0723,  -0.2839, -0.2083, -0.0520, 0.3748,
                  0.0152,  0.1957,  0.1433,  -0.2944, 0.3573,  -0.0548, -0.1681, -0.0667},
         .std = {0.4765, 1.0364, 0.4514, 1.1677, 0.5313, 0.4990, 0.4818, 0.5013, 0.8158, 1.0344,
                 0.5894, 1.0901, 0.6885, 0.6165, 0.8454, 0.4978, 0.5759, 0.3523, 0.7135, 0.6804,
                 0.5833, 1.4146, 0.8986, 0.5659, 0.7069, 0.5338, 0.4889, 0.4917, 0.4069, 0.4999,
                 0.6866, 0.4093, 0.5709, 0.6065, 0.6415, 0.4944, 0.5726, 1.2042, 0.5458, 1.6887,
                 0.3971, 1.0600, 0.3943, 0.5537, 0.5444, 0.4089, 0.7468, 0.7744}});
    all.push_back(
        {.name = "mochi-vae",
         .what = "Mochi 1",
         .channels = 12,
         .scale = {6, 8, 8},
         .mean = {-0.06730895953510081, -0.038011381506090416, -0.07477820912866141,
                  -0.05565264470995561, 0.012767231469026969, -0.04703542746246419,
                  0.043896967884726704, -0.09346305707025976, -0.09918314763016893,
                  -0.008729793427399178, -0.011931556316503654, -0.0321993391887285},
         .std = {0.9263795028493863, 0.9248894543193766, 0.9393059390890617, 0.959253732819592,
                 0.8244560132752793, 0.917259975397747, 0.9294154431013696, 1.3720942357788521,
                 0.881393668867029, 0.9168315692124348, 0.9185249279345552, 0.9274757570805041}});
    all.push_back(scaled("hunyuanvideo-vae", "HunyuanVideo", 16, {4, 8, 8}, 0, 0.476986));
    all.push_back(scaled("hunyuanvideo-1.5-vae", "HunyuanVideo 1.5", 32, {4, 16, 16}, 0, 1.03682));
    all.push_back(scaled("cogvideox-2b-vae", "CogVideoX 2B", 16, {4, 8, 8}, 0, 1.15258426));
    all.push_back(scaled("cogvideox-5b-vae", "CogVideoX 5B", 16, {4, 8, 8}, 0, 0.7));
    all.push_back(scaled("flux-vae", "FLUX.1, images", 16, {1, 8, 8}, 0.1159, 0.3611));
    all.push_back(
        scaled("sd-vae", "Stable Diffusion 1 and 2, DiT, images", 4, {1, 8, 8}, 0, 0.18215));
    all.push_back({.name = "ltx-video-vae",
                   .what = "LTX-Video; mean and std are tensors of its VAE file (--vae)",
                   .channels = 128,
                   .scale = {8, 32, 32},
                   .mean = {},
                   .std = {}});
    return all;
}

}  // namespace

const std::vector<KnownCodec>& known_codecs() {
    static const std::vector<KnownCodec> all = make();
    return all;
}

const KnownCodec* known_codec(std::string_view name) {
    for (const KnownCodec& k : known_codecs()) {
        if (k.name == name) return &k;
    }
    return nullptr;
}

}  // namespace vt
