// SPDX-License-Identifier: MIT
// Arrays of other programs: headers of npy and zip, the import into shards, facts.
#include <cmath>
#include <cstring>
#include <fstream>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/import.h"
#include "data/index.h"
#include "data/loader.h"
#include "data/npy.h"
#include "data/safetensors.h"
#include "tests/data/make.h"
#include "tests/data/refused.h"
#include "tests/paths.h"

using namespace vt;
using namespace vt::test;

namespace {

std::string npy(const std::string& descr, const std::string& shape, const std::string& data,
                const std::string& fortran = "False") {
    std::string dict =
        "{'descr': '" + descr + "', 'fortran_order': " + fortran + ", 'shape': " + shape + ", }";
    dict.resize((10 + dict.size() + 64) / 64 * 64 - 10, ' ');
    dict.back() = '\n';
    std::string out = "\x93NUMPY";
    out += '\x01';
    out += '\0';
    out += static_cast<char>(dict.size() & 0xffU);
    out += static_cast<char>(dict.size() >> 8);
    return out + dict + data;
}

template <typename T>
std::string raw(const std::vector<T>& v) {
    return {reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)};
}

// a stored (uncompressed) zip, as numpy.savez writes it
std::string zip(const std::vector<std::pair<std::string, std::string>>& members, int method = 0) {
    std::string out, list;
    const auto put = [](std::string& to, uint64_t v, int n) {
        for (int i = 0; i < n; ++i) to += static_cast<char>((v >> (8 * i)) & 0xffU);
    };
    for (const auto& [name, data] : members) {
        const uint64_t at = out.size();
        out += "PK\x03\x04";
        put(out, 20, 2), put(out, 0, 2), put(out, static_cast<uint64_t>(method), 2);
        put(out, 0, 4), put(out, 0, 4), put(out, data.size(), 4), put(out, data.size(), 4);
        put(out, name.size(), 2), put(out, 0, 2);
        out += name + data;
        list += "PK\x01\x02";
        put(list, 20, 2), put(list, 20, 2), put(list, 0, 2);
        put(list, static_cast<uint64_t>(method), 2), put(list, 0, 4), put(list, 0, 4);
        put(list, data.size(), 4), put(list, data.size(), 4);
        put(list, name.size(), 2), put(list, 0, 2), put(list, 0, 2);
        put(list, 0, 2), put(list, 0, 2), put(list, 0, 4), put(list, at, 4);
        list += name;
    }
    const uint64_t at = out.size();
    out += list + "PK\x05\x06";
    put(out, 0, 4), put(out, members.size(), 2), put(out, members.size(), 2);
    put(out, list.size(), 4), put(out, at, 4), put(out, 0, 2);
    return out;
}

// (C,T,H,W) of clip i: numbers that bf16 and f16 hold exactly and that tell every place.
float number(int64_t clip, int64_t c, int64_t t, int64_t h, int64_t w) {
    return static_cast<float>((clip * 41 + c * 17 + t * 11 + h * 5 + w * 3) % 121 - 60) / 32;
}
constexpr int64_t kC = 3, kT = 2, kH = 4, kW = 5, kDim = 6;

// The latents of `clips` in the order of `layout`.
std::vector<float> latents(const std::string& layout, int64_t first, int64_t clips) {
    std::array<int64_t, 5> size{clips, kC, kT, kH, kW}, at{};
    const auto of = [](char letter) { return std::string("NCTHW").find(letter); };
    std::vector<float> out;
    std::array<int64_t, 5> i{};
    const auto walk = [&](const auto& self, size_t depth) -> void {
        if (depth == layout.size()) {
            out.push_back(number(first + at[0], at[1], at[2], at[3], at[4]));
            return;
        }
        const size_t d = of(layout[depth]);
        for (i[depth] = 0; i[depth] < size.at(d); ++i[depth]) {
            at.at(d) = i[depth];
            self(self, depth + 1);
        }
    };
    walk(walk, 0);
    return out;
}

std::vector<float> text(int64_t clip, int64_t rows, int64_t padded) {
    std::vector<float> out(static_cast<size_t>(padded * kDim), 0.0F);
    for (size_t k = 0; k < static_cast<size_t>(rows * kDim); ++k) {
        out[k] = static_cast<float>(static_cast<int64_t>(k) % 7 + 1 + clip) / 8;
    }
    return out;
}

