// SPDX-License-Identifier: MIT
#include "ckpt/load.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <set>

#include "ckpt/foreign.h"
#include "ckpt/manifest.h"
#include "ckpt/overlap.h"
#include "ckpt/run_dir.h"
#include "comm/agree.h"
#include "core/hash.h"
#include "core/log.h"

namespace vt {

namespace {

constexpr int64_t kPieceBytes = int64_t{4} << 20;

// The payload files of one checkpoint, opened when first read.
class Payload {
  public:
    Payload(const fs::path& dir, const Manifest& manifest)
        : dir_(dir), manifest_(manifest), fds_(manifest.files.size()) {}

    /// Calls use(data, bytes) for [begin, end) of the file piece by piece; returns the checksum.
    template <typename Use>
    uint64_t stream(int64_t file, int64_t begin, int64_t end, const Use& use) {
        const ManifestFile& f = manifest_.files[static_cast<size_t>(file)];
        const fs::path path = dir_ / f.name;
        Fd& fd = fds_[static_cast<size_t>(file)];
        if (!fd.open()) fd = open_read(path);
        buffer_.resize(static_cast<size_t>(kPieceBytes));
        Xxh3Stream hash;
        for (int64_t at = begin; at < end; at += kPieceBytes) {
            const int64_t n = std::min(kPieceBytes, end - at);
            pread_all(fd, buffer_.data(), n, at, path);
            hash.update(buffer_.data(), n);
            use(static_cast<const char*>(buffer_.data()), n);
            bytes_ += n;
        }
        return hash.digest();
    }
    [[noreturn]] void damaged(int64_t file, const std::string& what, uint64_t want,
                              uint64_t have) const {
        raise(Fault::kData,
              fmt::format("{}: {} is damaged: checksum {}, its bytes give {}",
                          (dir_ / manifest_.files[static_cast<size_t>(file)].name).string(), what,
                          hex64(want), hex64(have)),
              "resume from another checkpoint");
    }
    [[nodiscard]] int64_t bytes_read() const { return bytes_; }

