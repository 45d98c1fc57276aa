// SPDX-License-Identifier: MIT
// Floor 3.
#include "data/agree.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "core/check.h"
#include "core/hash.h"
#include "core/log.h"

namespace vt {

namespace {

std::string show(const std::vector<double>& v) {
    std::string out = "(";
    for (size_t i = 0; i < v.size() && i < 4; ++i) out += fmt::format("{}{}", i ? ", " : "", v[i]);
    return out + (v.size() > 4 ? ", ...)" : ")");
}

}  // namespace

std::string difference(const LatentFacts& a, const LatentFacts& b) {
    const auto differ = [](const char* name, const auto& x, const auto& y) {
        return fmt::format("{}: {} and {}", name, x, y);
    };
    const auto entry = [](const char* name, const std::vector<double>& x,
                          const std::vector<double>& y) {
        size_t c = 0;
        while (c < x.size() && c < y.size() && x[c] == y[c]) ++c;
        return fmt::format("{}: {} and {}, first in channel {}", name, show(x), show(y), c);
    };
    if (a.codec != b.codec) return differ("codec", a.codec, b.codec);
    if (a.channels != b.channels) return differ("channels", a.channels, b.channels);
    if (a.scale != b.scale) {
        return fmt::format("scale: {}x{}x{} and {}x{}x{}", a.scale[0], a.scale[1], a.scale[2],
                           b.scale[0], b.scale[1], b.scale[2]);
    }
    if (a.normalised != b.normalised) return differ("normalised", a.normalised, b.normalised);
    if (a.mean != b.mean) return entry("mean", a.mean, b.mean);
    if (a.std != b.std) return entry("std", a.std, b.std);
    if (a.text_encoder != b.text_encoder) {
        return differ("text_encoder", a.text_encoder, b.text_encoder);
    }
    if (a.text_dim != b.text_dim) return differ("text_dim", a.text_dim, b.text_dim);
    if (a.text_len != b.text_len) return differ("text_len", a.text_len, b.text_len);
    if (a.fps != b.fps) return differ("fps", a.fps, b.fps);
    return {};
}

bool same_text(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return false;
    const auto tol = static_cast<float>(2 * unit_roundoff(DType::kBF16));
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::fabs(a[i] - b[i]) > tol * std::max(std::fabs(a[i]), std::fabs(b[i]))) return false;
    }
    return true;
}

void require_agreement(const std::vector<ShardOf>& shards) {
    const ShardOf& first = shards.front();
    for (const ShardOf& s : shards) {
        std::string why = difference(first.index->facts, s.index->facts);
        if (why.empty() && !same_text(first.index->empty_text, s.index->empty_text)) {
            why = "the empty caption's embedding";
        }
        if (why.empty()) continue;
        raise(
            Fault::kData,
            fmt::format("{} and {} disagree on {}", first.path->string(), s.path->string(), why),
            "latents of one run come from one codec, statistics and text encoder: encode again, or "
            "leave one out");
    }
}

void warn_twice(const std::vector<ShardOf>& shards) {
    constexpr int kNamed = 4;
    std::map<std::tuple<int64_t, int64_t, uint64_t>, const ShardOf*> files;
    std::map<uint64_t, const ShardOf*> contents;
    int64_t count = 0;
    for (const ShardOf& s : shards) {
        const ShardIndex& x = *s.index;
        const ShardOf* same = nullptr;
        const char* how = "";
        const auto [file, new_file] =
            files.try_emplace({x.stamp.size, x.stamp.mtime_ns, x.stamp.inode}, &s);
        const auto [content, new_content] = contents.try_emplace(
            xxh3(x.checksums.data(), std::ssize(x.checksums) * int64_t{sizeof(uint64_t)}), &s);
        if (!new_file) {
            same = file->second;
            how = "is named twice";
        } else if (!new_content && x.has_checksums &&
                   content->second->index->checksums == x.checksums) {
            same = content->second;
            how = "holds the same samples as another file";
        } else {
            continue;
        }
        if (++count > kNamed) continue;
        warn("{} {}: by '{}' and, as {}, by '{}'; its samples are drawn that much more often",
             s.path->string(), how, *s.entry, same->path->string(), *same->entry);
    }
    if (count > kNamed) warn("and {} more files are there twice", count - kNamed);
}

void warn_leak(const std::vector<ShardOf>& train, const std::vector<ShardOf>& valid) {
    struct Place {
        uint64_t sum;
        size_t shard;
    };
    std::vector<Place> held_out;
    std::vector<bool> maybe(size_t{1} << 22, false);  // most training samples need no search
    const auto bit = [&](uint64_t sum) { return static_cast<size_t>(sum) & (maybe.size() - 1); };
    for (size_t i = 0; i < valid.size(); ++i) {
        for (const uint64_t sum : valid[i].index->checksums) {
            held_out.push_back({sum, i});
            maybe[bit(sum)] = true;
        }
    }
    std::sort(held_out.begin(), held_out.end(),
              [](const Place& a, const Place& b) { return a.sum < b.sum; });
    std::vector<bool> leaked(held_out.size(), false);
    int64_t count = 0;
    const ShardOf *from = nullptr, *to = nullptr;
    for (const ShardOf& s : train) {
        for (const uint64_t sum : s.index->checksums) {
            if (!maybe[bit(sum)]) continue;
            auto at = std::lower_bound(held_out.begin(), held_out.end(), sum,
                                       [](const Place& p, uint64_t x) { return p.sum < x; });
            for (; at != held_out.end() && at->sum == sum; ++at) {
                const auto k = static_cast<size_t>(at - held_out.begin());
                if (leaked[k]) continue;
                leaked[k] = true;
                if (count++ == 0) from = &s, to = &valid[at->shard];
            }
        }
    }
    if (count == 0) return;
    warn(
        "{} of {} validation samples are training samples too, the first in {} (data.valid '{}') "
        "and {} (data.train '{}'): the validation loss will look better than it is",
        count, held_out.size(), to->path->string(), *to->entry, from->path->string(), *from->entry);
}

}  // namespace vt
