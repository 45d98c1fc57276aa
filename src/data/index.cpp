// SPDX-License-Identifier: MIT
// Shard indexes: their rules, their bytes, their cache.
// Floor 3.
#include "data/index.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fcntl.h>
#include <mutex>
#include <sys/stat.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include "core/check.h"
#include "core/hash.h"
#include "data/index_child.h"

namespace vt {

int64_t size_of(Stored stored) {
    switch (stored) {
        case Stored::kF32:
            return 4;
        case Stored::kBF16:
        case Stored::kF16:
            return 2;
        case Stored::kF64:
            return 8;
    }
    return 0;
}

const char* name_of(Stored stored) {
    switch (stored) {
        case Stored::kF32:
            return "f32";
        case Stored::kBF16:
            return "bf16";
        case Stored::kF16:
            return "f16";
        case Stored::kF64:
            return "f64";
    }
    return "?";
}

static FileStamp stamp_of(const struct stat& st) {
    return {.size = st.st_size,
            .mtime_ns = int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec,
            .inode = st.st_ino};
}

FileStamp stamp_of(const fs::path& path) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) {
        const Fault fault =
            errno == ENOENT || errno == ENOTDIR || errno == EACCES ? Fault::kUser : Fault::kSystem;
        raise(fault, fmt::format("cannot read shard {}: {}", path.string(), std::strerror(errno)),
              "check the path and its permissions");
    }
    if (!S_ISREG(st.st_mode)) {
        raise(Fault::kUser, fmt::format("shard {} is not a regular file", path.string()),
              "name HDF5 files; for a folder write folder/*.h5");
    }
    return stamp_of(st);
}

FileStamp stamp_of(const Fd& fd, const fs::path& path) {
    struct stat st {};
    if (::fstat(fd.get(), &st) != 0) raise_errno("stat", path);
    return stamp_of(st);
}

// --- rules --------------------------------------------------------------------------------------

namespace {

constexpr int64_t kMaxDim = int64_t{1} << 31;      // per latent dim
constexpr int64_t kMaxChannels = 65536;            // bounds mean and std
constexpr int64_t kMaxTextLen = int64_t{1} << 20;  // rows the model sees
constexpr int64_t kMaxTextDim = int64_t{1} << 20;

void rule(bool holds, const std::string& message, const char* hint = "see data/README.md") {
    if (!holds) raise(Fault::kData, message, hint);
}

// a * b for non-negative factors; kData instead of overflow.
int64_t times(int64_t a, int64_t b, const char* what) {
    int64_t out = 0;
    rule(!__builtin_mul_overflow(a, b, &out), fmt::format("the size of {} overflows", what));
    return out;
}

void check_extent(const ByteRange& e, int64_t bytes, int64_t file_size, const char* what) {
    rule(e.bytes == bytes,
         fmt::format("{} takes {} bytes where its shape asks for {}", what, e.bytes, bytes));
    if (bytes == 0) return;  // HDF5 gives empty datasets no address
    rule(e.offset > 0 && e.offset <= file_size && bytes <= file_size - e.offset,
         fmt::format("{} lies at bytes {} + {}, past the file's end at {}", what, e.offset, bytes,
                     file_size),
         "the file is truncated or damaged: copy or encode it again");
}

}  // namespace

void check_facts(const LatentFacts& f) {
    rule(!f.codec.empty(), "attribute codec is empty");
    rule(f.channels >= 1 && f.channels <= kMaxChannels,
         fmt::format("attribute channels = {} is outside 1..{}", f.channels, kMaxChannels));
    for (const int64_t s : f.scale) {
        rule(s >= 1 && s <= 65536, fmt::format("attribute scale holds {}, outside 1..65536", s));
    }
    rule(f.mean.size() == f.std.size(),
         fmt::format("attribute mean has {} entries, std has {}", f.mean.size(), f.std.size()));
    rule(f.mean.size() == static_cast<size_t>(f.channels) || (f.mean.empty() && !f.normalised),
         fmt::format("attribute mean has {} entries for {} channels", f.mean.size(), f.channels),
         "write the per-channel statistics of the raw latents; only raw latents may go without");
    for (size_t c = 0; c < f.mean.size(); ++c) {
        rule(std::isfinite(f.mean[c]) && std::isfinite(f.std[c]) && f.std[c] > 0,
             fmt::format("channel {} has mean {} and std {}; std must be > 0 and both finite", c,
                         f.mean[c], f.std[c]));
    }
    rule(!f.text_encoder.empty(), "attribute text_encoder is empty");
    rule(f.text_dim >= 1 && f.text_dim <= kMaxTextDim,
         fmt::format("attribute text_dim = {} is outside 1..{}", f.text_dim, kMaxTextDim));
    rule(f.text_len >= 1 && f.text_len <= kMaxTextLen,
         fmt::format("attribute text_len = {} is outside 1..{}", f.text_len, kMaxTextLen));
    rule(std::isfinite(f.fps) && f.fps >= 0, fmt::format("attribute fps = {} is not >= 0", f.fps));
}

