// SPDX-License-Identifier: MIT
// Data sets of many shards and many samples, and file names of every kind. With VTRAIN_TEST_FULL=1
// ten million samples and a hundred thousand shards, else a hundredth of that.
#include <chrono>
#include <cstdlib>
#include <unistd.h>

#include <doctest/doctest.h>

#include "core/check.h"
#include "prof/machine.h"
#include "tests/data/running.h"

using namespace vt;
using namespace vt::test;

namespace {

bool full() {
    const char* set = std::getenv("VTRAIN_TEST_FULL");
    return set != nullptr && std::string(set) == "1";
}

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A shard without payload: a file of holes, and beside it the index a child would have written.
fs::path hollow_shard(const fs::path& path, int64_t count, uint64_t tag) {
    constexpr int64_t kRows = 3;
    ShardIndex x;
    x.facts = small_facts(16);
    x.facts.text_dim = 64;
    x.shape = {16, 2, 8, 8};
    x.count = count;
    x.text_rows = kRows * count;
    int64_t at = 4096;
    const auto place = [&](int64_t bytes) {
        const ByteRange out{.offset = at, .bytes = bytes};
        at += bytes;
        return out;
    };
    x.latent_type = x.text_type = Stored::kBF16;
    x.latents = place(x.latent_elements() * 2 * count);
    x.text = place(x.text_rows * x.facts.text_dim * 2);
    x.id_offsets = place(8 * (count + 1));
    x.caption_offsets = place(8 * (count + 1));
    x.ids = place(0);
    x.captions = place(0);
    for (int64_t i = 0; i <= count; ++i) x.text_start.push_back(kRows * i);
    for (int64_t i = 0; i < count; ++i) {
        x.checksums.push_back(tag * 1'000'003 + static_cast<uint64_t>(i));
    }
    x.empty_text.assign(64, 0.25F);
    { const Fd fd = create_write(path); }
    fs::resize_file(path, static_cast<uintmax_t>(at));
    x.stamp = stamp_of(path);
    const std::string bytes = encode_index(x);
    const fs::path beside = path.parent_path() / ("." + path.filename().string() + ".vtindex");
    write_all(create_write(beside), bytes.data(), std::ssize(bytes), beside);
    return path;
}

struct Opened {
    std::unique_ptr<Dataset> data;
    double seconds = 0, bytes = 0;
};

Opened open_hollow(const TempDir& dir, int64_t shards, int64_t per_shard) {
    for (int64_t i = 0; i < shards; ++i) {
        hollow_shard(dir / fmt::format("{:06}.h5", i), per_shard, static_cast<uint64_t>(i));
    }
    Opened out;
    const auto before = static_cast<double>(process_memory().resident);
    const auto start = std::chrono::steady_clock::now();
    // no child is started: the program that would be is not there
    out.data = Dataset::open({source_of(expand_globs("*.h5", dir.path()))},
                             {.program = "/nonexistent", .timeout_s = 1, .cache = true});
    out.seconds = seconds_since(start);
    out.bytes = static_cast<double>(process_memory().resident) - before;
    return out;
}

}  // namespace

TEST_CASE("scale: ten million samples are indexed in a minute and a gigabyte") {
    const TempDir dir;
    const int64_t shards = full() ? 1000 : 100, per_shard = full() ? 10'000 : 1'000;
    const Opened o = open_hollow(dir, shards, per_shard);
    const int64_t n = o.data->source_size(0);
    REQUIRE(n == shards * per_shard);
    MESSAGE(fmt::format("{} samples in {} shards: {:.2f} s, {:.1f} bytes of memory each", n, shards,
                        o.seconds, o.bytes / static_cast<double>(n)));
    CHECK(o.seconds < 60);
    if (full()) CHECK(o.bytes < 1e9);
    // 16 bytes each are kept (text rows, checksum); a freed copy may still count as resident
    if (full()) CHECK(o.bytes / static_cast<double>(n) < 64);
    for (const int64_t i : {int64_t{0}, per_shard, n / 2, n - 1}) {
        const Dataset::Sample s = o.data->sample(0, i);
        CHECK(s.file == i / per_shard);
        CHECK(s.row == i % per_shard);
    }
    std::vector<int64_t> met;
    for (uint64_t i = 0; i < 1000; ++i) met.push_back(draw_at(*o.data, 1, i).index);
    std::sort(met.begin(), met.end());
    CHECK(std::adjacent_find(met.begin(), met.end()) == met.end());
    CHECK(met.back() > n / 2);
}

