// SPDX-License-Identifier: MIT
#include "data/stats.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include "core/check.h"
#include "core/hash.h"
#include "core/rng.h"
#include "data/import.h"
#include "data/shard_read.h"

namespace vt {

double read_ratio(const ShardIndex& x) {
    const auto bytes = static_cast<double>(x.latents.bytes + x.text.bytes);
    const auto fair = [](Stored s) { return std::min<int64_t>(size_of(s), 4); };
    const auto used =
        static_cast<double>(x.latents.bytes / size_of(x.latent_type) * fair(x.latent_type) +
                            x.text.bytes / size_of(x.text_type) * fair(x.text_type));
    return used > 0 ? bytes / used : 1;
}

int64_t ValueCounts::finite() const {
    return std::accumulate(bins.begin(), bins.end(), below + above);
}

void ValueCounts::add(float v) {
    if (!std::isfinite(v)) {
        ++not_finite;
    } else if (v < float{kLow}) {
        ++below;
    } else if (v >= float{kHigh}) {
        ++above;
    } else {
        // scaled by a power of 2 and only then shifted as a whole number: no edge is rounded over
        ++bins[static_cast<size_t>(static_cast<int>(std::floor(v * float{kPerUnit})) -
                                   kLow * kPerUnit)];
        zeros += v == 0 ? 1 : 0;
    }
}

namespace {

struct File {
    fs::path path;
    ShardIndex index;
    bool valid = false;
};

class Collector {
  public:
    explicit Collector(const StatsOptions& options) : options_(options) {}

    void open(const std::vector<fs::path>& paths, bool valid) {
        std::vector<Indexed> got = index_files(paths, options_.index);
        for (size_t i = 0; i < paths.size(); ++i) {
            ++out_.files;
            if (!got[i].index) {
                out_.bad_files.push_back(fmt::format("{}: {}", paths[i].string(), got[i].reason));
                continue;
            }
            ShardIndex& x = *got[i].index;
            if (x.count == 0) ++out_.empty_files;
            add_index(x);
            files_.push_back({.path = paths[i], .index = std::move(x), .valid = valid});
        }
    }

    DataStats finish() {
        for (const File& f : files_) strings(f);
        values();
        captions();
        doubts();
        return std::move(out_);
    }

  private:
    void add_index(const ShardIndex& x) {
        const LatentFacts& f = x.facts;
        out_.samples += x.count;
        out_.shapes[x.shape] += x.count;
        if (f.fps > 0) {
            const auto frames = static_cast<double>((x.shape[1] - 1) * f.scale[0] + 1);
            out_.seconds[frames / f.fps] += x.count;
        }
        for (size_t i = 0; i + 1 < x.text_start.size(); ++i) {
            ++out_.text_rows[x.text_start[i + 1] - x.text_start[i]];
        }
        out_.text_len = std::max(out_.text_len, f.text_len);
        out_.bytes_read_per_used = std::max(out_.bytes_read_per_used, read_ratio(x));
        if (std::find(out_.facts.begin(), out_.facts.end(), f) == out_.facts.end()) {
            out_.facts.push_back(f);
        }
    }

    // Ids and captions of every sample, kept as hashes.
    void strings(const File& f) {
        try {
            const Fd fd = open_shard(f.path, f.index.stamp);
            for (int64_t row = 0; row < f.index.count; ++row) {
                const std::string id = read_id(fd, f.path, f.index, row);
                const std::string caption = read_caption(fd, f.path, f.index, row);
                const auto [seen, fresh] = ids_.emplace(xxh3(id), f.valid);
                if (!fresh) {
                    ++out_.repeated_id_count;
                    if (out_.repeated_ids.size() < 20) out_.repeated_ids.push_back(id);
                    if (seen->second != f.valid) ++out_.valid_in_train;
                }
                if (caption.empty()) ++out_.empty_captions;
                if (caption.size() > out_.longest_caption.size()) out_.longest_caption = caption;
                Use& use = captions_[xxh3(caption)];
                if (++use.times > out_.most_repeated && !caption.empty()) {
                    out_.most_repeated = use.times;
                    out_.most_repeated_caption = caption;
                }
                if (!caption.empty()) (f.valid ? use.valid : use.train) += 1;
            }
        } catch (const Error& e) {
            out_.bad_files.push_back(e.message());
        }
    }

