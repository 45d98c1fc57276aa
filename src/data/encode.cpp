// SPDX-License-Identifier: MIT
#include "data/encode.h"

#include <algorithm>

#include "core/check.h"
#include "data/publish.h"

namespace vt {
namespace {

constexpr double kLeastStd = 1e-3;

}  // namespace

void check_spec(const EncodeSpec& s) {
    const int64_t nt = int64_t{1} << s.codec.lt, ns = int64_t{1} << s.codec.ls;
    if (s.T < 1 || (s.T - 1) % nt != 0) {
        const int64_t below = s.T < 1 ? 1 : (s.T - 1) / nt * nt + 1;
        raise(Fault::kUser,
              fmt::format("--frames {}: with {} temporal level(s) it must be 1 + a multiple of {}",
                          s.T, s.codec.lt, nt),
              fmt::format("use {} or {}", below, below + nt));
    }
    if (s.H < ns || s.W < ns || s.H % ns != 0 || s.W % ns != 0) {
        raise(Fault::kUser,
              fmt::format("--size {}x{}: with {} spatial level(s) both must be multiples of {}",
                          s.H, s.W, s.codec.ls, ns));
    }
    const auto channels = static_cast<size_t>(s.codec.channels());
    if (s.mean.size() != s.std.size() || (!s.mean.empty() && s.mean.size() != channels)) {
        raise(Fault::kUser, fmt::format("statistics of {} channels for {}, which has {}",
                                        s.mean.size(), s.codec.name(), channels));
    }
    if (s.text_dim < 1 || s.text_len < 1 || s.samples_per_shard < 1) {
        raise(Fault::kUser,
              fmt::format("--text-dim {}, --text-len {}, --samples-per-shard {}: must be positive",
                          s.text_dim, s.text_len, s.samples_per_shard));
    }
}

EncodeReport encode_dataset(const fs::path& out, const EncodeSpec& spec,
                            const std::function<void(int pass, const ClipSink&)>& source) {
    check_spec(spec);
    ShardFolder folder(out, spec.samples_per_shard, spec.dtype);
    const int64_t C = spec.codec.channels(), nt = int64_t{1} << spec.codec.lt,
                  ns = int64_t{1} << spec.codec.ls;
    EncodeReport report;

    LatentFacts& facts = report.facts;
    if (!spec.mean.empty()) {
        facts.mean = spec.mean;
        facts.std = spec.std;
    } else {
        ChannelMoments stats(C);
        int64_t train = 0;
        source(1, [&](const EncodeItem& item) {
            if (item.valid) return;
            stats.add(spec.codec.encode(*item.clip));
            ++train;
        });
        if (train == 0) return report;
        facts.mean = stats.mean();
        facts.std = stats.std();
        for (double& v : facts.std) v = std::max(v, kLeastStd);
    }
    facts.codec = spec.codec.name();
    facts.channels = C;
    facts.scale = {nt, ns, ns};
    facts.normalised = true;
    facts.text_encoder = kBuiltinTextEncoder;
    facts.text_dim = spec.text_dim;
    facts.text_len = spec.text_len;
    facts.fps = spec.fps;

    const std::array<int64_t, 4> shape{C, (spec.T - 1) / nt + 1, spec.H / ns, spec.W / ns};
    const auto per = static_cast<size_t>(shape[1] * shape[2] * shape[3]);
    const std::vector<float> empty = embed_caption("", spec.text_dim, spec.text_len);
    source(2, [&](const EncodeItem& item) {
        ShardSample sample{.id = item.id,
                           .caption = item.caption,
                           .latent = spec.codec.encode(*item.clip),
                           .text = embed_caption(item.caption, spec.text_dim, spec.text_len)};
        for (size_t c = 0; c < facts.mean.size(); ++c) {
            const auto mean = static_cast<float>(facts.mean[c]);
            const auto scale = static_cast<float>(1 / facts.std[c]);
            float* z = sample.latent.data() + c * per;
            for (size_t i = 0; i < per; ++i) z[i] = (z[i] - mean) * scale;
        }
        folder.add("shard", item.valid, facts, shape, empty, sample);
    });
    folder.publish();
    report.bytes = folder.bytes();
    report.train = folder.train();
    report.valid = folder.valid();
    report.shards = folder.shards();
    return report;
}

}  // namespace vt