FactsGiven given() {
    FactsGiven f;
    f.codec = "test-codec";
    f.channels = kC;
    f.scale = {4, 8, 8};
    f.mean = {0.5, 0.0, -0.25};
    f.std = {2.0, 1.0, 0.5};
    f.text_encoder = "test-encoder";
    f.text_len = 4;
    f.fps = 16;
    return f;
}

void save(const fs::path& path, const std::vector<NamedTensor>& tensors,
          const std::map<std::string, std::string>& metadata = {}) {
    write_safetensors(path, tensors, metadata);
}

struct Got {
    std::string id, caption;
    std::vector<float> latent, text;
};
// Every sample under a folder, by id.
std::map<std::string, Got> read_all(const fs::path& dir) {
    std::map<std::string, Got> out;
    std::vector<fs::path> files;
    for (const auto& e : fs::recursive_directory_iterator(dir)) {
        if (e.path().extension() == ".h5") files.push_back(e.path());
    }
    std::sort(files.begin(), files.end());
    const auto d = Dataset::open({source_of(files)}, kFresh);
    const LatentFacts& f = d->facts();
    for (int64_t i = 0; i < d->source_size(0); ++i) {
        const auto s = d->sample(0, i).shape;
        Got g{.id = d->sample_id(0, i), .caption = d->caption(0, i), .latent = {}, .text = {}};
        g.latent.resize(static_cast<size_t>(s[0] * s[1] * s[2] * s[3]));
        g.text.resize(static_cast<size_t>(f.text_len * f.text_dim));
        d->read(0, i, {g.latent.data(), {s[0], s[1], s[2], s[3]}, DType::kF32},
                {g.text.data(), {f.text_len, f.text_dim}, DType::kF32});
        out[g.id] = g;
    }
    return out;
}

ImportSpec spec_for(const fs::path& dir) {
    const std::vector<float> empty = text(9, 1, 4);
    save(dir / "empty.safetensors", {{"prompt_embeds", {empty.data(), {4, kDim}, DType::kF32}}});
    ImportSpec s;
    s.facts = given();
    s.layout = "CTHW";
    s.empty_text = (dir / "empty.safetensors").string();
    s.dtype = DType::kF32;
    s.input_normalised = true;
    return s;
}

}  // namespace

TEST_CASE("npy: headers are read or refused with the reason") {
    const std::string good = npy("<f4", "(2, 3)", raw(std::vector<float>(6)));
    const NpyHeader h = parse_npy_header(good, false, "x");
    CHECK(h.type == StoredType::kF32);
    CHECK(h.shape == Shape{2, 3});
    CHECK(h.bytes == 24);
    CHECK(h.data == static_cast<int64_t>(good.size()) - 24);
    CHECK(parse_npy_header(npy(">f8", "(5,)", ""), false, "x").big_endian);
    CHECK(parse_npy_header(npy("|b1", "()", ""), false, "x").shape.rank == 0);
    CHECK(parse_npy_header(npy("<V2", "(5,)", ""), true, "x").type == StoredType::kBF16);
    const auto refused = [](const std::string& bytes) {
        return refusal_of([&] { (void)parse_npy_header(bytes, false, "x"); });
    };
    CHECK(has(refused(npy("<V2", "(5,)", "")), "--u2-is-bf16"));
    CHECK(has(refused(npy("<f4", "(2, 2)", "", "True")), "ascontiguousarray"));
    CHECK(has(refused(npy("<c8", "(2,)", "")), "'<c8'"));
    CHECK(has(refused(npy("|O", "(2,)", "")), "'|O'"));
    CHECK(has(refused(npy("<f4", "(9223372036854775807, 3)", "")), "overflows"));
    CHECK(has(refused(npy("<f4", "(1,1,1,1,1,1,1)", "")), "'shape'"));
    CHECK(has(refused("GARBAGE"), "no npy"));
    // no mutation of a header does worse than an error
    for (uint64_t m = 0; m < 2000; ++m) {
        std::string bytes = good.substr(0, good.size() - 24);
        for (uint64_t k = 0; k <= m % 3; ++k) {
            const size_t at = random_bits(7, Purpose::kTest, m, 2 * k) % bytes.size();
            bytes[at] = static_cast<char>(random_bits(7, Purpose::kTest, m, 2 * k + 1));
        }
        if (m % 7 == 0) bytes.resize(m % bytes.size());
        const std::string f = refusal_of([&] { (void)parse_npy_header(bytes, false, "x"); });
        REQUIRE((f == "none" || f[0] == '3'));
    }
}

