// SPDX-License-Identifier: MIT
// HDF5 that others wrote: read in place, rewritten, or refused; and files somebody damaged.
#include <cmath>
#include <cstdlib>
#include <fstream>

#include <doctest/doctest.h>

#include "core/check.h"
#include "core/hash.h"
#include "data/h5_child.h"
#include "data/index.h"
#include "data/shard_read.h"
#include "data/stats.h"
#include "tests/data/make.h"
#include "tests/data/refused.h"
#include "tests/paths.h"

using namespace vt;
using namespace vt::test;

namespace {

fs::path golden(const std::string& name) {
    return source_dir() / "tests/golden" / name;
}

struct Row {
    std::string id, caption;
    std::vector<float> latent, text;
    bool operator==(const Row&) const = default;
};

Row read_row(const fs::path& path, const ShardIndex& x, int64_t row) {
    const Fd fd = open_shard(path, x.stamp);
    Row r;
    r.latent.resize(static_cast<size_t>(x.latent_elements()));
    r.text.resize(static_cast<size_t>(x.facts.text_len * x.facts.text_dim));
    read_sample(fd, path, x, row,
                {r.latent.data(), {x.shape[0], x.shape[1], x.shape[2], x.shape[3]}, DType::kF32},
                {r.text.data(), {x.facts.text_len, x.facts.text_dim}, DType::kF32});
    r.id = read_id(fd, path, x, row);
    r.caption = read_caption(fd, path, x, row);
    return r;
}

std::vector<Row> read_rows(const fs::path& path, const IndexOptions& options = kFresh) {
    const Indexed got = index_files({path}, options)[0];
    REQUIRE_MESSAGE(got.index, got.reason);
    std::vector<Row> out;
    for (int64_t i = 0; i < got.index->count; ++i) out.push_back(read_row(path, *got.index, i));
    return out;
}

// What the maker of the files left out of those without attributes.
const char* const kFacts = R"({"codec": "example-vae", "channels": 4, "scale": [4, 8, 8],
  "normalised": true, "mean": [0, 0.25, -0.5, 1], "std": [1, 2, 0.5, 1.5],
  "text_encoder": "example-encoder", "text_len": 6, "fps": 16})";

IndexOptions plain_options() {
    IndexOptions o = kFresh;
    o.foreign.names = {
        {"latents", "vae_latent"}, {"text", "prompt_embeds"}, {"empty_text", "negative"}};
    o.foreign.facts = facts_given_from_json(kFacts, "facts");
    return o;
}

}  // namespace

TEST_CASE("foreign: chunked, compressed, big-endian and string data sets are rewritten") {
    const TempDir dir;
    const std::vector<Row> want = read_rows(golden("h5py-tiny.h5"));
    REQUIRE(want.size() == 3);
    for (const char* name : {"h5py-chunked.h5", "h5py-appended.h5", "h5py-packed.h5"}) {
        const Indexed got = index_files({golden(name)}, kFresh)[0];
        REQUIRE(!got.index);
        CHECK_MESSAGE(has(got.hint, "vtrain data repack"), got.reason);
        const Ran ran = run(program().string() + " data repack " + golden(name).string() + " " +
                            (dir / name).string());
        REQUIRE_MESSAGE(ran.code == 0, ran.output);
        CHECK_MESSAGE(read_rows(dir / name) == want, name);
    }
    // several at once into a folder; nothing is written over
    const std::string both = golden("h5py-packed.h5").string() + " " +
                             golden("h5py-virtual.h5").string() + " " + (dir / "folder").string();
    Ran ran = run(program().string() + " data repack " + both);
    CHECK(ran.code == 3);
    CHECK_MESSAGE(has(ran.output, "h5py-virtual.h5"), ran.output);
    CHECK(read_rows(dir / "folder" / "h5py-packed.h5") == want);
    ran = run(program().string() + " data repack " + golden("h5py-tiny.h5").string() + " " +
              (dir / "h5py-packed.h5").string());
    CHECK(ran.code == 2);
    CHECK(has(ran.output, "is there already"));
}