void check_index(const ShardIndex& x) {
    check_facts(x.facts);
    int64_t elements = 1;
    for (const int64_t d : x.shape) {
        rule(d >= 1 && d <= kMaxDim, fmt::format("latents have a dim of {}", d));
        elements = times(elements, d, "one latent");
    }
    rule(x.shape[0] == x.facts.channels,
         fmt::format("latents have {} channels, attribute channels says {}", x.shape[0],
                     x.facts.channels));
    rule(x.count >= 0 && x.text_rows >= 0, "negative counts");
    const int64_t size = x.stamp.size;
    const int64_t latent = times(elements, size_of(x.latent_type), "one latent");
    check_extent(x.latents, times(latent, x.count, "latents"), size, "latents");
    const int64_t row = x.facts.text_dim * size_of(x.text_type);
    check_extent(x.text, times(row, x.text_rows, "text"), size, "text");
    const int64_t cuts = times(8, x.count + 1, "id_offsets");
    check_extent(x.id_offsets, x.has_ids ? cuts : 0, size, "id_offsets");
    check_extent(x.caption_offsets, x.has_captions ? cuts : 0, size, "caption_offsets");
    check_extent(x.ids, x.ids.bytes, size, "ids");
    check_extent(x.captions, x.captions.bytes, size, "captions");

    const auto n = static_cast<size_t>(x.count);
    rule(x.foreign != 0 || (x.has_checksums && x.has_ids && x.has_captions),
         "checksums, ids and captions are not all there");
    rule(x.checksums.size() == (x.has_checksums ? n : 0),
         fmt::format("checksums has {} entries for {} samples", x.checksums.size(), n));
    rule(x.text_start.size() == n + 1,
         fmt::format("text_offsets has {} entries for {} samples; one more than samples is right",
                     x.text_start.size(), n));
    rule(x.text_start.front() == 0 && x.text_start.back() == x.text_rows,
         fmt::format("text_offsets runs from {} to {}, text has {} rows", x.text_start.front(),
                     x.text_start.back(), x.text_rows));
    for (size_t i = 0; i < n; ++i) {
        const int64_t a = x.text_start[i], b = x.text_start[i + 1];
        // no message is made for the millions that are right
        if (0 <= a && a <= b && b <= x.text_rows && b - a <= x.facts.text_len) continue;
        rule(false, fmt::format("text_offsets gives sample {} the rows [{}, {}); text_len is {}", i,
                                a, b, x.facts.text_len));
    }
    const auto dim = static_cast<size_t>(x.facts.text_dim);
    rule(x.empty_text.size() % dim == 0 &&
             x.empty_text.size() / dim <= static_cast<size_t>(x.facts.text_len),
         fmt::format("empty_text has {} numbers: not at most text_len = {} rows of {}",
                     x.empty_text.size(), x.facts.text_len, dim));
    const bool finite = std::all_of(x.empty_text.begin(), x.empty_text.end(),
                                    [](float v) { return std::isfinite(v); });
    rule(finite, "empty_text is not finite");
}

// --- bytes --------------------------------------------------------------------------------------

namespace {

constexpr std::string_view kMagic = "vtindex3";

struct Put {
    std::string out;
    template <typename T>
    void value(const T& v) {
        static_assert(std::is_trivially_copyable_v<T>);
        out.append(reinterpret_cast<const char*>(&v), sizeof v);
    }
    void text(std::string_view s) {
        value(static_cast<uint64_t>(s.size()));
        out.append(s);
    }
    template <typename T>
    void array(const std::vector<T>& v) {
        value(static_cast<uint64_t>(v.size()));
        out.append(reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T));
    }
};