  private:
    const fs::path& dir_;
    const Manifest& manifest_;
    std::vector<Fd> fds_;
    std::vector<char> buffer_;
    int64_t bytes_ = 0;
};

// Fills one state from the extents that touch it.
void fill(const StateTensor& want, const ManifestTensor& have, Payload& payload) {
    const int64_t width = size_of(have.dtype);
    int64_t filled = 0;
    for (const Extent& e : have.extents) {
        const Overlap map(want.global, e.rect, want.rect, want.flat_begin, want.flat_end);
        if (map.count(e.flat_begin, e.flat_end) == 0) continue;
        int64_t at = e.flat_begin;
        const uint64_t hash = payload.stream(
            e.file, e.offset, e.offset + e.numel() * width, [&](const char* data, int64_t bytes) {
                const int64_t n = bytes / width;
                filled += map.copy(data, at, at + n, static_cast<char*>(want.local.data), width);
                at += n;
            });
        if (hash != e.xxh3) {
            payload.damaged(e.file, fmt::format("tensor '{}'", want.name), e.xxh3, hash);
        }
    }
    VT_CHECK(filled == want.local.numel(), "'{}': {} of {} elements filled", want.name, filled,
             want.local.numel());
}

// A damaged header would not disturb reading by offsets, but a checkpoint is whole or refused.
void check_headers(const Manifest& m, Payload& payload) {
    const auto nothing = [](const char*, int64_t) {};
    for (size_t i = 0; i < m.files.size(); ++i) {
        const ManifestFile& f = m.files[i];
        const auto file = static_cast<int64_t>(i);
        const uint64_t hash = payload.stream(file, 0, f.header_bytes, nothing);
        if (hash != f.header_xxh3) payload.damaged(file, "the header", f.header_xxh3, hash);
    }
}

LoadReport load_from(const fs::path& dir, const Manifest& m,
                     const std::vector<StateTensor>& states) {
    LoadReport report;
    Payload payload(dir, m);
    std::vector<StateTensor> wanted;
    std::set<std::string> asked;
    // All names, shapes and dtypes first: nothing is overwritten if they do not fit.
    for (const StateTensor& state : states) {
        StateTensor t = resolved(state);
        asked.insert(t.name);
        const auto it = m.tensors.find(t.name);
        if (it == m.tensors.end()) {
            if (!t.optional) {
                raise(Fault::kData, fmt::format("{} has no tensor '{}'", dir.string(), t.name),
                      "is it a checkpoint of this model?");
            }
            report.missing.push_back(t.name);
            continue;
        }
        const ManifestTensor& have = it->second;
        if (have.shape != t.global || have.dtype != t.local.dtype) {
            raise(Fault::kData,
                  fmt::format("{}: tensor '{}' is {} {}, the run needs {} {}", dir.string(), t.name,
                              name_of(have.dtype), have.shape.str(), name_of(t.local.dtype),
                              t.global.str()),
                  "is it a checkpoint of this model?");
        }
        wanted.push_back(std::move(t));
    }
    check_headers(m, payload);
    const int64_t headers = payload.bytes_read();
    for (const StateTensor& t : wanted) fill(t, m.tensors.at(t.name), payload);
    for (const auto& [name, t] : m.tensors) {
        if (asked.count(name) == 0) report.unused.push_back(name);
    }
    report.bytes_read = payload.bytes_read() - headers;
    return report;
}

// The first good one of `dirs` from `next` on; next moves behind it.
std::optional<fs::path> next_good(const std::vector<StepDir>& dirs, size_t& next) {
    while (next < dirs.size()) {
        const StepDir& d = dirs[next++];
        try {
            (void)read_manifest(d.path);
        } catch (const Error& e) {
            if (e.fault() == Fault::kBug) throw;
            warn("checkpoint of step {} is not usable: {}", d.step, e.message());
            continue;
        }
        if (d.step != dirs[0].step) {
            warn("falling back to the checkpoint of step {}: {} steps are lost", d.step,
                 dirs[0].step - d.step);
        }
        return d.path;
    }
    return std::nullopt;
}

}  // namespace

std::optional<fs::path> find_latest(const fs::path& run_dir) {
    size_t next = 0;
    return next_good(step_dirs(run_dir), next);
}

fs::path checkpoint_at(const fs::path& path) {
    std::error_code ignored;
    if (fs::exists(path / kManifestName, ignored)) return path;
    const bool folder = fs::is_directory(path, ignored);
    const std::optional<fs::path> latest = folder ? find_latest(path) : std::nullopt;
    if (latest) return *latest;
    if (folder && !step_dirs(path).empty()) {
        raise(Fault::kData,
              fmt::format("{}: none of the checkpoints there is usable", path.string()),
              "see the warnings above");
    }
    if (const std::optional<ForeignKind> kind = foreign_kind(path)) {
        raise(Fault::kUser,
              fmt::format("{} is {}, not a checkpoint of vtrain", path.string(), kind->what),
              kind->hint);
    }
    raise(Fault::kUser, fmt::format("{}: no checkpoint there", path.string()),
          "give a step-N folder, or a run's folder that holds some");
}

CheckpointInfo read_info(const fs::path& dir) {
    return read_manifest(dir).info;
}

std::vector<std::string> tensor_names(const fs::path& dir) {
    std::vector<std::string> names;
    for (const auto& [name, t] : read_manifest(dir).tensors) names.push_back(name);
    return names;
}

LoadReport load(const fs::path& dir, const std::vector<StateTensor>& states) {
    return load_from(dir, read_manifest(dir), states);
}

void verify(const fs::path& dir) {
    const Manifest m = read_manifest(dir);
    Payload payload(dir, m);
    check_headers(m, payload);
    const auto nothing = [](const char*, int64_t) {};
    for (const auto& [name, t] : m.tensors) {
        for (const Extent& e : t.extents) {
            const uint64_t hash =
                payload.stream(e.file, e.offset, e.offset + e.numel() * size_of(t.dtype), nothing);
            if (hash != e.xxh3) {
                payload.damaged(e.file, fmt::format("tensor '{}'", name), e.xxh3, hash);
            }
        }
    }
}

struct CheckpointReader::Impl {
    fs::path dir;
    Manifest manifest;
    Payload payload;
    explicit Impl(fs::path d)
        : dir(std::move(d)), manifest(read_manifest(dir)), payload(dir, manifest) {}
};

CheckpointReader::CheckpointReader(fs::path dir) : impl_(std::make_unique<Impl>(std::move(dir))) {
    check_headers(impl_->manifest, impl_->payload);
}
CheckpointReader::~CheckpointReader() = default;

const Manifest& CheckpointReader::manifest() const {
    return impl_->manifest;
}

void CheckpointReader::read(const std::string& name, Tensor out) const {
    const auto it = impl_->manifest.tensors.find(name);
    if (it == impl_->manifest.tensors.end()) {
        raise(Fault::kData, fmt::format("{} has no tensor '{}'", impl_->dir.string(), name));
    }
    const ManifestTensor& have = it->second;
    if (have.shape != out.shape || have.dtype != out.dtype) {
        raise(Fault::kData, fmt::format("{}: tensor '{}' is {} {}, wanted is {} {}",
                                        impl_->dir.string(), name, name_of(have.dtype),
                                        have.shape.str(), name_of(out.dtype), out.shape.str()));
    }
    fill(resolved({.name = name, .global = out.shape, .local = out}), have, impl_->payload);
}

std::optional<Loaded> load_latest(const fs::path& run_dir, const std::vector<StateTensor>& states,
                                  Group& world,
                                  const std::function<void(const CheckpointInfo&)>& accept) {
    std::vector<StepDir> dirs;
    size_t next = 0;
    if (world.rank() == 0) dirs = step_dirs(run_dir);
    for (;;) {
        std::string choice;
        agree(world, "choose a checkpoint", [&] {
            if (world.rank() != 0 || dirs.empty()) return;
            const auto good = next_good(dirs, next);
            if (!good) {
                raise(Fault::kData,
                      fmt::format("none of the {} checkpoints in {} is usable", dirs.size(),
                                  run_dir.string()),
                      "see the warnings above; checkpoint.resume = \"none\" starts anew");
            }
            choice = good->string();
        });
        choice = broadcast_text(world, choice);
        if (choice.empty()) return std::nullopt;
        Loaded out;
        out.dir = choice;
        // Refusals come before anything is read, and are not a reason to try an older one.
        Manifest m;
        bool damaged = false;
        try {
            agree(world, "read a checkpoint", [&] { m = read_manifest(out.dir); });
        } catch (const Error& e) {
            if (e.fault() != Fault::kData && e.fault() != Fault::kSystem) throw;
            damaged = true;
            if (world.rank() == 0) warn("{}", e.message());
        }
        if (damaged) continue;
        out.info = m.info;
        if (accept) agree(world, "accept a checkpoint", [&] { accept(out.info); });
        try {
            agree(world, "load a checkpoint", [&] { out.report = load_from(out.dir, m, states); });
            return out;
        } catch (const Error& e) {
            // an unreadable block is damage like any other
            if (e.fault() != Fault::kData && e.fault() != Fault::kSystem) throw;
            if (world.rank() == 0) warn("{}", e.message());
        }
    }
}

}  // namespace vt
