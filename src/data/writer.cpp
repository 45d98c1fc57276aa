// SPDX-License-Identifier: MIT
// ShardWriter: samples stream into two spool files; close() lays the shard out with its final size
// (a contiguous data set cannot grow), moves the payload in, and publishes it.
// Floor 3.
#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>
#include <unordered_set>

#include "core/check.h"
#include "core/hash.h"
#include "data/h5.h"
#include "data/shard.h"

namespace vt {

namespace {

// A file without a name in `dir`: it is gone when the process is.
Fd spool_in(const fs::path& dir) {
    std::string name = (dir / ".vtspool.XXXXXX").string();
    Fd fd(::mkostemp(name.data(), O_CLOEXEC));
    if (!fd.open()) raise_errno("create a spool file in", dir, "is the folder writable?");
    ::unlink(name.c_str());
    return fd;
}

// All of `from` (bytes long) to `to` at `offset`. The kernel copies, or shares blocks, where it
// can.
void move_in(const Fd& from, int64_t bytes, const Fd& to, int64_t offset, const fs::path& path) {
    off_t at = 0, out = offset;
    while (at < bytes) {
        const ssize_t n =
            ::copy_file_range(from.get(), &at, to.get(), &out, static_cast<size_t>(bytes - at), 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) break;  // not between these file systems: by hand below
    }
    std::vector<char> buffer(at < bytes ? size_t{1} << 20 : 0);
    while (at < bytes) {
        const int64_t n = std::min<int64_t>(bytes - at, static_cast<int64_t>(buffer.size()));
        pread_all(from, buffer.data(), n, at, path);
        for (int64_t done = 0; done < n;) {
            const ssize_t w = ::pwrite(to.get(), buffer.data() + done,
                                       static_cast<size_t>(n - done), offset + at + done);
            if (w < 0 && errno == EINTR) continue;
            if (w <= 0) raise_errno("write", path, "is the disk full?");
            done += w;
        }
        at += n;
    }
}

}  // namespace

struct ShardWriter::Impl {
    fs::path path, temp;
    LatentFacts facts;
    std::array<int64_t, 4> shape;
    Stored stored;
    Fd latents, text;  // spools
    std::vector<int64_t> text_start{0}, id_offsets{0}, caption_offsets{0};
    std::vector<uint64_t> checksums;
    std::string ids, captions, empty;
    std::unordered_set<std::string> seen;  // ids
    std::string bytes;                     // one sample as stored; kept for its capacity
    bool whole = true;                     // no add() failed half-way
    bool closed = false;

    // f32 as stored bytes, appended. kData unless all are finite as stored.
    void store(const std::vector<float>& from, std::string& to, const std::string& what) const {
        const size_t at = to.size();
        to.resize(at + from.size() * static_cast<size_t>(size_of(stored)));
        char* out = to.data() + at;
        bool finite = true;
        if (stored == Stored::kF32) {
            for (const float v : from) finite &= std::isfinite(v);
            if (!from.empty()) std::memcpy(out, from.data(), from.size() * 4);
        } else {
            for (size_t i = 0; i < from.size(); ++i) {
                const bf16 v = to_bf16(from[i]);
                finite &= std::isfinite(to_float(v));
                std::memcpy(out + 2 * i, &v.bits, 2);
            }
        }
        if (!finite) {
            raise(Fault::kData, fmt::format("{}: {} holds an infinity or NaN", path.string(), what),
                  "leave the sample out");
        }
    }

