// SPDX-License-Identifier: MIT
// Dataset: many shards as sources of numbered samples.
// Floor 3.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <glob.h>
#include <map>
#include <mutex>
#include <set>
#include <sys/resource.h>

#include <climits>

#include "core/check.h"
#include "core/hash.h"
#include "core/log.h"
#include "data/index.h"
#include "data/loader.h"
#include "data/shard_read.h"

namespace vt {

std::vector<fs::path> expand_globs(const std::string& pattern, const fs::path& base_dir) {
    if (pattern.empty()) raise(Fault::kUser, "a data path is empty", "name a file or a glob");
    std::string full = pattern;
    if (pattern.front() != '/' && !base_dir.empty()) {
        full.clear();
        for (const char c : base_dir.string()) {  // the folder's own name is no pattern
            if (std::strchr("*?[]\\", c) != nullptr) full += '\\';
            full += c;
        }
        if (full.back() != '/') full += '/';
        full += pattern;
    }
    glob_t found{};
    const int code = ::glob(full.c_str(), GLOB_NOSORT, nullptr, &found);
    std::vector<fs::path> out;
    for (size_t i = 0; code == 0 && i < found.gl_pathc; ++i) out.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (code == GLOB_NOSPACE) raise(Fault::kSystem, fmt::format("out of memory in {}", full));
    if (out.empty()) {
        raise(Fault::kUser, fmt::format("no file matches '{}'", full),
              "a relative path starts at the config file's folder, in --set at the working one");
    }
    for (const fs::path& p : out) {
        std::error_code error;
        if (fs::is_directory(p, error)) {
            raise(Fault::kUser, fmt::format("'{}' matches the folder {}", pattern, p.string()),
                  fmt::format("write {}/*.h5", pattern));
        }
    }
    std::sort(out.begin(), out.end(),
              [](const fs::path& a, const fs::path& b) { return a.native() < b.native(); });
    return out;
}

namespace {

// Open descriptors, so that a sample costs no open(); bounded, since a data set may have more
// shards than a process may have files. The oldest is forgotten first; readers that still hold it
// keep it open.
class OpenFiles {
  public:
    explicit OpenFiles(size_t files) : open_(files) {
        rlimit r{};
        const bool known = ::getrlimit(RLIMIT_NOFILE, &r) == 0;
        limit_ = known ? std::clamp<size_t>(r.rlim_cur / 4, 16, 1024) : 64;
        ring_.assign(std::min(limit_, files), kNone);
    }

    std::shared_ptr<const Fd> get(size_t file, const fs::path& path, const FileStamp& stamp) {
        {
            const std::lock_guard lock(mutex_);
            if (open_[file]) return open_[file];
        }
        // opened outside the lock: a slow server must not hold up readers of other files
        auto fd = std::make_shared<const Fd>(open_shard(path, stamp));
        const std::lock_guard lock(mutex_);
        if (open_[file]) return open_[file];
        size_t& slot = ring_[next_];
        next_ = (next_ + 1) % ring_.size();
        if (slot != kNone) open_[slot].reset();
        slot = file;
        open_[file] = fd;
        return fd;
    }

  private:
    static constexpr size_t kNone = SIZE_MAX;
    std::mutex mutex_;
    std::vector<std::shared_ptr<const Fd>> open_;  // by file
    std::vector<size_t> ring_;                     // files in order of opening
    size_t limit_ = 0, next_ = 0;
};

struct File {
    fs::path path;
    ShardIndex index;
};

struct Source {
    double weight = 1;
    std::vector<size_t> files;   // into the list of all files
    std::vector<int64_t> begin;  // first sample of each, and one past the last
};

std::string show(const std::vector<double>& v) {
    std::string out = "(";
    for (size_t i = 0; i < v.size() && i < 4; ++i) out += fmt::format("{}{}", i ? ", " : "", v[i]);
    return out + (v.size() > 4 ? ", ...)" : ")");
}

// The first fact on which two shards differ, or "".
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

// Shards may store the same embedding at different widths, so bfloat16's roundoff is allowed
// (twice: it may have been rounded by way of another format).
bool same_text(const std::vector<float>& a, const std::vector<float>& b) {
    if (a.size() != b.size()) return false;
    const auto tol = static_cast<float>(2 * unit_roundoff(DType::kBF16));
    for (size_t i = 0; i < a.size(); ++i) {
        if (std::fabs(a[i] - b[i]) > tol * std::max(std::fabs(a[i]), std::fabs(b[i]))) return false;
    }
    return true;
}

class ShardSet final : public Dataset {
  public:
    ShardSet(std::vector<File> files, std::vector<Source> sources)
        : files_(std::move(files)), sources_(std::move(sources)), open_(files_.size()) {}

