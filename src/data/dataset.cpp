// SPDX-License-Identifier: MIT
// Dataset: many shards as sources of numbered samples.
// Floor 3.
#include <algorithm>
#include <cerrno>
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
#include "core/io_error.h"
#include "core/log.h"
#include "data/agree.h"
#include "data/index.h"
#include "data/loader.h"
#include "data/shard_read.h"
#include "data/stats.h"

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

// Shared with a reader that may be left behind in a call on it, so it has its own path.
struct Opened {
    Fd fd;
    fs::path path;
};

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

    std::shared_ptr<const Opened> get(size_t file, const fs::path& path, const FileStamp& stamp,
                                      ReadWatch* watch) {
        {
            const std::lock_guard lock(mutex_);
            if (open_[file]) return open_[file];
        }
        // opened outside the lock: a slow server must not hold up readers of other files
        const auto fd = std::make_shared<Opened>();
        fd->path = path;
        fd->fd = open_shard(fd->path, stamp, watch);
        const std::lock_guard lock(mutex_);
        if (open_[file]) return open_[file];
        size_t& slot = ring_[next_];
        next_ = (next_ + 1) % ring_.size();
        if (slot != kNone) open_[slot].reset();
        slot = file;
        open_[file] = fd;
        return fd;
    }

    // The next get() opens it anew.
    void forget(size_t file, const std::shared_ptr<const Opened>& fd) {
        const std::lock_guard lock(mutex_);
        if (open_[file] == fd) open_[file].reset();
    }

  private:
    static constexpr size_t kNone = SIZE_MAX;
    std::mutex mutex_;
    std::vector<std::shared_ptr<const Opened>> open_;  // by file
    std::vector<size_t> ring_;                         // files in order of opening
    size_t limit_ = 0, next_ = 0;
};

struct File {
    fs::path path;
    ShardIndex index;  // of all but the first file, facts hold sizes only
};

struct Source {
    double weight = 1;
    std::string name;
    std::vector<size_t> files;   // into the list of all files
    std::vector<int64_t> begin;  // first sample of each, and one past the last
};

// 100,000 shards need not keep 100,000 copies of what they agree on.
void drop_copies(ShardIndex& x) {
    LatentFacts sizes;
    sizes.channels = x.facts.channels;
    sizes.text_dim = x.facts.text_dim;
    sizes.text_len = x.facts.text_len;
    x.facts = std::move(sizes);
    x.empty_text = {};
}

class ShardSet final : public Dataset {
  public:
    ShardSet(std::vector<File> files, std::vector<Source> sources)
        : files_(std::move(files)), sources_(std::move(sources)), open_(files_.size()) {
        std::set<std::array<int64_t, 4>> shapes;
        for (const File& f : files_) shapes.insert(f.index.shape);
        shapes_.assign(shapes.begin(), shapes.end());
        fingerprint_ = compute_fingerprint();
        for (size_t i = 1; i < files_.size(); ++i) drop_copies(files_[i].index);
    }

    const LatentFacts& facts() const override { return files_.front().index.facts; }
    int num_sources() const override { return static_cast<int>(sources_.size()); }
    int64_t source_size(int source) const override { return at(source).begin.back(); }
    double source_weight(int source) const override { return at(source).weight; }
    std::string source_name(int source) const override { return at(source).name; }

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

    std::string sample_place(int source, int64_t index) const override {
        const Sample s = sample(source, index);
        return fmt::format("{}, row {}", file(s).path.string(), s.row);
    }
    std::string sample_id(int source, int64_t index) const override {
        return sample_id_watched(source, index, nullptr);
    }
    std::string sample_id_watched(int source, int64_t index, ReadWatch* watch) const override {
        const Sample s = sample(source, index);
        const auto opened = open(s, watch);
        return read_id(opened->fd, opened->path, file(s).index, s.row, watch);
    }

    std::string caption(int source, int64_t index) const override {
        const Sample s = sample(source, index);
        const auto opened = open(s, nullptr);
        return read_caption(opened->fd, opened->path, file(s).index, s.row);
    }

    std::vector<std::array<int64_t, 4>> shapes() const override { return shapes_; }
    uint64_t fingerprint() const override { return fingerprint_; }

    void read(int source, int64_t index, Tensor latent, Tensor text) const override {
        read_watched(source, index, latent, text, nullptr);
    }

    void read_watched(int source, int64_t index, Tensor latent, Tensor text,
                      ReadWatch* watch) const override {
        const Sample s = sample(source, index);
        const File& f = file(s);
        if (watch != nullptr) watch->look_at(f.path.native());
        std::shared_ptr<const Opened> o;
        const auto fault = [&](const std::string& why, int number) {
            if (o) open_.forget(static_cast<size_t>(s.file), o);
            return FileFault(why, s.file, f.index.count, number);
        };
        try {
            o = open(s, watch);
            read_twice(*o, f, s.row, latent, text, watch);
        } catch (const IoError& e) {
            // the machine's limits say nothing of the file
            if (e.number() == EMFILE || e.number() == ENFILE || e.number() == ENOMEM) throw;
            throw fault(e.message(), e.number());
        } catch (const Error& e) {
            if (e.fault() != Fault::kData) throw;
            if (!o) throw fault(e.message(), 0);
            if (changed(*o, f, watch)) {
                throw fault(e.message() + " (the file changed while the run reads it)", 0);
            }
            throw;
        }
    }

