// SPDX-License-Identifier: MIT
// Shards: written here or by h5py, indexed by the child, read with pread.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/hash.h"
#include "data/index.h"
#include "data/shard_read.h"
#include "tests/data/make.h"
#include "tests/data/refused.h"
#include "tests/paths.h"

using namespace vt;
using namespace vt::test;

namespace {

// The fault of what `body` throws, and its message; kBug - 100 if it does not throw.
template <typename Body>
std::pair<int, std::string> fault_of(const Body& body) {
    try {
        body();
    } catch (const Error& e) {
        return {static_cast<int>(e.fault()), e.message() + " | " + e.hint()};
    }
    return {-1, "no error"};
}

struct Read {
    std::vector<float> latent, text;
};
Read read_f32(const Dataset& d, int source, int64_t index) {
    const auto s = d.sample(source, index).shape;
    const LatentFacts& f = d.facts();
    Read r;
    r.latent.resize(static_cast<size_t>(s[0] * s[1] * s[2] * s[3]));
    r.text.assign(static_cast<size_t>(f.text_len * f.text_dim), 99.0F);
    d.read(source, index, {r.latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32},
           {r.text.data(), {f.text_len, f.text_dim}, DType::kF32});
    return r;
}

std::vector<float> padded(std::vector<float> text, const LatentFacts& f) {
    text.resize(static_cast<size_t>(f.text_len * f.text_dim), 0.0F);
    return text;
}

void overwrite(const fs::path& path, int64_t offset, const void* data, size_t bytes) {
    std::string all = read_file(path);
    REQUIRE(static_cast<size_t>(offset) + bytes <= all.size());
    std::memcpy(all.data() + offset, data, bytes);
    write_atomic(path, all);
}

}  // namespace

TEST_CASE("shard: a file written by h5py reads back exactly") {
    const TempDir dir;
    const fs::path file = dir / "tiny.h5";
    fs::copy_file(source_dir() / "tests/golden/h5py-tiny.h5", file);
    const auto d = Dataset::open({source_of({file})}, kFresh);
    REQUIRE(d->source_size(0) == 3);
    const LatentFacts& f = d->facts();
    CHECK(f.codec == "example-vae");
    CHECK(f.channels == 4);
    CHECK(f.scale == std::array<int64_t, 3>{4, 8, 8});
    CHECK(f.normalised);
    CHECK(f.mean == std::vector<double>{0, 0.25, -0.5, 1});
    CHECK(f.std == std::vector<double>{1, 2, 0.5, 1.5});
    CHECK(f.text_encoder == "example-encoder");
    CHECK(f.text_len == 6);
    CHECK(f.fps == 16);
    CHECK(d->shapes() == std::vector<std::array<int64_t, 4>>{{4, 2, 3, 5}});
    // the maker's formula; all numbers are exact in bfloat16
    const auto number = [](int64_t i, int64_t start) {
        return static_cast<float>((i * 37 + start * 11) % 255 - 127) / 64;
    };
    const int64_t rows[] = {4, 1, 5};
    for (int64_t i = 0; i < 3; ++i) {
        const Read r = read_f32(*d, 0, i);
        for (int64_t k = 0; k < 120; ++k) {
            REQUIRE(r.latent[static_cast<size_t>(k)] == number(i * 120 + k, 0));
        }
        for (int64_t k = 0; k < 48; ++k) {
            const float want = k < rows[i] * 8 ? number(k, i + 1) : 0.0F;
            REQUIRE(r.text[static_cast<size_t>(k)] == want);
        }
        CHECK(d->sample_id(0, i) == "clips/" + std::to_string(i) + ".mp4#0");
    }
    const Indexed x = index_files({file}, kFresh)[0];
    const Fd fd = open_shard(file, x.index->stamp);
    CHECK(read_caption(fd, file, *x.index, 0) == "a red ball rolls");
    CHECK(read_caption(fd, file, *x.index, 1).empty());
    CHECK(read_caption(fd, file, *x.index, 2) == "naïve café, 2 cats");
    std::vector<float> empty(48, 9.0F);
    d->read_empty_text({empty.data(), {6, 8}, DType::kF32});
    for (int64_t k = 0; k < 48; ++k) {
        CHECK(empty[static_cast<size_t>(k)] == (k < 8 ? number(k, 2) : 0.0F));
    }
}