    void values() {
        const int64_t all = out_.samples;
        const int64_t want = options_.samples == 0 ? all : std::min(all, options_.samples);
        std::vector<int64_t> chosen(static_cast<size_t>(want));
        for (int64_t i = 0; i < want; ++i) {
            chosen[static_cast<size_t>(i)] = static_cast<int64_t>(keyed_permutation(
                0, Purpose::kOrder, 0, static_cast<uint64_t>(all), static_cast<uint64_t>(i)));
        }
        std::sort(chosen.begin(), chosen.end());
        size_t file = 0;
        int64_t begin = 0;
        std::unique_ptr<Fd> fd;
        for (const int64_t sample : chosen) {
            while (sample >= begin + files_[file].index.count) {
                begin += files_[file++].index.count;
                fd.reset();
            }
            const File& f = files_[file];
            try {
                if (!fd) fd = std::make_unique<Fd>(open_shard(f.path, f.index.stamp));
                read_values(*fd, f, sample - begin);
            } catch (const Error& e) {
                out_.bad_samples.push_back(e.message());
            }
        }
        for (size_t c = 0; c < sums_.size(); ++c) {
            ChannelStats& s = out_.channels[c];
            s.mean = sums_[c].sum / sums_[c].n;
            s.std = std::sqrt(std::max(0.0, sums_[c].square / sums_[c].n - s.mean * s.mean));
        }
    }

    void read_values(const Fd& fd, const File& f, int64_t row) {
        const ShardIndex& x = f.index;
        latent_.resize(static_cast<size_t>(x.latent_elements()));
        text_.resize(static_cast<size_t>(x.facts.text_len * x.facts.text_dim));
        std::fill(latent_.begin(), latent_.end(), 0.0F);  // nothing of the sample before
        try {
            read_sample(
                fd, f.path, x, row,
                {latent_.data(), {x.shape[0], x.shape[1], x.shape[2], x.shape[3]}, DType::kF32},
                {text_.data(), {x.facts.text_len, x.facts.text_dim}, DType::kF32});
        } catch (const Error&) {
            for (const float v : latent_) out_.values.not_finite += std::isfinite(v) ? 0 : 1;
            throw;
        }
        ++out_.read;
        const auto channels = static_cast<size_t>(x.shape[0]);
        if (sums_.size() < channels) {
            sums_.resize(channels);
            out_.channels.resize(channels, {.mean = 0,
                                            .std = 0,
                                            .min = std::numeric_limits<double>::infinity(),
                                            .max = -std::numeric_limits<double>::infinity()});
        }
        const size_t per = latent_.size() / channels;
        for (size_t c = 0; c < channels; ++c) {
            ChannelStats& s = out_.channels[c];
            for (size_t i = c * per; i < (c + 1) * per; ++i) {
                const double v = double{latent_[i]};
                sums_[c].sum += v;
                sums_[c].square += v * v;
                s.min = std::min(s.min, v);
                s.max = std::max(s.max, v);
                out_.values.add(latent_[i]);
            }
            sums_[c].n += static_cast<double>(per);
        }
    }

    void captions() {
        out_.distinct_captions = static_cast<int64_t>(captions_.size());
        for (const auto& [hash, use] : captions_) {
            if (use.train > 0 && use.valid > 0) shared_captions_ += use.valid;
        }
    }

    template <typename... Args>
    void warn_of(fmt::format_string<Args...> f, Args&&... args) {
        out_.warnings.push_back(fmt::format(f, std::forward<Args>(args)...));
    }