TEST_CASE("scale: a hundred thousand shards start from their cached indexes") {
    const TempDir dir;
    const int64_t shards = full() ? 100'000 : 1'000;
    const Opened o = open_hollow(dir, shards, 2);
    CHECK(o.data->source_size(0) == 2 * shards);
    MESSAGE(fmt::format("{} shards: {:.2f} s, {:.0f} bytes of memory each", shards, o.seconds,
                        o.bytes / static_cast<double>(shards)));
    CHECK(o.seconds < 60);
    // beyond one process's descriptors: read through the ring of open files
    std::vector<float> latent(2048), text(256);
    for (int64_t i = 0; i < std::min<int64_t>(2 * shards, 3000); i += 2) {
        try {
            o.data->read(0, i, {latent.data(), {16, 2, 8, 8}, DType::kF32},
                         {text.data(), {4, 64}, DType::kF32});
            FAIL("holes have another checksum");
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kData);
        }
    }
}

TEST_CASE("scale: shards are indexed by several children, in the order of their names") {
    const TempDir dir;
    std::vector<fs::path> files;
    for (int i = 0; i < 40; ++i) {
        files.push_back(write_small(dir / fmt::format("{:02}.h5", i), small_facts(), {3, 1, 2, 2},
                                    static_cast<uint64_t>(i), 1 + i % 3));
    }
    write_all(create_write(files[7]), "not HDF5", 8, files[7]);
    write_all(create_write(files[31]), "nor this", 8, files[31]);
    const std::vector<Indexed> got = index_files(files, kChild);
    for (size_t i = 0; i < files.size(); ++i) {
        CAPTURE(i);
        REQUIRE(got[i].index.has_value() == (i != 7 && i != 31));
        if (got[i].index) CHECK(got[i].index->count == static_cast<int64_t>(1 + i % 3));
    }
    files[20] = dir / "gone.h5";
    files[35] = dir / "gone-too.h5";
    // missing ones are named with the bad ones, so that one start says all there is to mend
    const std::vector<Indexed> again = index_files(files, kChild);
    for (const size_t i : {7UL, 20UL, 31UL, 35UL}) {
        CAPTURE(i);
        CHECK(!again[i].index);
        CHECK(!again[i].reason.empty());
    }
}

TEST_CASE("scale: names with blanks, line ends and any letter, and paths of 4,095 bytes") {
    const TempDir dir, cache;
    const char* old = std::getenv("XDG_CACHE_HOME");
    const std::string saved = old != nullptr ? old : "";
    ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
    const IndexOptions options{.program = program(), .timeout_s = 60, .cache = true};
    const fs::path plain = write_small(dir / "plain.h5", small_facts(), {3, 1, 2, 2}, 4, 5);
    std::vector<fs::path> names;
    for (const char* name : {"with blank.h5", "line\nend.h5",
                             "ein \xC3\xA4 und \xE6\xBC\xA2\xE5\xAD\x97 \xF0\x9F\x8E\xAC.h5",
                             "-rf.h5", "[1]*?.h5", "no utf8 \xFF\xFE.h5", "%s{}\\.h5"}) {
        names.push_back(dir / name);
    }
    names.push_back(dir / (std::string(252, 'n') + ".h5"));  // no room for a name of its index
    fs::path deep = dir.path();
    const std::string step(200, 'd');
    while (deep.native().size() + 1 + step.size() < 4095 - 210) {
        deep /= step;
        fs::create_directory(deep);
    }
    const size_t left = 4095 - deep.native().size() - 1;
    if (left > 255) {
        deep /= std::string(left - 200, 'e');
        fs::create_directory(deep);
    }
    names.push_back(deep / (std::string(4095 - deep.native().size() - 1 - 3, 'f') + ".h5"));
    REQUIRE(names.back().native().size() == 4095);
    std::vector<float> latent(12), text(24);
    for (const fs::path& name : names) {
        CAPTURE(name);
        fs::copy_file(plain, name);
        for (int again = 0; again < 2; ++again) {  // by a child, then from the cache
            const IndexOptions from =
                again == 0 ? options : IndexOptions{.program = "/nonexistent", .cache = true};
            const auto data = Dataset::open({source_of({name})}, from);
            data->read(0, 3, {latent.data(), {3, 1, 2, 2}, DType::kF32},
                       {text.data(), {4, 6}, DType::kF32});
            CHECK(latent == small_sample(small_facts(), {3, 1, 2, 2}, 4, 3).latent);
            CHECK(data->sample_id(0, 3) == "t4/3");
        }
    }
    // one byte more than a path may have is refused by its name
    try {
        (void)Dataset::open({source_of({fs::path(names.back().native() + "x")})}, options);
        FAIL("no error");
    } catch (const Error& e) {
        CHECK(e.message().find("File name too long") != std::string::npos);
    }
    if (old != nullptr) {
        ::setenv("XDG_CACHE_HOME", saved.c_str(), 1);
    } else {
        ::unsetenv("XDG_CACHE_HOME");
    }
}