TEST_CASE("shard: other number types, a user block and h5py's bools; chunks are refused") {
    const TempDir dir;
    std::vector<fs::path> files;
    for (const char* name : {"h5py-tiny.h5", "h5py-odd.h5", "h5py-chunked.h5"}) {
        files.push_back(dir / name);
        fs::copy_file(source_dir() / "tests/golden" / name, files.back());
    }
    // the maker says that tiny and odd hold the same numbers, all exact in either format
    const auto d = Dataset::open({source_of({files[0]}), source_of({files[1]})}, kFresh);
    for (int64_t i = 0; i < 3; ++i) {
        const Read a = read_f32(*d, 0, i), b = read_f32(*d, 1, i);
        CHECK(a.latent == b.latent);
        CHECK(a.text == b.text);
    }
    const Indexed bad = index_files(files, kFresh)[2];
    REQUIRE(!bad.index);
    CHECK(has(bad.reason, "latents is chunked and compressed"));
    CHECK(has(bad.hint, "vtrain data repack"));
}

TEST_CASE("shard: the index goes to the user's cache where the folder does not take it") {
    const TempDir dir;
    // the cache's name beside the shard would be longer than a name may be
    const fs::path file = dir / (std::string(245, 'n') + ".h5");
    fs::copy_file(source_dir() / "tests/golden/h5py-tiny.h5", file);
    const std::string command = "XDG_CACHE_HOME=" + (dir / "cache").string() + " " +
                                program().string() + " data info " + file.string();
    CHECK(run(command).code == 0);
    const fs::path folder = dir / "cache" / "vtrain" / "index";
    REQUIRE(fs::is_directory(folder));
    REQUIRE(std::distance(fs::directory_iterator(folder), fs::directory_iterator()) == 1);
    const fs::path cache = fs::directory_iterator(folder)->path();
    const auto written = fs::last_write_time(cache);
    CHECK(run(command).code == 0);
    CHECK(fs::last_write_time(cache) == written);  // read, not made again
}

TEST_CASE("shard: written and read, f32 and bf16, into f32 and bf16") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    // the last is larger than the reader's piece of 64 KiB
    const std::array<int64_t, 4> shapes[] = {{3, 1, 1, 1}, {3, 2, 3, 5}, {3, 5, 41, 43}};
    for (const auto& shape : shapes) {
        for (const DType stored : {DType::kF32, DType::kBF16}) {
            const fs::path file = write_small(dir / "a.h5", f, shape, 1, 5, stored);
            const auto d = Dataset::open({source_of({file})}, kFresh);
            REQUIRE(d->facts() == f);
            for (int64_t i = 0; i < 5; ++i) {
                ShardSample want = small_sample(f, shape, 1, i);
                want.text = padded(want.text, f);
                if (stored == DType::kBF16) {
                    for (float& v : want.latent) v = to_float(to_bf16(v));
                    for (float& v : want.text) v = to_float(to_bf16(v));
                }
                const Read got = read_f32(*d, 0, i);
                CHECK(got.latent == want.latent);
                CHECK(got.text == want.text);
                CHECK(d->sample_id(0, i) == want.id);
                std::vector<bf16> latent(want.latent.size()), text(want.text.size());
                d->read(0, i, {latent.data(), {3, shape[1], shape[2], shape[3]}, DType::kBF16},
                        {text.data(), {f.text_len, f.text_dim}, DType::kBF16});
                bool equal = true;
                for (size_t k = 0; k < latent.size(); ++k) {
                    equal &= latent[k].bits == to_bf16(want.latent[k]).bits;
                }
                for (size_t k = 0; k < text.size(); ++k) {
                    equal &= text[k].bits == to_bf16(want.text[k]).bits;
                }
                CHECK(equal);
            }
        }
    }
    // nothing but the shard stays behind
    CHECK(std::distance(fs::directory_iterator(dir.path()), fs::directory_iterator()) == 1);
}