    void doubts() {
        const DataStats& o = out_;
        if (!o.bad_files.empty()) warn_of("{} bad shards", o.bad_files.size());
        if (!o.bad_samples.empty()) {
            warn_of("{} of {} samples read are bad (damaged, infinite or NaN)",
                    o.bad_samples.size(), o.read + static_cast<int64_t>(o.bad_samples.size()));
        }
        if (o.facts.size() > 1) {
            warn_of("the shards hold {} different sets of facts and cannot be used in one run",
                    o.facts.size());
            for (const LatentFacts& f : o.facts) {
                if (f.fps == o.facts[0].fps) continue;
                warn_of("fps is {} in some and {} in others", o.facts[0].fps, f.fps);
                break;
            }
        }
        std::vector<double> mean, std;
        for (size_t c = 0; c < o.channels.size(); ++c) {
            mean.push_back(o.channels[c].mean);
            std.push_back(o.channels[c].std);
            if (o.channels[c].max == o.channels[c].min && o.read > 0) {
                warn_of("channel {} is {} everywhere", c, o.channels[c].min);
            }
        }
        const bool normalised = !o.facts.empty() && o.facts[0].normalised;
        const std::string odd = o.read > 0 ? odd_statistics(mean, std) : std::string();
        if (normalised && !odd.empty()) {
            warn_of("the facts say the latents are normalised, but {}", odd);
        }
        if (!normalised && o.read > 0 && !o.facts.empty() && odd.empty()) {
            warn_of(
                "the facts say the latents are raw, yet their means are near 0 and their "
                "deviations near 1");
        } else if (!normalised && !odd.empty()) {
            warn_of("the latents are raw and {}: training takes them as they are", odd);
        }
        if (o.repeated_id_count > 0) {
            warn_of("{} ids appear again, the first is '{}'", o.repeated_id_count,
                    o.repeated_ids.front());
        }
        if (o.valid_in_train > 0) {
            warn_of("{} validation samples have the id of a training sample", o.valid_in_train);
        }
        if (shared_captions_ > 0) {
            warn_of("{} validation samples have the caption of a training sample",
                    shared_captions_);
        }
        if (o.samples > 1 && o.empty_captions == o.samples) warn_of("every caption is empty");
        if (o.text_rows.size() == 1 && o.samples > 1 && o.text_rows.begin()->first == o.text_len &&
            o.text_len > 1) {
            warn_of("every sample has {} text rows: padding may have been stored as text",
                    o.text_len);
        }
        if (o.bytes_read_per_used > 1.5) {
            warn_of(
                "a sample takes {:.1f} times the bytes its numbers need: `vtrain data repack "
                "--dtype f32` (or bf16) makes reading as much cheaper",
                o.bytes_read_per_used);
        }
    }

    struct Sum {
        double n = 0, sum = 0, square = 0;
    };
    struct Use {
        int64_t times = 0, train = 0, valid = 0;
    };
    const StatsOptions& options_;
    DataStats out_;
    std::vector<File> files_;
    std::unordered_map<uint64_t, bool> ids_;  // hash -> of the validation part
    std::unordered_map<uint64_t, Use> captions_;
    int64_t shared_captions_ = 0;
    std::vector<Sum> sums_;
    std::vector<float> latent_, text_;
};

}  // namespace

DataStats data_stats(const std::vector<fs::path>& train, const std::vector<fs::path>& valid,
                     const StatsOptions& options) {
    Collector c(options);
    c.open(train, false);
    c.open(valid, true);
    return c.finish();
}

std::string stats_json(const DataStats& s) {
    using Json = nlohmann::ordered_json;
    const auto pairs = [](const auto& map, const char* key) {
        Json out = Json::array();
        for (const auto& [k, n] : map) out.push_back({{key, k}, {"samples", n}});
        return out;
    };
    Json channels = Json::array();
    for (const ChannelStats& c : s.channels) {
        channels.push_back({{"mean", c.mean}, {"std", c.std}, {"min", c.min}, {"max", c.max}});
    }
    Json facts = Json::array();
    for (const LatentFacts& f : s.facts) facts.push_back(Json::parse(facts_json(f)));
    const Json j = {
        {"files", s.files},
        {"empty_files", s.empty_files},
        {"bad_files", s.bad_files},
        {"samples", s.samples},
        {"samples_read", s.read},
        {"bad_samples", s.bad_samples},
        {"shapes", pairs(s.shapes, "shape")},
        {"seconds", pairs(s.seconds, "seconds")},
        {"text_rows", pairs(s.text_rows, "rows")},
        {"text_len", s.text_len},
        {"channels", channels},
        {"latent_values",
         {{"low", ValueCounts::kLow},
          {"high", ValueCounts::kHigh},
          {"counts", s.values.bins},
          {"below", s.values.below},
          {"above", s.values.above},
          {"zeros", s.values.zeros},
          {"not_finite", s.values.not_finite}}},
        {"captions",
         {{"distinct", s.distinct_captions},
          {"empty", s.empty_captions},
          {"most_repeated", s.most_repeated},
          {"most_repeated_caption", s.most_repeated_caption},
          {"longest_bytes", s.longest_caption.size()}}},
        {"ids", {{"repeated", s.repeated_id_count}, {"examples", s.repeated_ids}}},
        {"valid_in_train", s.valid_in_train},
        {"bytes_read_per_used", s.bytes_read_per_used},
        {"facts", facts},
        {"warnings", s.warnings},
    };
    return j.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace vt