// Every length is compared with what is left before memory is taken.
struct Take {
    std::string_view in;
    bool ok = true;
    bool bytes(void* to, uint64_t n) {
        if (!ok || n > in.size()) return ok = false;
        if (n > 0) std::memcpy(to, in.data(), n);
        in.remove_prefix(n);
        return true;
    }
    template <typename T>
    void value(T& v) {
        static_assert(std::is_trivially_copyable_v<T>);
        bytes(&v, sizeof v);
    }
    void text(std::string& s) {
        uint64_t n = 0;
        value(n);
        if (!ok || n > in.size()) {
            ok = false;
            return;
        }
        s.assign(in.substr(0, n));
        in.remove_prefix(n);
    }
    template <typename T>
    void array(std::vector<T>& v) {
        uint64_t n = 0;
        value(n);
        if (!ok || n > in.size() / sizeof(T)) {
            ok = false;
            return;
        }
        v.resize(n);
        bytes(v.data(), n * sizeof(T));
    }
};

// One list of the fields for both directions.
template <typename Io, typename Index>
void walk(Io& io, Index& x, std::array<uint8_t, 4>& flags) {
    io.value(x.stamp.size);
    io.value(x.stamp.mtime_ns);
    io.value(x.stamp.inode);
    auto& f = x.facts;
    io.text(f.codec);
    io.value(f.channels);
    io.value(f.scale);
    io.value(flags);
    io.value(x.foreign);
    io.array(f.mean);
    io.array(f.std);
    io.text(f.text_encoder);
    io.value(f.text_dim);
    io.value(f.text_len);
    io.value(f.fps);
    io.value(x.shape);
    io.value(x.count);
    io.value(x.text_rows);
    io.value(x.latent_type);
    io.value(x.text_type);
    for (auto* e : {&x.latents, &x.text, &x.id_offsets, &x.ids, &x.caption_offsets, &x.captions}) {
        io.value(*e);
    }
    io.array(x.text_start);
    io.array(x.checksums);
    io.array(x.empty_text);
}

}  // namespace

std::string encode_index(const ShardIndex& index) {
    Put put;
    put.out = kMagic;
    std::array<uint8_t, 4> flags{index.facts.normalised, index.has_checksums, index.has_ids,
                                 index.has_captions};
    walk(put, index, flags);
    put.value(xxh3(put.out));
    return std::move(put.out);
}

std::optional<ShardIndex> decode_index(std::string_view bytes) {
    if (!bytes.starts_with(kMagic) || bytes.size() < kMagic.size() + 8) return std::nullopt;
    uint64_t sum = 0;
    std::memcpy(&sum, bytes.data() + bytes.size() - 8, 8);
    bytes.remove_suffix(8);
    if (xxh3(bytes) != sum) return std::nullopt;
    Take take{.in = bytes.substr(kMagic.size())};
    ShardIndex x;
    std::array<uint8_t, 4> flags{};
    walk(take, x, flags);
    if (!take.ok || !take.in.empty() || *std::max_element(flags.begin(), flags.end()) > 1 ||
        x.latent_type > Stored::kF64 || x.text_type > Stored::kF64) {
        return std::nullopt;
    }
    x.facts.normalised = flags[0] == 1;
    x.has_checksums = flags[1] == 1;
    x.has_ids = flags[2] == 1;
    x.has_captions = flags[3] == 1;
    try {
        check_index(x);
    } catch (const Error&) {
        return std::nullopt;
    }
    return x;
}

// --- cache --------------------------------------------------------------------------------------

namespace {

// Beside the shard first, hidden so that no glob of shards meets it; then the user's cache folder,
// for shards in folders that cannot be written.
std::vector<fs::path> cache_places(const fs::path& shard) {
    const std::string name = "." + shard.filename().string() + ".vtindex";
    std::vector<fs::path> out{shard.parent_path() / name};
    fs::path home;
    if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && *xdg != '\0') {
        home = xdg;
    } else if (const char* user = std::getenv("HOME"); user != nullptr && *user != '\0') {
        home = fs::path(user) / ".cache";
    }
    if (!home.empty()) {
        std::error_code error;
        const fs::path absolute = fs::absolute(shard, error);
        if (!error) {
            out.push_back(home / "vtrain" / "index" /
                          (hex64(xxh3(absolute.string())) + ".vtindex"));
        }
    }
    return out;
}