TEST_CASE("shard: a writer without close leaves nothing, bad samples are refused") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    {
        ShardWriter w(dir / "a.h5", f, {3, 2, 2, 2}, small_empty(f), {});
        ShardSample s = small_sample(f, {3, 2, 2, 2}, 1, 1);
        w.add(s);
        CHECK(fault_of([&] { w.add(s); }).first == 3);  // the id is taken
        s.id = "other";
        s.latent[3] = INFINITY;
        CHECK(has(fault_of([&] { w.add(s); }).second, "infinity or NaN"));
        s.latent[3] = 3.4e38F;  // finite, but not in bfloat16
        CHECK(has(fault_of([&] { w.add(s); }).second, "infinity or NaN"));
        s.latent.pop_back();
        CHECK(fault_of([&] { w.add(s); }).first == 3);
        s = small_sample(f, {3, 2, 2, 2}, 1, 2);
        s.text.push_back(0);
        CHECK(fault_of([&] { w.add(s); }).first == 3);
        CHECK(w.count() == 1);
    }
    CHECK(fs::is_empty(dir.path()));
    LatentFacts bad = f;
    bad.std[1] = 0;
    CHECK(fault_of([&] { ShardWriter(dir / "b.h5", bad, {3, 1, 1, 1}, {}, {}); }).first == 3);
}

TEST_CASE("shard: f16 and f64 convert by definition") {
    for (uint32_t h = 0; h < 65536; ++h) {
        const auto bits = static_cast<uint16_t>(h);
        float got = 0;
        to_floats(Stored::kF16, &bits, 1, &got);
        const int e = static_cast<int>((h >> 10) & 31U), m = static_cast<int>(h & 1023U);
        double want = e == 31  ? (m == 0 ? INFINITY : NAN)
                      : e == 0 ? std::ldexp(m, -24)
                               : std::ldexp(1024 + m, e - 25);
        if ((h >> 15) != 0) want = -want;
        const bool same = std::isnan(want) ? std::isnan(got) : static_cast<double>(got) == want;
        REQUIRE_MESSAGE(same, h);
    }
    const double x[] = {1.0 / 3, -1e300};
    float y[2];
    to_floats(Stored::kF64, x, 2, y);
    CHECK(y[0] == 1.0F / 3.0F);
    CHECK(std::isinf(y[1]));
}

TEST_CASE("shard: one flipped bit of the payload or a NaN is named") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    const fs::path file = write_small(dir / "a.h5", f, {3, 2, 2, 2}, 4, 4);
    const ShardIndex x = *index_files({file}, kFresh)[0].index;
    const std::string good = read_file(file);
    for (const int64_t at : {x.latents.offset + 96 * 2 + 5, x.text.offset + 4}) {
        std::string bytes = good;
        bytes[static_cast<size_t>(at)] = static_cast<char>(bytes[static_cast<size_t>(at)] ^ 4);
        write_atomic(file, bytes);
        const auto d = Dataset::open({source_of({file})}, kFresh);
        int bad = 0;
        for (int64_t i = 0; i < 4; ++i) {
            const auto [fault, message] = fault_of([&] { (void)read_f32(*d, 0, i); });
            if (fault < 0) continue;
            ++bad;
            CHECK(fault == 3);
            CHECK(has(message, "row " + std::to_string(i)));
            CHECK(has(message, "checksum"));
        }
        CHECK(bad == 1);
    }
    // a NaN that the encoder itself hashed
    write_atomic(file, good);
    const float nan = NAN;
    overwrite(file, x.latents.offset + 96, &nan, 4);
    std::string bytes = read_file(file);
    std::string sample = bytes.substr(static_cast<size_t>(x.latents.offset) + 96, 96);
    const int64_t row = x.text_start[1], rows = x.text_start[2] - row;
    sample +=
        bytes.substr(static_cast<size_t>(x.text.offset + row * 24), static_cast<size_t>(rows * 24));
    const uint64_t sum = xxh3(sample), old = x.checksums[1];
    const size_t at = bytes.find(std::string(reinterpret_cast<const char*>(&old), 8));
    REQUIRE(at != std::string::npos);
    overwrite(file, static_cast<int64_t>(at), &sum, 8);
    const auto d = Dataset::open({source_of({file})}, kFresh);
    CHECK(has(fault_of([&] { (void)read_f32(*d, 0, 1); }).second, "infinity or NaN"));
    CHECK(fault_of([&] { (void)read_f32(*d, 0, 2); }).first == -1);
}