TEST_CASE("foreign: names, layout and facts are said on the command line") {
    const TempDir dir;
    const std::vector<Row> want = read_rows(golden("h5py-tiny.h5"));
    write_atomic(dir / "facts.json", kFacts);
    const std::string base = program().string() + " data repack " +
                             golden("h5py-foreign.h5").string() + " " + (dir / "out.h5").string() +
                             " --map latents=video/z --map text=cond/embeds --layout NTCHW"
                             " --map text_mask=cond/mask --map captions=cond/prompt";
    Ran ran = run(base);
    CHECK(ran.code == 2);
    CHECK_MESSAGE(has(ran.output, "not stated: codec"), ran.output);
    ran = run(base + " --facts " + (dir / "facts.json").string());
    CHECK(ran.code == 2);
    CHECK_MESSAGE(has(ran.output, "--empty-text"), ran.output);
    ran = run(base + " --facts " + (dir / "facts.json").string() + " --channels 5");
    CHECK_MESSAGE(has(ran.output, "--facts says channels = 4"), ran.output);
    CHECK(!fs::exists(dir / "out.h5"));
    ran = run(base + " --empty-text zero --facts " + (dir / "facts.json").string());
    REQUIRE_MESSAGE(ran.code == 0, ran.output);
    CHECK(has(ran.output, "no checksums"));
    const std::vector<Row> got = read_rows(dir / "out.h5");
    REQUIRE(got.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
        CHECK(got[i].latent == want[i].latent);
        CHECK(got[i].text == want[i].text);
        CHECK(got[i].caption == want[i].caption);
        CHECK(got[i].id == "h5py-foreign#" + std::to_string(i));
    }
}

TEST_CASE("foreign: a contiguous file of other names is read in place") {
    const TempDir dir;
    const fs::path file = dir / "plain.h5";
    fs::copy_file(golden("h5py-plain.h5"), file);
    const Indexed bare = index_files({file}, kFresh)[0];
    CHECK(has(bare.reason, "not in the shard format"));
    CHECK(has(bare.hint, "data.names"));
    IndexOptions o = plain_options();
    o.cache = true;
    const std::vector<Row> want = read_rows(golden("h5py-tiny.h5"));
    const std::vector<Row> got = read_rows(file, o);
    REQUIRE(got.size() == 3);
    for (size_t i = 0; i < 3; ++i) {
        CHECK(got[i].latent == want[i].latent);
        CHECK(got[i].text == want[i].text);
        CHECK(got[i].id == "plain#" + std::to_string(i));
        CHECK(got[i].caption.empty());
    }
    // the cached index holds for these names alone
    o.program = "/bin/false";
    CHECK(index_files({file}, o)[0].index);
    IndexOptions other = plain_options();
    other.cache = true;
    other.foreign.names["latents"] = "prompt_embeds";
    CHECK(!index_files({file}, other)[0].index);
    o = plain_options();
    o.foreign.facts.channels = 5;
    CHECK(has(index_files({file}, o)[0].reason, "mean has 4 entries for 5 channels"));
    // from a config, and from the command line
    write_atomic(dir / "facts.json", kFacts);
    const std::string maps =
        " --map latents=vae_latent --map text=prompt_embeds --map "
        "empty_text=negative --facts " +
        (dir / "facts.json").string();
    Ran ran = run(program().string() + " data info " + file.string() + maps);
    CHECK_MESSAGE(ran.code == 0, ran.output);
    ran = run(program().string() + " data verify " + file.string() + maps);
    CHECK_MESSAGE(ran.code == 0, ran.output);
    CHECK(has(ran.output, "no checksums"));
}

TEST_CASE("foreign: what lies elsewhere or was left open is refused with the fix") {
    const TempDir dir;
    for (const char* name :
         {"h5py-tiny.h5", "h5py-virtual.h5", "h5py-linked.h5", "h5py-flagged.h5"}) {
        fs::copy_file(golden(name), dir / name);
    }
    const auto refused = [&](const std::string& name) {
        const Indexed got = index_files({dir / name}, kFresh)[0];
        REQUIRE(!got.index);
        const std::string streamed = refusal_of([&] {
            read_h5(
                dir / name, kFresh, [](auto&) {}, [](auto&) {});
        });
        CHECK_MESSAGE(streamed[0] == '3', streamed);
        return got.reason + " | " + got.hint;
    };
    CHECK_MESSAGE(has(refused("h5py-virtual.h5"), "is virtual"), refused("h5py-virtual.h5"));
    CHECK(has(refused("h5py-linked.h5"), "link to somewhere else"));
    CHECK(has(refused("h5py-flagged.h5"), "h5clear -s"));
    std::ofstream(dir / "cut.h5", std::ios::binary)
        << read_file(golden("h5py-tiny.h5")).substr(0, 9000);
    CHECK(has(refused("cut.h5"), "truncated"));
}