TEST_CASE("npy: numbers of every type, byte order and container") {
    const TempDir dir;
    write_atomic(dir / "a.npy",
                 npy(">i4", "(3,)", std::string("\0\0\0\1\0\0\1\0\xff\xff\xff\xfe", 12)));
    const ArrayFile a(dir / "a.npy");
    std::array<int64_t, 3> whole{};
    a.read(a.arrays()[0], 0, 3, whole.data());
    CHECK(whole == std::array<int64_t, 3>{1, 256, -2});
    write_atomic(dir / "b.npy", npy("<f2", "(2, 1)", std::string("\x00\x3c\x00\xc2", 4)));
    const ArrayFile b(dir / "b.npy");
    std::array<float, 2> real{};
    b.read(b.arrays()[0], 0, 2, real.data());
    CHECK(real == std::array<float, 2>{1.0F, -3.0F});
    CHECK(has(refusal_of([&] {
                  write_atomic(dir / "c.npy", npy("<f4", "(1,)", raw(std::vector<float>{0.5F})));
                  const ArrayFile c(dir / "c.npy");
                  c.read(c.arrays()[0], 0, 1, whole.data());
              }),
              "no whole number"));
    write_atomic(dir / "d.npy", npy("<f4", "(4,)", "too short"));
    CHECK(has(refusal_of([&] { const ArrayFile d(dir / "d.npy"); }), "9 bytes of numbers"));

    const std::string x = npy("<f4", "(2,)", raw(std::vector<float>{1, 2}));
    const std::string y = npy("<i8", "(1,)", raw(std::vector<int64_t>{-7}));
    write_atomic(dir / "e.npz", zip({{"x.npy", x}, {"y.npy", y}}));
    const ArrayFile e(dir / "e.npz");
    REQUIRE(e.arrays().size() == 2);
    CHECK(e.arrays()[0].name == "x");
    e.read(e.arrays()[0], 0, 2, real.data());
    CHECK(real == std::array<float, 2>{1.0F, 2.0F});
    e.read(e.arrays()[1], 0, 1, whole.data());
    CHECK(whole[0] == -7);
    write_atomic(dir / "f.npz", zip({{"x.npy", x}}, 8));
    CHECK(has(refusal_of([&] { const ArrayFile f(dir / "f.npz"); }), "savez"));
    const std::string good = zip({{"x.npy", x}, {"y.npy", y}});
    for (uint64_t m = 0; m < 400; ++m) {
        std::string bytes = good;
        bytes[random_bits(8, Purpose::kTest, m, 0) % bytes.size()] =
            static_cast<char>(random_bits(8, Purpose::kTest, m, 1));
        if (m % 5 == 0) bytes.resize(random_bits(8, Purpose::kTest, m, 2) % bytes.size());
        std::ofstream(dir / "m.npz", std::ios::binary) << bytes;
        const std::string f = refusal_of([&] {
            const ArrayFile z(dir / "m.npz");
            for (const auto& array : z.arrays()) {
                std::vector<float> to(static_cast<size_t>(array.shape.numel()));
                z.read(array, 0, array.shape.numel(), to.data());
            }
        });
        REQUIRE_MESSAGE((f == "none" || f[0] == '3'), f);
    }
}

TEST_CASE("facts: known codecs fill in, contradictions and gaps are named") {
    for (const KnownCodec& k : known_codecs()) {
        CHECK_MESSAGE((k.mean.empty() || k.mean.size() == static_cast<size_t>(k.channels)), k.name);
        CHECK_MESSAGE(k.std.size() == k.mean.size(), k.name);
        for (const double s : k.std) CHECK(s > 0);
    }
    FactsGiven f;
    f.codec = "wan2.1-vae";
    add_known(f);
    CHECK(*f.channels == 16);
    CHECK((*f.mean)[7] == 1.5508);
    CHECK(*f.scale == std::array<int64_t, 3>{4, 8, 8});
    const std::string gaps = refusal_of([&] { (void)complete_facts(f, "here"); });
    CHECK(has(gaps,
              "2: facts of the latents are not stated: normalised, text_encoder, text_dim, "
              "text_len"));
    FactsGiven g;
    g.channels = 48;
    CHECK(has(refusal_of([&] { join_facts(f, g, "the file", "--channels"); }),
              "the file says channels = 16, --channels says 48"));
    CHECK(has(refusal_of([] { (void)facts_given_from_json(R"({"chanels": 3})", "f.json"); }),
              "'chanels' is no fact"));
    CHECK(has(refusal_of([] { (void)facts_given_from_json(R"({"fps": "x"})", "f.json"); }), "fps"));
    CHECK(facts_given_from_json(facts_given_json(f), "x").mean == f.mean);
    f = FactsGiven{};
    f.codec = "flux-vae";
    f.channels = 4;
    CHECK(has(refusal_of([&] { add_known(f); }), "flux-vae has 16 channels"));
}