TEST_CASE("shard: a child that hangs, dies or is no vtrain is survived") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    std::vector<fs::path> files;
    for (int i = 0; i < 2; ++i) {
        files.push_back(write_small(dir / (std::to_string(i) + ".h5"), f, {3, 1, 1, 1}, 1, 2));
    }
    const auto script = [&](const std::string& body) {
        write_atomic(dir / "child", "#!/bin/sh\n" + body + "\n");
        fs::permissions(dir / "child", fs::perms::owner_all);
        return IndexOptions{.program = dir / "child", .timeout_s = 0.3, .cache = false};
    };
    const std::string start = R"(printf 'VTIX\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0';)";
    auto got = index_files(files, script(start + "sleep 60"));
    CHECK(has(got[0].reason, "longer than 0.3 s"));
    CHECK(has(got[1].reason, "longer than 0.3 s"));
    got = index_files(files, script(start + "kill -SEGV $$"));
    CHECK(has(got[0].reason, "signal 11"));
    CHECK(has(got[1].reason, "signal 11"));
    got = index_files(files, script("yes | head -c 100000"));
    CHECK(has(got[0].reason, "garbage"));
    CHECK(fault_of([&] { (void)index_files(files, script("exit 2")); }).first == 4);
    CHECK(fault_of([&] {
              (void)index_files(files, {.program = dir / "absent", .timeout_s = 1, .cache = false});
          }).first == 4);
    // the file of a dead child is named, the others are used
    const auto [fault, message] =
        fault_of([&] { (void)Dataset::open({source_of(files)}, script(start + "kill -SEGV $$")); });
    CHECK(fault == 3);
    CHECK(has(message, "0.h5"));
}

TEST_CASE("shard: the index is cached until the file changes") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    const fs::path file = write_small(dir / "a.h5", f, {3, 1, 2, 3}, 1, 2);
    const IndexOptions normal{.program = program(), .timeout_s = 60, .cache = true};
    const IndexOptions no_child{.program = "/bin/false", .timeout_s = 60, .cache = true};
    CHECK(fault_of([&] { (void)index_files({file}, no_child); }).first == 4);
    REQUIRE(index_files({file}, normal)[0].index);
    const Indexed again = index_files({file}, no_child)[0];
    REQUIRE(again.index);
    CHECK(again.index->count == 2);
    // a damaged cache is made again
    const fs::path cache = dir / ".a.h5.vtindex";
    std::string bytes = read_file(cache);
    bytes[20] = static_cast<char>(bytes[20] ^ 1);
    write_atomic(cache, bytes);
    CHECK(fault_of([&] { (void)index_files({file}, no_child); }).first == 4);
    CHECK(index_files({file}, normal)[0].index->count == 2);
    // so is that of a file which was replaced
    write_small(file, f, {3, 1, 2, 3}, 1, 3);
    CHECK(index_files({file}, normal)[0].index->count == 3);
    // a file replaced while a data set is open is noticed when it is opened
    const auto d = Dataset::open({source_of({file})}, normal);
    write_small(file, f, {3, 1, 2, 3}, 1, 4);
    CHECK(has(fault_of([&] { (void)read_f32(*d, 0, 0); }).second, "not the file that was indexed"));
    // by default the running program is its own child
    CHECK(Dataset::open({source_of({file})})->source_size(0) == 4);
}