std::optional<ShardIndex> cached(const fs::path& shard, const FileStamp& stamp, uint64_t foreign) {
    for (const fs::path& place : cache_places(shard)) {
        std::error_code error;
        if (!fs::is_regular_file(place, error)) continue;
        try {
            std::optional<ShardIndex> x = decode_index(read_file(place));
            if (x && x->stamp == stamp && x->foreign == foreign) return x;
        } catch (const Error&) {
            continue;  // unreadable: made again
        }
    }
    return std::nullopt;
}

// A cache that cannot be written is no error. Not synced: a torn file fails its checksum and is
// made again. The temporary name is unique, since threads and ranks index the same shards.
void write_cache(const fs::path& shard, const std::string& bytes) {
    bool beside = true;
    for (const fs::path& place : cache_places(shard)) {
        std::error_code error;
        if (!beside) fs::create_directories(place.parent_path(), error);
        beside = false;
        std::string temp = place.string() + ".XXXXXX";
        const Fd fd(::mkostemp(temp.data(), O_CLOEXEC));
        if (!fd.open()) continue;
        try {
            write_all(fd, bytes.data(), narrow<int64_t>(bytes.size()), temp);
            (void)::fchmod(fd.get(), 0644);
            if (::rename(temp.c_str(), place.c_str()) == 0) return;
        } catch (const Error&) {
            // full disk: try the next place
        }
        ::unlink(temp.c_str());
    }
}

// Requests to a file server that may be under way at once: the time of 100,000 shards is that of
// their answers, not of the work.
constexpr size_t kRequests = 16;

// work(i) for all i < n, from several threads. Of several errors the one of the lowest i is thrown.
void for_each_file(size_t n, const std::function<void(size_t)>& work) {
    std::atomic<size_t> next{0};
    std::mutex mutex;
    size_t failed = SIZE_MAX;
    std::exception_ptr error;
    const auto run = [&] {
        for (size_t i = 0; (i = next++) < n;) {
            try {
                work(i);
            } catch (...) {
                const std::lock_guard lock(mutex);
                next = n;  // those before i are taken already
                if (i > failed) continue;
                failed = i;
                error = std::current_exception();
            }
        }
    };
    std::vector<std::thread> threads;
    for (size_t i = 1; i < std::min(kRequests, n / 8); ++i) threads.emplace_back(run);
    run();
    for (std::thread& t : threads) t.join();
    if (error) std::rethrow_exception(error);
}

}  // namespace

uint64_t hash_of(const Foreign& foreign) {
    return foreign.empty() ? 0 : std::max<uint64_t>(xxh3(foreign_json(foreign)), 1);
}

std::vector<Indexed> index_files(const std::vector<fs::path>& files, const IndexOptions& options) {
    std::vector<Indexed> out(files.size());
    const uint64_t foreign = hash_of(options.foreign);
    const auto refuse = [](const Error& e) {
        return Indexed{
            .index = std::nullopt, .reason = e.message(), .hint = e.hint(), .fault = e.fault()};
    };
    for_each_file(files.size(), [&](size_t i) {
        try {
            const FileStamp stamp = stamp_of(files[i]);
            if (options.cache) out[i].index = cached(files[i], stamp, foreign);
        } catch (const Error& e) {
            if (e.fault() == Fault::kSystem) throw;
            out[i] = refuse(e);
        }
    });
    std::vector<size_t> todo;
    for (size_t i = 0; i < files.size(); ++i) {
        if (!out[i].reason.empty()) continue;  // it is not there
        if (!out[i].index) todo.push_back(i);
    }
    std::vector<fs::path> ask;
    ask.reserve(todo.size());
    for (const size_t i : todo) ask.push_back(files[i]);
    run_index_children(ask, options, [&](size_t k, Indexed result) {
        const size_t i = todo[k];
        try {
            if (result.index &&
                (result.index->stamp != stamp_of(files[i]) || result.index->foreign != foreign)) {
                result.index.reset();
                result.reason = "the file changed while it was indexed";
                result.hint = "wait until it is written, then start again";
            }
        } catch (const Error& e) {
            result = refuse(e);
        }
        if (result.index && options.cache) write_cache(files[i], encode_index(*result.index));
        out[i] = std::move(result);
    });
    return out;
}

}  // namespace vt