    void check_text(const std::vector<float>& rows, const std::string& what) const {
        const auto dim = static_cast<size_t>(facts.text_dim);
        if (rows.size() % dim != 0 || rows.size() / dim > static_cast<size_t>(facts.text_len)) {
            raise(Fault::kData,
                  fmt::format("{}: {} has {} text numbers: not at most text_len = {} rows of {}",
                              path.string(), what, rows.size(), facts.text_len, dim));
        }
    }
};

ShardWriter::ShardWriter(fs::path path, LatentFacts facts, std::array<int64_t, 4> shape,
                         std::vector<float> empty_caption_text, ShardOptions options)
    : impl_(std::make_unique<Impl>()) {
    Impl& w = *impl_;
    w.path = std::move(path);
    w.facts = std::move(facts);
    w.shape = shape;
    if (options.dtype != DType::kF32 && options.dtype != DType::kBF16) {
        raise(Fault::kUser, fmt::format("shards cannot hold {}", name_of(options.dtype)),
              "f32 or bf16");
    }
    w.stored = options.dtype == DType::kF32 ? Stored::kF32 : Stored::kBF16;
    check_facts(w.facts);
    for (const int64_t d : shape) VT_CHECK(d >= 1, "latent dim {}", d);
    VT_CHECK(shape[0] == w.facts.channels, "{} channels, facts say {}", shape[0], w.facts.channels);
    w.check_text(empty_caption_text, "the empty caption");
    w.store(empty_caption_text, w.empty, "the empty caption's embedding");
    const fs::path dir = w.path.has_parent_path() ? w.path.parent_path() : fs::path(".");
    w.temp = dir / fmt::format(".{}.tmp{}", w.path.filename().string(), ::getpid());
    w.latents = spool_in(dir);
    w.text = spool_in(dir);
}

ShardWriter::~ShardWriter() = default;

int64_t ShardWriter::count() const {
    return static_cast<int64_t>(impl_->checksums.size());
}

void ShardWriter::add(const ShardSample& sample) {
    Impl& w = *impl_;
    VT_CHECK(!w.closed && w.whole, "add() to shard {} after close() or an error", w.path.string());
    const auto elements = static_cast<size_t>(w.shape[0] * w.shape[1] * w.shape[2] * w.shape[3]);
    const std::string what = fmt::format("sample {}", sample.id);
    if (sample.latent.size() != elements) {
        raise(Fault::kData,
              fmt::format("{}: {} has {} latent numbers, the shard's shape has {}", w.path.string(),
                          what, sample.latent.size(), elements),
              "one latent shape per shard");
    }
    w.check_text(sample.text, what);
    if (sample.id.empty() || w.seen.contains(sample.id)) {
        raise(Fault::kData,
              fmt::format("{}: id '{}' is empty or taken", w.path.string(), sample.id),
              "ids are unique inside the data set");
    }
    w.bytes.clear();
    w.store(sample.latent, w.bytes, what);
    const auto latent_bytes = narrow<int64_t>(w.bytes.size());
    w.store(sample.text, w.bytes, what);
    const int64_t text_bytes = narrow<int64_t>(w.bytes.size()) - latent_bytes;

    w.whole = false;  // until everything below is done
    write_all(w.latents, w.bytes.data(), latent_bytes, w.path);
    write_all(w.text, w.bytes.data() + latent_bytes, text_bytes, w.path);
    w.checksums.push_back(xxh3(w.bytes));
    w.text_start.push_back(w.text_start.back() +
                           narrow<int64_t>(sample.text.size()) / w.facts.text_dim);
    w.seen.insert(sample.id);
    w.ids += sample.id;
    w.captions += sample.caption;
    w.id_offsets.push_back(narrow<int64_t>(w.ids.size()));
    w.caption_offsets.push_back(narrow<int64_t>(w.captions.size()));
    w.whole = true;
}

void ShardWriter::close() {
    Impl& w = *impl_;
    VT_CHECK(!w.closed && w.whole, "close() of shard {} twice or after an error", w.path.string());
    w.closed = true;
    try {
        const H5Payload at = h5_create(w.temp, {.facts = w.facts,
                                                .shape = w.shape,
                                                .stored = w.stored,
                                                .count = count(),
                                                .text_start = &w.text_start,
                                                .checksums = &w.checksums,
                                                .id_offsets = &w.id_offsets,
                                                .ids = &w.ids,
                                                .caption_offsets = &w.caption_offsets,
                                                .captions = &w.captions,
                                                .empty_text = &w.empty});
        Fd fd(::open(w.temp.c_str(), O_WRONLY | O_CLOEXEC));
        if (!fd.open()) raise_errno("open", w.temp);
        move_in(w.latents, at.latents.bytes, fd, at.latents.offset, w.temp);
        move_in(w.text, at.text.bytes, fd, at.text.offset, w.temp);
        fsync_file(fd, w.temp);
        fd.close(w.temp);
        if (::rename(w.temp.c_str(), w.path.c_str()) != 0) raise_errno("rename into", w.path);
    } catch (...) {
        ::unlink(w.temp.c_str());
        throw;
    }
    fsync_dir(w.path.parent_path());
}

}  // namespace vt