TEST_CASE("foreign: what scripts/pack_hdf5.py writes is read") {
    const auto number = [](int64_t i, int64_t start) {
        return static_cast<float>((i * 37 + start * 11) % 255 - 127) / 64;
    };
    for (const char* form : {"pt", "parquet", "tar"}) {
        const std::vector<Row> rows = read_rows(golden(fmt::format("packed-{}.h5", form)));
        REQUIRE(rows.size() == 4);
        for (const Row& r : rows) {
            const int64_t k = r.id.back() - '0';
            CHECK(r.id == fmt::format("{}clip-{}", form[0] == 't' ? "samples/" : "", k));
            CHECK(r.caption == fmt::format("clip number {}", k));
            for (int64_t i = 0; i < 120; ++i) {
                REQUIRE(r.latent[static_cast<size_t>(i)] == number(i, k));
            }
            for (int64_t i = 0; i < 48; ++i) {
                const float want = i < (k + 1) * 8 ? number(i, k + 5) : 0.0F;
                REQUIRE(r.text[static_cast<size_t>(i)] == want);
            }
        }
    }
}

// --- damage -------------------------------------------------------------------------------------

namespace {

bool full() {
    const char* v = std::getenv("VTRAIN_TEST_FULL");
    return v != nullptr && std::string(v) == "1";
}

std::string mutated(std::string bytes, uint64_t m) {
    const auto pick = [&](uint64_t element, uint64_t n) {
        return static_cast<size_t>(random_bits(5, Purpose::kTest, m, element) % n);
    };
    // mostly metadata, which lies in the first pages
    const size_t zone = m % 3 == 0 ? bytes.size() : std::min<size_t>(bytes.size(), 4096);
    const size_t at = pick(0, zone);
    switch (m % 5) {
        case 0:
        case 1:  // some flipped bits
            for (uint64_t k = 0; k <= m % 4; ++k) {
                char& c = bytes[pick(10 + 2 * k, zone)];
                c = static_cast<char>(c ^ (1 << pick(11 + 2 * k, 8)));
            }
            break;
        case 2:  // cut short
            bytes.resize(at);
            break;
        case 3:  // garbage over a stretch
            for (size_t k = 0; k < 16 && at + k < bytes.size(); ++k) {
                bytes[at + k] = static_cast<char>(pick(20 + k, 256));
            }
            break;
        default:  // an extreme 8-byte number
            for (size_t k = 0; k < 8 && at + k < bytes.size(); ++k) {
                bytes[at + k] = static_cast<char>(m % 2 == 0 ? 0xff : 0x7f);
            }
    }
    return bytes;
}

int64_t peak_kib() {
    const std::string status = read_file("/proc/self/status");
    const size_t at = status.find("VmHWM:");
    return at == std::string::npos ? 0 : std::strtoll(&status[at + 6], nullptr, 10);
}

}  // namespace