TEST_CASE("import: every layout and number format, one file a sample") {
    const TempDir dir;
    const std::vector<float> words = text(0, 3, 4);
    int64_t n = 0;
    for (const char* layout : {"CTHW", "TCHW", "THWC", "NCTHW", "NTCHW", "NTHWC"}) {
        const std::vector<float> x = latents(layout, 0, 1);
        Shape s, t{4, kDim};
        for (const char* l = layout; *l != 0; ++l) {
            s.push(*l == 'N' ? 1 : *l == 'C' ? kC : *l == 'T' ? kT : *l == 'H' ? kH : kW);
        }
        const bool batch = layout[0] == 'N';
        if (batch) t = {1, 4, kDim};
        std::vector<bf16> rounded(x.size());
        std::transform(x.begin(), x.end(), rounded.begin(), to_bf16);
        const std::vector<double> wide(x.begin(), x.end());
        const std::array<CTensor, 3> forms{CTensor{x.data(), s, DType::kF32},
                                           CTensor{rounded.data(), s, DType::kBF16},
                                           CTensor{wide.data(), s, DType::kF64}};
        const fs::path in = dir / ("in" + std::to_string(n)),
                       out = dir / ("out" + std::to_string(n));
        ++n;
        fs::create_directory(in);
        for (size_t k = 0; k < forms.size(); ++k) {
            save(in / (std::to_string(k) + ".safetensors"),
                 {{"latents", forms.at(k)}, {"prompt_embeds", {words.data(), t, DType::kF32}}},
                 {{"caption", "clip " + std::to_string(k)}});
        }
        ImportSpec spec = spec_for(dir.path());
        spec.layout = layout;
        spec.inputs = {in};
        const ImportReport r = import_latents(out, spec);
        CHECK(r.train == 3);
        CHECK(r.without_caption == 0);
        const auto got = read_all(out);
        REQUIRE(got.size() == 3);
        const std::vector<float> want = latents("CTHW", 0, 1);
        for (int k = 0; k < 3; ++k) {
            const Got& g = got.at(std::to_string(k));
            CHECK_MESSAGE(g.latent == want, layout);
            CHECK(g.text == words);
            CHECK(g.caption == "clip " + std::to_string(k));
        }
    }
}

TEST_CASE("import: raw latents are normalised, statistics that cannot be are doubted") {
    const TempDir dir;
    const std::vector<float> x = latents("CTHW", 3, 1), words = text(0, 2, 4);
    save(dir / "a.safetensors", {{"latents", {x.data(), {kC, kT, kH, kW}, DType::kF32}},
                                 {"text", {words.data(), {4, kDim}, DType::kF32}}});
    ImportSpec spec = spec_for(dir.path());
    spec.inputs = {dir / "a.safetensors"};
    spec.input_normalised = false;
    const ImportReport r = import_latents(dir / "out", spec);
    CHECK(r.facts.normalised);
    const Got g = read_all(dir / "out").at("a");
    const std::vector<double> mean = *given().mean, std = *given().std;
    for (size_t i = 0; i < x.size(); ++i) {
        const size_t c = i / (kT * kH * kW);
        REQUIRE(g.latent[i] == static_cast<float>((double{x[i]} - mean[c]) / std[c]));
    }
    spec.keep_raw = true;
    const ImportReport kept = import_latents(dir / "raw", spec);
    CHECK(!kept.facts.normalised);
    CHECK(read_all(dir / "raw").at("a").latent == x);
    CHECK(odd_statistics({0.1, -0.2}, {0.9, 1.2}).empty());
    CHECK(!odd_statistics({0.1, -0.2}, {2.9, 1.2}).empty());
    CHECK(!odd_statistics({1.5, -0.2}, {1, 1}).empty());
}