    const LatentFacts& facts() const override { return files_.front().index.facts; }
    int num_sources() const override { return static_cast<int>(sources_.size()); }
    int64_t source_size(int source) const override { return at(source).begin.back(); }
    double source_weight(int source) const override { return at(source).weight; }

    Sample sample(int source, int64_t index) const override {
        const Source& s = at(source);
        VT_CHECK(0 <= index && index < s.begin.back(), "sample {} of {}", index, s.begin.back());
        const auto after = std::upper_bound(s.begin.begin(), s.begin.end(), index);
        const auto k = static_cast<size_t>(after - s.begin.begin()) - 1;
        return {.source = source,
                .file = narrow<int32_t>(s.files[k]),
                .row = index - s.begin[k],
                .shape = files_[s.files[k]].index.shape};
    }

    std::string sample_id(int source, int64_t index) const override {
        const Sample s = sample(source, index);
        const File& f = file(s);
        return read_id(*fd(s), f.path, f.index, s.row);
    }

    std::string caption(int source, int64_t index) const override {
        const Sample s = sample(source, index);
        const File& f = file(s);
        return read_caption(*fd(s), f.path, f.index, s.row);
    }

    std::vector<std::array<int64_t, 4>> shapes() const override {
        std::set<std::array<int64_t, 4>> out;
        for (const File& f : files_) out.insert(f.index.shape);
        return {out.begin(), out.end()};
    }

    uint64_t fingerprint() const override {
        Xxh3Stream h;
        const auto value = [&](const auto& v) { h.update(&v, sizeof v); };
        const auto text = [&](const std::string& s) {
            value(s.size());
            h.update(s.data(), static_cast<int64_t>(s.size()));
        };
        const auto array = [&](const auto& v) {
            value(v.size());
            h.update(v.data(), static_cast<int64_t>(v.size() * sizeof v[0]));
        };
        const LatentFacts& f = facts();
        text(f.codec);
        value(f.channels);
        value(f.scale);
        value(f.normalised);
        array(f.mean);
        array(f.std);
        text(f.text_encoder);
        value(f.text_dim);
        value(f.text_len);
        value(f.fps);
        array(files_.front().index.empty_text);
        for (const Source& s : sources_) {
            value(s.weight);
            value(s.files.size());
            for (const size_t i : s.files) {
                const ShardIndex& x = files_[i].index;
                text(files_[i].path.filename().string());  // a data set may move as a whole
                value(x.stamp.size);
                value(x.shape);
                value(x.count);
                array(x.checksums);
            }
        }
        return h.digest();
    }

    void read(int source, int64_t index, Tensor latent, Tensor text) const override {
        const Sample s = sample(source, index);
        const File& f = file(s);
        read_sample(*fd(s), f.path, f.index, s.row, latent, text);
    }

    void read_empty_text(Tensor text) const override {
        const LatentFacts& f = facts();
        const std::vector<float>& from = files_.front().index.empty_text;
        VT_CHECK((text.shape == Shape{f.text_len, f.text_dim}), "text is {}", text.shape.str());
        VT_CHECK(text.dtype == DType::kF32 || text.dtype == DType::kBF16, "text is {}",
                 name_of(text.dtype));
        std::memset(text.data, 0, static_cast<size_t>(text.bytes()));
        if (text.dtype == DType::kF32) {
            std::copy(from.begin(), from.end(), text.as<float>());
        } else {
            std::transform(from.begin(), from.end(), text.as<bf16>(), to_bf16);
        }
    }