TEST_CASE("foreign: mutated files never harm the reader") {
    // Every mutation goes through the child; what it still accepts is read to the end. A row either
    // is refused or holds the numbers it held; good files among the damaged ones are untouched.
    const TempDir dir;
    const LatentFacts f = small_facts();
    const std::vector<fs::path> bases{
        write_small(dir / "good.h5", f, {3, 2, 2, 2}, 4, 3, DType::kBF16), golden("h5py-tiny.h5"),
        golden("h5py-odd.h5")};
    std::vector<std::vector<Row>> want;
    std::vector<std::string> bytes;
    for (const fs::path& b : bases) {
        want.push_back(read_rows(b));
        bytes.push_back(read_file(b));
    }
    const uint64_t mutations = full() ? 2400 : 150;
    std::vector<fs::path> files;
    for (uint64_t m = 0; m < mutations; ++m) {
        files.push_back(dir / ("m" + std::to_string(m) + ".h5"));
        std::ofstream(files.back(), std::ios::binary) << mutated(bytes[m % bases.size()], m);
    }
    for (size_t at = 0; at < files.size(); at += 50) {
        files.insert(files.begin() + static_cast<std::ptrdiff_t>(at), bases[0]);
    }
    const int64_t before = peak_kib();
    const std::vector<Indexed> got = index_files(files, kFresh);
    int64_t refused = 0, bad_rows = 0, same = 0, other_facts = 0, other = 0;
    for (size_t i = 0; i < files.size(); ++i) {
        const bool good = files[i] == bases[0];
        if (!got[i].index) {
            ++refused;
            REQUIRE(!good);
            REQUIRE(!got[i].reason.empty());
            continue;
        }
        const ShardIndex& x = *got[i].index;
        const uint64_t m = good ? 0 : std::stoull(files[i].stem().string().substr(1));
        const std::vector<Row>& rows = want[good ? 0 : m % bases.size()];
        for (int64_t row = 0; row < x.count; ++row) {
            Row r;
            const std::string fault = refusal_of([&] { r = read_row(files[i], x, row); });
            if (fault != "none") {
                REQUIRE(fault[0] == '3');
                REQUIRE(!good);
                ++bad_rows;
                continue;
            }
            const Row& w = rows[static_cast<size_t>(row)];
            // ids and captions are under no checksum; the numbers are
            if (r.latent == w.latent && r.text == w.text) {
                ++same;
            } else if (r.latent == w.latent && r.text.size() != w.text.size()) {
                ++other_facts;  // text_len is an attribute: padding may be longer or shorter
            } else {
                ++other;
            }
        }
    }
    MESSAGE(refused << " files refused, " << bad_rows << " bad samples, " << same
                    << " read as they were, " << other_facts << " with another text_len");
    CHECK(other == 0);
    CHECK(refused > static_cast<int64_t>(mutations / 5));  // one in five is cut short
    CHECK(same > static_cast<int64_t>(mutations / 4));     // and the reading code is reached
    CHECK(peak_kib() - before < 512 * 1024);
}

TEST_CASE("foreign: mutated files never harm the rewriting") {
    const TempDir dir;
    const std::vector<fs::path> bases{golden("h5py-packed.h5"), golden("h5py-appended.h5")};
    const uint64_t mutations = full() ? 400 : 12;
    const int64_t before = peak_kib();
    int64_t refused = 0, damaged = 0, read = 0;
    for (uint64_t m = 0; m < mutations; ++m) {
        const fs::path file = dir / "m.h5";
        std::ofstream(file, std::ios::binary) << mutated(read_file(bases[m % 2]), m);
        const std::string fault = refusal_of([&] {
            read_h5(
                file, kFresh, [](const H5Head&) {},
                [&](const H5Sample& s) { (s.damaged ? damaged : read) += 1; });
        });
        REQUIRE_MESSAGE((fault == "none" || fault[0] == '3'), fault);
        if (fault != "none") ++refused;
    }
    MESSAGE(refused << " files refused, " << damaged << " damaged samples, " << read << " read");
    CHECK(refused > 0);
    CHECK(read > 0);
    CHECK(peak_kib() - before < 512 * 1024);
}

TEST_CASE("foreign: a child that cannot start or is no vtrain is named, and no file is blamed") {
    const TempDir dir;
    const fs::path file = golden("h5py-plain.h5");
    const auto index = [&](const fs::path& program) {
        IndexOptions o = kFresh;
        o.program = program;
        return refusal_of([&] { (void)index_files({file}, o); });
    };
    const auto read = [&](const fs::path& program) {
        IndexOptions o = kFresh;
        o.program = program;
        return refusal_of([&] {
            read_h5(
                file, o, [](const H5Head&) {}, [](const H5Sample&) {});
        });
    };
    CHECK(
        has(index(dir / "absent"), "4: cannot start the index child " + (dir / "absent").string()));
    CHECK(has(read(dir / "absent"),
              "4: cannot start the reading child " + (dir / "absent").string()));
    CHECK(has(index("/bin/false"),
              "4: the index child /bin/false ended with status 1 before it saw"));
    CHECK(has(read("/bin/false"),
              "4: the reading child /bin/false ended with status 1 before it saw"));
    CHECK(has(read("/bin/false"), "must be the vtrain program"));
}