TEST_CASE("import: a batch with masks, captions and ids beside it, and text in files of its own") {
    const TempDir dir;
    const std::vector<float> x = latents("NTCHW", 0, 3);
    std::vector<float> words;
    const std::array<int64_t, 3> rows{2, 4, 0};
    std::vector<uint8_t> mask;
    for (int64_t i = 0; i < 3; ++i) {
        // what lies behind the mask is no zero and must not come through
        const std::vector<float> all = text(i, 4, 4);
        words.insert(words.end(), all.begin(), all.end());
        for (int64_t k = 0; k < 4; ++k) mask.push_back(k < rows.at(static_cast<size_t>(i)));
    }
    save(dir / "b.safetensors", {{"vae_latent", {x.data(), {3, kT, kC, kH, kW}, DType::kF32}},
                                 {"context", {words.data(), {3, 4, kDim}, DType::kF32}},
                                 {"attention_mask", {mask.data(), {3, 4}, DType::kU8}}});
    write_atomic(dir / "b.json", R"([{"caption": "one", "id": "first"}, "two", {"prompt": "3"}])");
    ImportSpec spec = spec_for(dir.path());
    spec.layout = "NTCHW";
    spec.inputs = {dir / "b.safetensors"};
    (void)import_latents(dir / "out", spec);
    auto got = read_all(dir / "out");
    REQUIRE(got.size() == 3);
    CHECK(got.at("first").caption == "one");
    CHECK(got.at("b#1").caption == "two");
    CHECK(got.at("b#2").caption == "3");
    CHECK(got.at("first").text == text(0, 2, 4));
    CHECK(got.at("b#1").text == text(1, 4, 4));
    CHECK(got.at("b#2").text == text(2, 0, 4));
    CHECK(got.at("b#1").latent == latents("CTHW", 1, 1));

    // a table of captions comes before what lies beside
    write_atomic(dir / "table.json", R"({"b#0": "zero", "b#2": "second"})");
    spec.captions = dir / "table.json";
    (void)import_latents(dir / "out2", spec);
    got = read_all(dir / "out2");
    CHECK(got.at("first").caption == "zero");
    CHECK(got.at("b#1").caption == "two");
    CHECK(got.at("b#2").caption == "second");

    // text apart: in a folder, or beside by a pattern; the sample's name cut out of the file's
    fs::create_directories(dir / "l");
    fs::create_directories(dir / "t");
    const std::vector<float> one = latents("CTHW", 5, 1), t = text(5, 3, 4);
    write_atomic(dir / "l" / "clip_8x8.npy", npy("<f4", "(3, 2, 4, 5)", raw(one)));
    write_atomic(dir / "l" / "clip_te.npy", npy("<f4", "(4, 6)", raw(t)));
    write_atomic(dir / "l" / "clip_8x8.txt", "a caption\non two lines\n");
    write_atomic(dir / "t" / "clip.npy", npy("<f4", "(4, 6)", raw(t)));
    spec = spec_for(dir.path());
    spec.inputs = {dir / "l"};
    spec.stem_regex = R"(^(.*)_\d+x\d+$)";
    for (const std::string& where : {(dir / "t").string(), std::string("{dir}/{stem}_te.npy")}) {
        spec.text = where;
        const fs::path out = dir / (where[0] == '{' ? "out3" : "out4");
        const ImportReport r = import_latents(out, spec);
        CHECK(r.bad_files == 0);
        got = read_all(out);
        REQUIRE(got.size() == 1);
        CHECK(got.at("clip").latent == one);
        CHECK(got.at("clip").text == t);
        CHECK(got.at("clip").caption == "a caption on two lines");
    }
}

TEST_CASE("import: shapes become shard sets; bad files are named and left out") {
    const TempDir dir;
    fs::create_directory(dir / "in");
    const std::vector<float> words = text(0, 2, 4);
    const auto put = [&](const std::string& name, std::vector<float> x, Shape s,
                         const std::vector<float>& t, Shape ts) {
        save(dir / "in" / (name + ".safetensors"),
             {{"latents", {x.data(), s, DType::kF32}}, {"text", {t.data(), ts, DType::kF32}}});
    };
    std::vector<float> x = latents("CTHW", 0, 1);
    for (int i = 0; i < 5; ++i) {
        put("a" + std::to_string(i), x, {kC, kT, kH, kW}, words, {4, kDim});
        put("b" + std::to_string(i), x, {kC, kH, kT, kW}, words, {4, kDim});
    }
    put("t_c", x, {kT, kC, kH, kW}, words, {4, kDim});  // the dims are in another order
    put("flat", x, {kC, kT * kH * kW}, words, {4, kDim});
    put("wide", x, {kC, kT, kH, kW}, text(0, 2, 8), {8, 3 * 2});
    put("narrow", x, {kC, kT, kH, kW}, text(0, 2, 4), {8, 3});
    x[7] = NAN;
    put("nan", x, {kC, kT, kH, kW}, words, {4, kDim});
    std::vector<float> seven = text(0, 7, 7);
    put("long", latents("CTHW", 0, 1), {kC, kT, kH, kW}, seven, {7, kDim});
    write_atomic(dir / "in" / "cut.safetensors",
                 read_file(dir / "in" / "a0.safetensors").substr(0, 300));
    ImportSpec spec = spec_for(dir.path());
    spec.inputs = {dir / "in"};
    spec.samples_per_shard = 3;
    spec.valid_fraction = 0.4;
    const ImportReport r = import_latents(dir / "out", spec);
    CHECK(r.files == 17);
    CHECK(r.bad_files == 4);    // t_c, flat, narrow, cut
    CHECK(r.bad_samples == 2);  // nan, long; in wide only two rows are text
    CHECK(r.train + r.valid == 11);
    CHECK(r.valid > 0);
    CHECK(r.shapes.size() == 2);
    CHECK(r.without_caption == 11);
    CHECK(read_all(dir / "out").size() == 11);
    CHECK(!fs::exists(dir / "out" / ".encoding"));
    spec.strict = true;
    CHECK(has(refusal_of([&] { (void)import_latents(dir / "strict", spec); }), "cut.safetensors"));
    CHECK(!fs::exists(dir / "strict"));
    // nothing good: nothing written
    spec.strict = false;
    spec.inputs = {dir / "in" / "nan.safetensors"};
    CHECK(
        has(refusal_of([&] { (void)import_latents(dir / "none", spec); }), "nothing was imported"));
    CHECK(!fs::exists(dir / "none"));
    CHECK(
        has(refusal_of([&] { (void)import_latents(dir / "out", spec); }), "already holds shards"));
}

TEST_CASE("data import: the program says what is missing and what it did") {
    const TempDir dir;
    const std::vector<float> x = latents("CTHW", 0, 1), words = text(0, 2, 4);
    save(dir / "a.safetensors", {{"latents", {x.data(), {kC, kT, kH, kW}, DType::kF32}},
                                 {"text", {words.data(), {4, kDim}, DType::kF32}}});
    const std::string base = program().string() + " data import " +
                             (dir / "a.safetensors").string() + " --layout CTHW --out " +
                             (dir / "out").string();
    Ran ran = run(base);
    CHECK(ran.code == 2);
    CHECK_MESSAGE(has(ran.output, "not stated whether the latents are normalised"), ran.output);
    ran = run(base + " --normalised yes");
    CHECK(ran.code == 2);
    CHECK_MESSAGE(has(ran.output, "--empty-text"), ran.output);
    ran = run(base + " --normalised yes --empty-text zero");
    CHECK(ran.code == 2);
    CHECK_MESSAGE(has(ran.output, "codec, channels, scale, mean, std, text_encoder, text_len"),
                  ran.output);
    write_atomic(dir / "config.json", R"({"latents_mean": [0, 0, 0], "latents_std": [1, 1, 2]})");
    ran = run(base +
              " --normalised yes --empty-text zero --codec mine --channels 3 --scale 4,8,8 "
              "--text-encoder t5 --text-len 4 --fps 16 --vae " +
              (dir / "config.json").string());
    CHECK_MESSAGE(ran.code == 0, ran.output);
    CHECK(has(ran.output, "3,2,4,5: 1 samples"));
    CHECK(has(ran.output, "1 samples have no caption text"));
    ran = run(program().string() + " data verify " + (dir / "out").string());
    CHECK_MESSAGE(ran.code == 0, ran.output);
    ran = run(program().string() + " data import --help");
    for (const char* part : {"wan2.1-vae", "--layout", "--empty-text", "NTCHW"}) {
        CHECK(has(ran.output, part));
    }
}