TEST_CASE("shard: index bytes survive no change") {
    const TempDir dir;
    const fs::path file = write_small(dir / "a.h5", small_facts(), {3, 1, 2, 3}, 1, 3);
    const ShardIndex x = *index_files({file}, kFresh)[0].index;
    const std::string bytes = encode_index(x);
    REQUIRE(decode_index(bytes));
    CHECK(encode_index(*decode_index(bytes)) == bytes);
    for (size_t i = 0; i < bytes.size(); ++i) {
        std::string other = bytes;
        other[i] = static_cast<char>(other[i] ^ 16);
        REQUIRE(!decode_index(other));
        REQUIRE(!decode_index(std::string_view(bytes).substr(0, i)));
    }
    // right checksum, wrong address
    ShardIndex past = x;
    past.latents.offset = past.stamp.size - past.latents.bytes + 1;
    CHECK(!decode_index(encode_index(past)));
    past = x;
    past.text_start[1] = past.text_rows + 1;
    CHECK(!decode_index(encode_index(past)));
    past = x;
    past.count += 1;
    CHECK(!decode_index(encode_index(past)));
}

TEST_CASE("shard: eight threads read one file") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    const std::array<int64_t, 4> shape{3, 4, 16, 24};
    constexpr int64_t kCount = 40;
    std::vector<fs::path> files{write_small(dir / "a.h5", f, shape, 9, kCount, DType::kBF16)};
    const auto d = Dataset::open({source_of(files)}, kFresh);
    std::vector<uint64_t> want;
    for (int64_t i = 0; i < kCount; ++i) {
        const Read r = read_f32(*d, 0, i);
        want.push_back(xxh3(r.latent.data(), static_cast<int64_t>(r.latent.size() * 4)) ^
                       xxh3(r.text.data(), static_cast<int64_t>(r.text.size() * 4)));
    }
    std::vector<int64_t> wrong(8, 0);
    std::vector<std::thread> threads;
    for (uint64_t t = 0; t < 8; ++t) {
        threads.emplace_back([&, t] {
            for (uint64_t k = 0; k < 200; ++k) {
                const uint64_t i = random_bits(3, Purpose::kTest, t, k) % kCount;
                const Read r = read_f32(*d, 0, static_cast<int64_t>(i));
                const uint64_t h =
                    xxh3(r.latent.data(), static_cast<int64_t>(r.latent.size() * 4)) ^
                    xxh3(r.text.data(), static_cast<int64_t>(r.text.size() * 4));
                wrong[t] += h != want[i];
            }
        });
    }
    for (std::thread& t : threads) t.join();
    for (const int64_t w : wrong) CHECK(w == 0);
}