    std::vector<ShardOf> shards() const {
        std::vector<ShardOf> out;
        for (const Source& s : sources_) {
            for (const size_t i : s.files)
                out.push_back({&files_[i].path, &s.name, &files_[i].index});
        }
        return out;
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
    std::shared_ptr<const Opened> open(const Sample& s, ReadWatch* watch) const {
        return open_.get(static_cast<size_t>(s.file), file(s).path, file(s).index.stamp, watch);
    }

    static bool changed(const Opened& o, const File& f, ReadWatch* watch) {
        FileStamp now;
        watched(watch, [&] { now = stamp_of(o.fd, o.path); });
        return now != f.index.stamp;
    }

    // Wrong bytes of a file that did not change may have come about on the way: they are asked for
    // once more, past the page cache.
    static void read_twice(const Opened& o, const File& f, int64_t row, Tensor latent, Tensor text,
                           ReadWatch* watch) {
        try {
            return read_sample(o.fd, o.path, f.index, row, latent, text, watch);
        } catch (const Error& e) {
            if (e.fault() != Fault::kData || changed(o, f, watch)) throw;
        }
        const ShardIndex& x = f.index;
        const int64_t bytes = x.latent_elements() * size_of(x.latent_type);
        watched(watch, [&] {
            ::posix_fadvise(o.fd.get(), x.latents.offset + row * bytes, bytes, POSIX_FADV_DONTNEED);
        });
        read_sample(o.fd, o.path, x, row, latent, text, watch);
        warn(
            "{}, row {}: the first read gave wrong bytes, the second the right ones: is the "
            "memory or the network to be trusted?",
            o.path.string(), row);
    }

    uint64_t compute_fingerprint() const {
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

    std::vector<File> files_;
    std::vector<Source> sources_;
    std::vector<std::array<int64_t, 4>> shapes_;
    uint64_t fingerprint_ = 0;
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

void warn_of_waste(const std::vector<File>& files) {
    constexpr double kMost = 1.5;  // bytes read over bytes needed
    const auto wasteful = [](const File& f) { return read_ratio(f.index) > kMost; };
    const auto first = std::find_if(files.begin(), files.end(), wasteful);
    if (first == files.end()) return;
    warn(
        "{} shard(s) take more than {} times the bytes their numbers need, the first is {}; "
        "`vtrain "
        "data repack --dtype f32` (or bf16) makes reading as much cheaper",
        std::count_if(first, files.end(), wasteful), kMost, first->path.string());
}

// Every bad file in one go: who has a thousand of them would rather not start a thousand times.
[[noreturn]] void refuse_bad(const std::vector<fs::path>& paths, const std::vector<Indexed>& got) {
    constexpr int64_t kNamed = 100;
    std::string message;
    std::vector<std::string> hints;
    int64_t bad = 0, missing = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        if (got[i].index) continue;
        if (got[i].fault == Fault::kUser) ++missing;
        if (++bad > kNamed) continue;
        message += fmt::format("{}{}: {}", bad > 1 ? "\n  " : "", paths[i].string(), got[i].reason);
        if (std::find(hints.begin(), hints.end(), got[i].hint) == hints.end()) {
            hints.push_back(got[i].hint);
        }
    }
    if (bad > kNamed) message += fmt::format("\n  and {} more", bad - kNamed);
    std::string hint;
    for (const std::string& h : hints) hint += (hint.empty() ? "" : "; or ") + h;
    raise(missing == bad ? Fault::kUser : Fault::kData,
          fmt::format("{} bad shard{}: {}{}", bad, bad > 1 ? "s" : "", bad > 1 ? "\n  " : "",
                      message),
          hint);
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
        Source source{.weight = spec.weight, .name = spec.name, .files = {}, .begin = {0}};
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
    warn_of_waste(files);
    std::vector<ShardOf> all;
    for (const Source& source : sources) {
        for (const size_t i : source.files)
            all.push_back({&files[i].path, &source.name, &files[i].index});
    }
    require_agreement(all);
    warn_twice(all);
    return std::make_unique<ShardSet>(std::move(files), std::move(sources));
}

FileFault::FileFault(std::string message, int32_t file, int64_t samples, int number)
    : Error(number == 0 || number == ENOENT || number == ENOTDIR || number == EACCES ||
                    number == EPERM || number == ELOOP || number == EISDIR || number == ENAMETOOLONG
                ? Fault::kData
                : Fault::kSystem,
            std::move(message), {}, Where::here()),
      file_(file),
      samples_(samples) {}

std::string Dataset::source_name(int source) const {
    return fmt::format("source {}", source);
}

std::string Dataset::sample_place(int source, int64_t index) const {
    return fmt::format("{}, sample {}", source_name(source), index);
}

void Dataset::read_watched(int source, int64_t index, Tensor latent, Tensor text,
                           ReadWatch* /*watch*/) const {
    read(source, index, latent, text);
}

std::string Dataset::sample_id_watched(int source, int64_t index, ReadWatch* /*watch*/) const {
    return sample_id(source, index);
}

void check_held_out(const Dataset& train, const Dataset& valid) {
    const auto* a = dynamic_cast<const ShardSet*>(&train);
    const auto* b = dynamic_cast<const ShardSet*>(&valid);
    VT_CHECK(a != nullptr && b != nullptr, "these data sets have no shards");
    const std::vector<ShardOf> trained = a->shards(), held_out = b->shards();
    require_agreement({trained.front(), held_out.front()});  // each agrees with its own others
    warn_leak(trained, held_out);
}

}  // namespace vt
