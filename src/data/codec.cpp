// SPDX-License-Identifier: MIT
// The 3-D Haar codec and the word-hash caption embedder.
// Haar 1910; the separable ("standard") decomposition of Stollnitz, DeRose and Salesin 1995: a full
// one-dimensional pyramid along t, then h, then w of every 2^lt x 2^ls x 2^ls block.
// Floor 3.
#include "data/codec.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>

#include "core/check.h"
#include "core/hash.h"
#include "core/rng.h"

namespace vt {
namespace {

constexpr int kMaxLevels = 4;
constexpr float kRoot = 0.70710678118654752F;  // sqrt(1/2)

// One strip of blocks: a row of latent pixels. Indices (kt, kh, kw, colour, x), x fastest, so that
// every loop below runs over contiguous x.
struct Strip {
    int64_t nt, ns, width;  // frames and pixels per block edge; latent columns
    std::vector<float> a, tmp;
    Strip(int lt, int ls, int64_t latent_w)
        : nt(int64_t{1} << lt),
          ns(int64_t{1} << ls),
          width(latent_w),
          a(static_cast<size_t>(nt * ns * ns * 3 * width)),
          tmp(a.size()) {}
    [[nodiscard]] float* lane(int64_t kt, int64_t kh, int64_t kw, int64_t colour) {
        return a.data() + (((kt * ns + kh) * ns + kw) * 3 + colour) * width;
    }
};

// lo = (p + q) / sqrt 2, hi = (p - q) / sqrt 2; the inverse has the same form. Fixed runs of 16 so
// that the compiler turns them into vectors.
void butterfly(const float* __restrict p, const float* __restrict q, float* __restrict lo,
               float* __restrict hi, int64_t n) {
    int64_t x = 0;
    for (; x + 16 <= n; x += 16) {
        for (int64_t i = x; i < x + 16; ++i) {
            lo[i] = (p[i] + q[i]) * kRoot;
            hi[i] = (p[i] - q[i]) * kRoot;
        }
    }
    for (; x < n; ++x) {
        lo[x] = (p[x] + q[x]) * kRoot;
        hi[x] = (p[x] - q[x]) * kRoot;
    }
}

// (outer, n, inner): the pyramid along the middle index. After it, entry 0 is the mean, entry 1 the
// coarsest difference, entries n/2 .. n-1 the finest.
void haar_forward(float* data, float* tmp, int64_t outer, int64_t n, int64_t inner) {
    for (int64_t o = 0; o < outer; ++o) {
        float* base = data + o * n * inner;
        for (int64_t len = n; len > 1; len /= 2) {
            const int64_t half = len / 2;
            for (int64_t i = 0; i < half; ++i) {
                const float* p = base + 2 * i * inner;
                const float* q = p + inner;
                butterfly(p, q, tmp + i * inner, tmp + (half + i) * inner, inner);
            }
            std::memcpy(base, tmp, static_cast<size_t>(len * inner) * sizeof(float));
        }
    }
}

void haar_inverse(float* data, float* tmp, int64_t outer, int64_t n, int64_t inner) {
    for (int64_t o = 0; o < outer; ++o) {
        float* base = data + o * n * inner;
        for (int64_t len = 2; len <= n; len *= 2) {
            const int64_t half = len / 2;
            for (int64_t i = 0; i < half; ++i) {
                const float* lo = base + i * inner;
                const float* hi = base + (half + i) * inner;
                float* p = tmp + 2 * i * inner;
                butterfly(lo, hi, p, p + inner, inner);
            }
            std::memcpy(base, tmp, static_cast<size_t>(len * inner) * sizeof(float));
        }
    }
}

void check_levels(const HaarCodec& c) {
    if (c.lt < 0 || c.lt > kMaxLevels || c.ls < 0 || c.ls > kMaxLevels) {
        raise(Fault::kUser,
              fmt::format("haar3d levels are {} in time and {} in space; both must be 0 to {}",
                          c.lt, c.ls, kMaxLevels));
    }
}

// 2^level as written in a codec's name, or -1.
int level_of(std::string_view digits) {
    int value = 0;
    const auto [end, ec] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (ec != std::errc{} || end != digits.data() + digits.size()) return -1;
    for (int level = 0; level <= kMaxLevels; ++level) {
        if (value == 1 << level) return level;
    }
    return -1;
}

std::optional<HaarCodec> parse_name(std::string_view codec) {
    constexpr std::string_view kPrefix = "haar3d-v1-t";
    if (codec.substr(0, kPrefix.size()) != kPrefix) return std::nullopt;
    const std::string_view rest = codec.substr(kPrefix.size());
    const size_t cut = rest.find("-s");
    if (cut == std::string_view::npos) return std::nullopt;
    const HaarCodec c{level_of(rest.substr(0, cut)), level_of(rest.substr(cut + 2))};
    if (c.lt < 0 || c.ls < 0) return std::nullopt;
    return c;
}

bool is_word_byte(unsigned char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           c >= 0x80;  // the bytes of non-ASCII letters in UTF-8
}

}  // namespace

std::string HaarCodec::name() const {
    return fmt::format("haar3d-v1-t{}-s{}", 1 << lt, 1 << ls);
}

int64_t HaarCodec::channels() const {
    return (int64_t{3} << lt) << (2 * ls);
}

HaarCodec HaarCodec::named(std::string_view codec) {
    if (const auto c = parse_name(codec)) return *c;
    raise(Fault::kUser,
          fmt::format("latents of codec \"{}\" cannot be turned into pixels here; the built-in "
                      "codecs are haar3d-v1-tN-sM with N, M powers of two up to {}",
                      codec, 1 << kMaxLevels),
          "decode the latents with the codec they were made with");
}

bool is_builtin_codec(std::string_view codec) {
    return parse_name(codec).has_value();
}

std::vector<float> HaarCodec::encode(const Clip& clip) const {
    check_levels(*this);
    const int64_t nt = int64_t{1} << lt, ns = int64_t{1} << ls;
    if (clip.T < 1 || (clip.T - 1) % nt != 0 || clip.H < ns || clip.W < ns || clip.H % ns != 0 ||
        clip.W % ns != 0) {
        raise(Fault::kUser,
              fmt::format("{} needs 1 + n*{} frames and sizes divisible by {}; the clip has {} "
                          "frames of {}x{} (height x width)",
                          name(), nt, ns, clip.T, clip.H, clip.W),
              "change --frames or --size, or use fewer codec levels");
    }
    VT_CHECK(static_cast<int64_t>(clip.rgb.size()) == clip.T * clip.H * clip.W * 3,
             "{} bytes for {}x{}x{}", clip.rgb.size(), clip.T, clip.H, clip.W);
    std::array<float, 256> scaled{};
    for (size_t i = 0; i < 256; ++i) scaled.at(i) = static_cast<float>(i) / 127.5F - 1.0F;

    const int64_t T = (clip.T - 1) / nt + 1, H = clip.H / ns, W = clip.W / ns, C = channels();
    std::vector<float> out(static_cast<size_t>(C * T * H * W));
    Strip strip(lt, ls, W);
    for (int64_t t = 0; t < T; ++t) {
        for (int64_t y = 0; y < H; ++y) {
            for (int64_t kt = 0; kt < nt; ++kt) {
                // padded frame t*nt + kt; the first nt of them are all frame 0
                const int64_t frame = std::max(int64_t{0}, t * nt + kt - (nt - 1));
                for (int64_t kh = 0; kh < ns; ++kh) {
                    const uint8_t* row =
                        clip.rgb.data() + (frame * clip.H + y * ns + kh) * clip.W * 3;
                    for (int64_t kw = 0; kw < ns; ++kw) {
                        float* r = strip.lane(kt, kh, kw, 0);
                        float* g = r + W;
                        float* b = g + W;
                        for (int64_t x = 0; x < W; ++x) {
                            const uint8_t* p = row + (x * ns + kw) * 3;
                            r[x] = scaled[p[0]];
                            g[x] = scaled[p[1]];
                            b[x] = scaled[p[2]];
                        }
                    }
                }
            }
            haar_forward(strip.a.data(), strip.tmp.data(), 1, nt, ns * ns * 3 * W);
            haar_forward(strip.a.data(), strip.tmp.data(), nt, ns, ns * 3 * W);
            haar_forward(strip.a.data(), strip.tmp.data(), nt * ns, ns, 3 * W);
            for (int64_t c = 0; c < C; ++c) {
                std::memcpy(out.data() + ((c * T + t) * H + y) * W, strip.a.data() + c * W,
                            static_cast<size_t>(W) * sizeof(float));
            }
        }
    }
    return out;
}

Clip HaarCodec::decode(const float* latent, int64_t T, int64_t H, int64_t W) const {
    check_levels(*this);
    VT_CHECK(T >= 1 && H >= 1 && W >= 1, "latent of {}x{}x{}", T, H, W);
    const int64_t nt = int64_t{1} << lt, ns = int64_t{1} << ls, C = channels();
    Clip clip{.T = (T - 1) * nt + 1, .H = H * ns, .W = W * ns, .fps = 0, .rgb = {}};
    clip.rgb.resize(static_cast<size_t>(clip.T * clip.H * clip.W * 3));
    Strip strip(lt, ls, W);
    for (int64_t t = 0; t < T; ++t) {
        for (int64_t y = 0; y < H; ++y) {
            for (int64_t c = 0; c < C; ++c) {
                std::memcpy(strip.a.data() + c * W, latent + ((c * T + t) * H + y) * W,
                            static_cast<size_t>(W) * sizeof(float));
            }
            haar_inverse(strip.a.data(), strip.tmp.data(), nt * ns, ns, 3 * W);
            haar_inverse(strip.a.data(), strip.tmp.data(), nt, ns, ns * 3 * W);
            haar_inverse(strip.a.data(), strip.tmp.data(), 1, nt, ns * ns * 3 * W);
            for (int64_t kt = 0; kt < nt; ++kt) {
                const int64_t frame = t * nt + kt - (nt - 1);
                if (frame < 0) continue;  // a repeat of the first frame
                for (int64_t kh = 0; kh < ns; ++kh) {
                    uint8_t* row = clip.rgb.data() + (frame * clip.H + y * ns + kh) * clip.W * 3;
                    for (int64_t kw = 0; kw < ns; ++kw) {
                        for (int64_t colour = 0; colour < 3; ++colour) {
                            const float* v = strip.lane(kt, kh, kw, colour);
                            for (int64_t x = 0; x < W; ++x) {
                                // min/max in this order also send NaN to 0
                                const float u = (v[x] + 1.0F) * 127.5F + 0.5F;
                                row[(x * ns + kw) * 3 + colour] =
                                    static_cast<uint8_t>(std::min(std::max(0.0F, u), 255.0F));
                            }
                        }
                    }
                }
            }
        }
    }
    return clip;
}

Clip decode_latent(const LatentFacts& facts, const float* latent, int64_t T, int64_t H, int64_t W) {
    const HaarCodec codec = HaarCodec::named(facts.codec);
    const int64_t C = codec.channels(), per = T * H * W;
    if (facts.channels != C) {
        raise(Fault::kData, fmt::format("codec {} has {} channels, the data set says {}",
                                        facts.codec, C, facts.channels));
    }
    Clip clip;
    if (!facts.normalised) {
        clip = codec.decode(latent, T, H, W);
    } else {
        VT_CHECK(static_cast<int64_t>(facts.mean.size()) == C &&
                     static_cast<int64_t>(facts.std.size()) == C,
                 "{} means and {} stds for {} channels", facts.mean.size(), facts.std.size(), C);
        std::vector<float> raw(static_cast<size_t>(C * per));
        for (int64_t c = 0; c < C; ++c) {
            const auto mean = static_cast<float>(facts.mean[static_cast<size_t>(c)]);
            const auto std = static_cast<float>(facts.std[static_cast<size_t>(c)]);
            const float* in = latent + c * per;
            float* out = raw.data() + c * per;
            for (int64_t i = 0; i < per; ++i) out[i] = in[i] * std + mean;
        }
        clip = codec.decode(raw.data(), T, H, W);
    }
    clip.fps = facts.fps;
    return clip;
}

std::vector<float> embed_caption(std::string_view caption, int64_t dim, int64_t max_rows) {
    VT_CHECK(dim >= 1 && max_rows >= 1, "embedding of {} x {}", max_rows, dim);
    std::vector<std::string> words;
    std::string word;
    for (size_t i = 0; i <= caption.size(); ++i) {
        const auto c = static_cast<unsigned char>(i < caption.size() ? caption[i] : ' ');
        if (is_word_byte(c)) {
            word += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
        } else if (!word.empty()) {
            words.push_back(std::exchange(word, {}));
        }
    }
    if (static_cast<int64_t>(words.size()) > max_rows - 1) {
        words.resize(static_cast<size_t>(max_rows - 1));
    }
    words.emplace_back("</s>");  // no word contains '<'

    // A seed of its own, part of the format named kBuiltinTextEncoder.
    constexpr uint64_t kSeed = 0x76742d68'6173682dULL;
    const auto rows = static_cast<int64_t>(words.size());
    const int64_t place = dim / 4, meaning = dim - place;
    std::vector<float> out(static_cast<size_t>(rows * dim));
    for (int64_t r = 0; r < rows; ++r) {
        float* row = out.data() + r * dim;
        const std::string& w = words[static_cast<size_t>(r)];
        const uint64_t id = xxh3(w);
        for (int64_t d = 0; d < meaning; ++d) {
            row[d] = random_normal(kSeed, Purpose::kSynth, id, static_cast<uint64_t>(d));
        }
        for (int64_t d = 0; d < place; ++d) {
            // sinusoids of unit mean square, wave lengths from 2 pi rows up to 2 pi * 1000
            const int64_t pair = d / 2, pairs = (place + 1) / 2;
            const double rate =
                std::pow(1000.0, -static_cast<double>(pair) / static_cast<double>(pairs));
            const double angle = static_cast<double>(r) * rate;
            row[meaning + d] = static_cast<float>(std::sqrt(2.0) *
                                                  (d % 2 == 0 ? std::sin(angle) : std::cos(angle)));
        }
    }
    return out;
}

}  // namespace vt