TEST_CASE("dataset: contradictory, missing and empty shards") {
    const TempDir dir;
    const LatentFacts f = small_facts();
    const fs::path a = write_small(dir / "a.h5", f, {3, 1, 2, 2}, 1, 3);
    const auto refused = [&](const LatentFacts& g) {
        const fs::path b = write_small(dir / "b.h5", g, {g.channels, 1, 2, 2}, 2, 2);
        return fault_of([&] { (void)Dataset::open({source_of({a, b})}, kFresh); });
    };
    const auto check = [&](const LatentFacts& g, const std::string& fact) {
        const auto told = refused(g);
        const std::string& message = told.second;
        CHECK(told.first == 3);
        CHECK_MESSAGE(has(message, "a.h5"), message);
        CHECK_MESSAGE(has(message, "b.h5"), message);
        CHECK_MESSAGE(has(message, fact + ":"), message);
    };
    LatentFacts g = f;
    g.codec = "other";
    check(g, "codec");
    check(small_facts(4), "channels");
    g = f;
    g.mean[2] = 0.5;
    check(g, "mean");
    g = f;
    g.std[0] = 0.5;
    check(g, "std");
    g = f;
    g.normalised = false;
    check(g, "normalised");
    g = f;
    g.scale[0] = 4;
    check(g, "scale");
    g = f;
    g.text_encoder = "x";
    check(g, "text_encoder");
    g = f;
    g.text_len = 5;
    check(g, "text_len");
    g = f;
    g.fps = 24;
    check(g, "fps");
    {
        ShardWriter w(dir / "b.h5", f, {3, 1, 2, 2}, normals(6, f.text_dim), {});
        w.add(small_sample(f, {3, 1, 2, 2}, 2, 0));
        w.close();
        const auto [fault, message] = fault_of([&] {
            (void)Dataset::open({source_of({a, dir / "b.h5"})}, kFresh);
        });
        CHECK(fault == 3);
        CHECK(has(message, "empty caption"));
    }
    // bf16 beside f32 is no contradiction, nor are two shapes
    const fs::path b = write_small(dir / "b.h5", f, {3, 2, 1, 2}, 2, 2, DType::kBF16);
    const fs::path none = write_small(dir / "c.h5", f, {3, 2, 1, 2}, 2, 0);
    const auto d = Dataset::open({source_of({a, none, b})}, kFresh);
    CHECK(d->source_size(0) == 5);
    CHECK(d->shapes().size() == 2);
    CHECK(d->sample_id(0, 2) == "t1/2");
    CHECK(d->sample_id(0, 3) == "t2/0");
    CHECK(d->sample(0, 4).row == 1);
    CHECK(fault_of([&] { (void)Dataset::open({source_of({none})}, kFresh); }).first == 3);
    const auto [fault, message] = fault_of([&] {
        (void)Dataset::open({source_of({a, dir / "gone.h5"})}, kFresh);
    });
    CHECK(fault == 2);
    CHECK(has(message, "gone.h5"));
    // fingerprints: the same for the same files elsewhere, another when anything changed
    fs::create_directory(dir / "moved");
    fs::copy_file(a, dir / "moved" / "a.h5");
    const auto print = [&](const std::vector<SourceSpec>& s) {
        return Dataset::open(s, kFresh)->fingerprint();
    };
    const uint64_t base = print({source_of({a})});
    CHECK(base == print({source_of({dir / "moved" / "a.h5"})}));
    CHECK(base != print({source_of({a, b})}));
    write_small(a, f, {3, 1, 2, 2}, 3, 3);  // same size, other numbers
    CHECK(base != print({source_of({a})}));
    // truncation is found at start-up, and everything that is wrong is told in one go
    fs::resize_file(b, fs::file_size(b) - 8);
    write_atomic(dir / "zero.h5", "");
    const auto [worst, all] = fault_of([&] {
        (void)Dataset::open(
            {source_of({a, b}), source_of({dir / "gone.h5", dir / "zero.h5", none})}, kFresh);
    });
    CHECK(worst == 3);
    CHECK_MESSAGE(has(all, "3 bad shards"), all);
    for (const char* part : {"b.h5: ", "gone.h5: ", "No such file", "zero.h5: ", "truncated"}) {
        CHECK_MESSAGE(has(all, part), all);
    }
    CHECK(!has(all, "a.h5"));
}

TEST_CASE("dataset: globs") {
    const TempDir dir;
    fs::create_directory(dir / "x[1]");
    for (const char* name : {"b.h5", "a.h5", "B.h5", "c.txt"}) {
        write_atomic((dir / "x[1]") / name, "x");
    }
    const auto found = expand_globs("*.h5", dir / "x[1]");
    REQUIRE(found.size() == 3);
    CHECK(found[0].filename() == "B.h5");
    CHECK(found[1].filename() == "a.h5");
    CHECK(expand_globs("c.txt", dir / "x[1]").size() == 1);
    CHECK(expand_globs((dir.path() / "x*" / "?.h5").string(), "/nowhere").size() == 3);
    const auto [fault, message] = fault_of([&] { (void)expand_globs("*.nope", dir.path()); });
    CHECK(fault == 2);
    CHECK(has(message, "*.nope"));
    CHECK(fault_of([&] { (void)expand_globs("x*", dir.path()); }).first == 2);
}