// --- statistics ---------------------------------------------------------------------------------

TEST_CASE("stats: counts, values and what contradicts the facts") {
    const TempDir dir;
    LatentFacts f = small_facts();
    f.fps = 8;
    const fs::path a = write_small(dir / "a.h5", f, {3, 3, 4, 4}, 1, 10);
    const fs::path none = write_small(dir / "none.h5", f, {3, 1, 2, 2}, 1, 0);
    StatsOptions o;
    o.index = kFresh;
    DataStats s = data_stats({a, none, dir / "gone.h5"}, {}, o);
    CHECK(s.files == 3);
    CHECK(s.empty_files == 1);
    CHECK(s.bad_files.size() == 1);
    CHECK(s.samples == 10);
    CHECK(s.read == 10);
    CHECK(s.shapes.at({3, 3, 4, 4}) == 10);
    CHECK(s.seconds.at(5.0 / 8) == 10);  // 1 + 2 * 2 frames
    CHECK(s.text_rows.size() == 5);
    REQUIRE(s.channels.size() == 3);
    // against the numbers themselves
    double sum = 0, least = 1e9;
    for (int64_t i = 0; i < 10; ++i) {
        const ShardSample sample = small_sample(f, {3, 3, 4, 4}, 1, i);
        for (size_t k = 48; k < 96; ++k) {
            sum += double{sample.latent[k]};
            least = std::min(least, double{sample.latent[k]});
        }
    }
    CHECK(s.channels[1].mean == doctest::Approx(sum / 480).epsilon(1e-12));
    CHECK(s.channels[1].min == least);
    CHECK(s.distinct_captions == 10);
    CHECK(s.warnings.size() == 1);  // the bad shard
    o.samples = 4;
    CHECK(data_stats({a}, {}, o).read == 4);

    // one of each mistake
    f.fps = 12;
    ShardWriter w(dir / "b.h5", f, {3, 1, 4, 4}, small_empty(f), {});
    for (int64_t i = 0; i < 4; ++i) {
        ShardSample sample = small_sample(f, {3, 1, 4, 4}, 2, i);
        sample.id = i == 0 ? "t1/3" : sample.id;
        sample.caption = "caption 5";
        for (size_t k = 0; k < 16; ++k) sample.latent[k] = 7;
        w.add(sample);
    }
    w.close();
    o.samples = 0;
    s = data_stats({a}, {dir / "b.h5"}, o);
    CHECK(s.valid_in_train == 1);
    CHECK(s.repeated_ids == std::vector<std::string>{"t1/3"});
    CHECK(s.most_repeated == 5);
    CHECK(s.most_repeated_caption == "caption 5");
    std::string all;
    for (const std::string& warning : s.warnings) all += warning + "\n";
    for (const char* part :
         {"2 different sets of facts", "fps is 8 in some and 12 in others", "1 ids appear again",
          "1 validation samples have the id", "4 validation samples have the caption"}) {
        CHECK_MESSAGE(has(all, part), all);
    }
    s = data_stats({dir / "b.h5"}, {}, o);
    all.clear();
    for (const std::string& warning : s.warnings) all += warning + "\n";
    CHECK_MESSAGE(has(all, "channel 0 is 7 everywhere"), all);
    CHECK_MESSAGE(has(all, "say the latents are normalised, but"), all);
    // a double for every number: twice the bytes that are of use
    s = data_stats({golden("h5py-odd.h5")}, {}, o);
    CHECK(s.bytes_read_per_used > 1.2);

    const Ran ran = run(program().string() + " data stats --json " + a.string());
    CHECK_MESSAGE(ran.code == 0, ran.output);
    CHECK(has(ran.output, "\"samples\": 10"));
    CHECK(has(run(program().string() + " data stats --all " + a.string()).output, "3,3,4,4  ####"));
}