  private:
    const Source& at(int source) const {
        VT_CHECK(0 <= source && source < num_sources(), "source {} of {}", source, num_sources());
        return sources_[static_cast<size_t>(source)];
    }
    const File& file(const Sample& s) const { return files_[static_cast<size_t>(s.file)]; }
    std::shared_ptr<const Fd> fd(const Sample& s) const {
        return open_.get(static_cast<size_t>(s.file), file(s).path, file(s).index.stamp);
    }

    std::vector<File> files_;
    std::vector<Source> sources_;
    mutable OpenFiles open_;
};

void check_sources(const std::vector<SourceSpec>& specs) {
    if (specs.empty()) raise(Fault::kUser, "no data source is given", "set data.train");
    double total = 0;
    for (const SourceSpec& s : specs) {
        if (!std::isfinite(s.weight) || s.weight < 0) {
            raise(Fault::kUser, fmt::format("data source '{}' has weight {}", s.name, s.weight),
                  "weights are shares of samples, >= 0");
        }
        if (s.files.empty()) raise(Fault::kUser, fmt::format("data source '{}' is empty", s.name));
        total += s.weight;
    }
    if (total <= 0 || !std::isfinite(total)) {
        raise(Fault::kUser, fmt::format("the weights of all data sources sum to {}", total),
              "give at least one a weight above 0");
    }
}

[[noreturn]] void refuse_bad(const std::vector<fs::path>& paths, const std::vector<Indexed>& got) {
    constexpr int kNamed = 8;
    std::string message, hint;
    int64_t bad = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        if (got[i].index || ++bad > kNamed) continue;
        message += fmt::format("{}{}: {}", bad > 1 ? "; " : "", paths[i].string(), got[i].reason);
        if (hint.empty()) hint = got[i].hint;
    }
    if (bad > kNamed) message += fmt::format("; and {} more", bad - kNamed);
    raise(Fault::kData, fmt::format("{} bad shard{}: {}", bad, bad > 1 ? "s" : "", message), hint);
}

}  // namespace

std::unique_ptr<Dataset> Dataset::open(const std::vector<SourceSpec>& specs,
                                       const IndexOptions& options) {
    check_sources(specs);
    std::vector<fs::path> paths;  // of all sources, each file once per mention
    for (const SourceSpec& s : specs) paths.insert(paths.end(), s.files.begin(), s.files.end());
    std::vector<Indexed> got = index_files(paths, options);
    for (const Indexed& g : got) {
        if (!g.index) refuse_bad(paths, got);
    }

    std::vector<File> files;
    std::vector<Source> sources;
    std::vector<fs::path> empty;
    size_t at = 0;
    for (const SourceSpec& spec : specs) {
        Source source{.weight = spec.weight, .files = {}, .begin = {0}};
        for (size_t i = 0; i < spec.files.size(); ++i, ++at) {
            ShardIndex& x = *got[at].index;
            if (x.count == 0) {
                empty.push_back(paths[at]);
                continue;
            }
            source.files.push_back(files.size());
            source.begin.push_back(source.begin.back() + x.count);
            files.push_back({.path = paths[at], .index = std::move(x)});
        }
        if (source.begin.back() == 0) {
            raise(Fault::kData, fmt::format("data source '{}' has no sample", spec.name),
                  "all its shards are empty");
        }
        sources.push_back(std::move(source));
    }
    if (!empty.empty()) {
        warn("{} shard{} without samples skipped, the first is {}", empty.size(),
             empty.size() > 1 ? "s" : "", empty.front().string());
    }
    const File& first = files.front();
    for (const File& f : files) {
        std::string why = difference(first.index.facts, f.index.facts);
        if (why.empty() && !same_text(first.index.empty_text, f.index.empty_text)) {
            why = "the empty caption's embedding";
        }
        if (!why.empty()) {
            raise(
                Fault::kData,
                fmt::format("{} and {} disagree on {}", first.path.string(), f.path.string(), why),
                "latents of one run come from one codec, statistics and text encoder: encode "
                "again, or leave one out");
        }
    }
    return std::make_unique<ShardSet>(std::move(files), std::move(sources));
}

}  // namespace vt
