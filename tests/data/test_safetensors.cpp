// SPDX-License-Identifier: MIT
// Reader and writer against files of the safetensors package (scripts/make_safetensors_fixture.py),
// and against files that break each rule.
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>

#include <doctest/doctest.h>

#include "core/rng.h"
#include "data/safetensors.h"
#include "tests/paths.h"

using namespace vt;
using doctest::Contains;

namespace {

std::string file_of(const std::string& header, const std::string& payload = {}) {
    std::string out;
    for (size_t i = 0; i < 8; ++i) out += static_cast<char>((header.size() >> (8 * i)) & 0xffU);
    return out + header + payload;
}

template <typename T>
std::vector<T> all(const SafetensorsReader& file, const std::string& name) {
    const StoredTensor& t = file.at(name);
    std::vector<T> out(static_cast<size_t>(t.shape.numel()));
    file.read(t, Tensor(out.data(), t.shape, DTypeOf<T>::value));
    return out;
}

struct Plain {
    std::vector<double> a = std::vector<double>(24);
    std::vector<int64_t> b = std::vector<int64_t>(5);
    std::vector<float> c = std::vector<float>(6);
    std::vector<int32_t> d{std::numeric_limits<int32_t>::min(),
                           std::numeric_limits<int32_t>::max()};
    std::vector<bf16> e = std::vector<bf16>(3);
    std::vector<uint8_t> f{250, 251, 252, 253, 254}, g{7};
    Plain() {
        for (size_t i = 0; i < 24; ++i) a[i] = static_cast<double>(i) / 7 - 1;
        for (size_t i = 0; i < 5; ++i) b[i] = (static_cast<int64_t>(i) - 2) * (int64_t{1} << 40);
        for (size_t i = 0; i < 6; ++i) c[i] = static_cast<float>(static_cast<double>(i) / 3);
        for (size_t i = 0; i < 3; ++i) {
            e[i] = to_bf16(static_cast<float>(static_cast<double>(i) / 3));
        }
    }
};

}  // namespace

TEST_CASE("safetensors: a file of the Python package is read") {
    const SafetensorsReader file(test::source_dir() / "tests/data/plain.safetensors");
    const Plain want;
    CHECK(file.tensors().size() == 8);
    CHECK(file.metadata() == std::map<std::string, std::string>{{"format", "pt"}});
    CHECK(file.at("a.f64").shape == Shape{2, 3, 4});
    CHECK(file.at("g.scalar.u8").shape == Shape{});
    CHECK(file.at("h.empty.u8").shape == Shape{0, 4});
    CHECK(all<double>(file, "a.f64") == want.a);
    CHECK(all<int64_t>(file, "b.i64") == want.b);
    CHECK(all<float>(file, "c.f32") == want.c);
    CHECK(all<int32_t>(file, "d.i32") == want.d);
    CHECK(all<uint8_t>(file, "f.u8") == want.f);
    CHECK(all<uint8_t>(file, "g.scalar.u8") == want.g);
    CHECK(all<uint8_t>(file, "h.empty.u8").empty());
    const auto e = all<bf16>(file, "e.bf16");
    for (size_t i = 0; i < 3; ++i) CHECK(e[i].bits == want.e[i].bits);
    CHECK(file.find("nobody") == nullptr);
    CHECK_THROWS_WITH_AS((void)file.at("nobody"), Contains("plain.safetensors"), Error);
}

TEST_CASE("safetensors: the writer's file is the Python package's, byte for byte") {
    const test::TempDir dir;
    Plain p;
    // The package sorts by format, then name; the writer keeps the order given among equal widths.
    write_safetensors(dir / "y.safetensors",
                      {{"b.i64", Tensor(p.b.data(), {5}, DType::kI64)},
                       {"a.f64", Tensor(p.a.data(), {2, 3, 4}, DType::kF64)},
                       {"c.f32", Tensor(p.c.data(), {6, 1}, DType::kF32)},
                       {"d.i32", Tensor(p.d.data(), {1, 2}, DType::kI32)},
                       {"e.bf16", Tensor(p.e.data(), {3}, DType::kBF16)},
                       {"f.u8", Tensor(p.f.data(), {5}, DType::kU8)},
                       {"g.scalar.u8", Tensor(p.g.data(), {}, DType::kU8)},
                       {"h.empty.u8", Tensor(p.f.data(), {0, 4}, DType::kU8)}},
                      {{"format", "pt"}});
    CHECK(read_file(dir / "y.safetensors") ==
          read_file(test::source_dir() / "tests/data/plain.safetensors"));
}

TEST_CASE("safetensors: floating formats convert, integers do not") {
    const SafetensorsReader file(test::source_dir() / "tests/data/half.safetensors");
    const std::vector<float> want{0.0F,     -0.0F,    1.0F,      -2.5F,
                                  65504.0F, 0x1p-24F, -0x1p-15F, 0.333251953125F,
                                  INFINITY, -INFINITY};
    const auto got = all<float>(file, "half");
    CHECK(std::memcmp(got.data(), want.data(), 40) == 0);
    CHECK(all<double>(file, "half")[7] == 0.333251953125);

    const SafetensorsReader plain(test::source_dir() / "tests/data/plain.safetensors");
    const auto narrow_a = all<float>(plain, "a.f64");
    const Plain p;
    for (size_t i = 0; i < 24; ++i) CHECK(narrow_a[i] == static_cast<float>(p.a[i]));
    CHECK(all<float>(plain, "e.bf16")[1] == to_float(p.e[1]));
    std::vector<float> middle(4);
    plain.read(plain.at("a.f64"), 7, Tensor(middle.data(), {4}, DType::kF32));
    CHECK(middle[0] == narrow_a[7]);
    CHECK(middle[3] == narrow_a[10]);
    CHECK_THROWS_WITH_AS((void)all<float>(plain, "b.i64"), Contains("b.i64"), Error);
    CHECK_THROWS_WITH_AS((void)all<int32_t>(plain, "c.f32"), Contains("c.f32"), Error);

    // One rounding, not two: 1 + 2^-8 + 2^-40 lies just above a tie of bf16.
    const test::TempDir dir;
    double just_above = 1 + 0x1p-8 + 0x1p-40;
    write_safetensors(dir / "t", {{"x", Tensor(&just_above, {1}, DType::kF64)}}, {});
    CHECK(to_float(all<bf16>(SafetensorsReader(dir / "t"), "x")[0]) == 1 + 0x1p-7F);
}

TEST_CASE("safetensors: streaming writer takes pieces in any order and refuses gaps") {
    const test::TempDir dir;
    std::vector<float> x(1000);
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
    {
        SafetensorsWriter w(dir / "s", {{"x", DType::kF32, {10, 50}}, {"y", DType::kF32, {500}}},
                            {});
        CHECK(w.header_bytes() % 8 == 0);
        w.write(1, Tensor(x.data() + 500, {100}, DType::kF32));
        w.write(0, Tensor(x.data(), {499}, DType::kF32));
        CHECK_THROWS_AS(w.write(0, Tensor(x.data(), {2}, DType::kF32)), Error);
        CHECK_THROWS_WITH_AS(w.close(), Contains("lacks 4 bytes"), Error);
        w.write(0, Tensor(x.data() + 499, {1}, DType::kF32));
        w.write(1, Tensor(x.data() + 600, {400}, DType::kF32));
        w.close();
    }
    const SafetensorsReader r(dir / "s");
    CHECK(all<float>(r, "x") == std::vector<float>(x.begin(), x.begin() + 500));
    CHECK(all<float>(r, "y") == std::vector<float>(x.begin() + 500, x.end()));
    { const SafetensorsWriter dropped(dir / "gone", {{"x", DType::kF32, {1}}}, {}); }
    CHECK_FALSE(fs::exists(dir / "gone"));
    CHECK_THROWS_AS(
        SafetensorsWriter(dir / "twice", {{"x", DType::kF32, {1}}, {"x", DType::kF32, {1}}}, {}),
        Error);
}

TEST_CASE("safetensors: each broken rule is a data error that names the file") {
    struct Row {
        const char* what;
        std::string content;
    };
    const std::string ok = R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
    const auto entry = [](const std::string& dtype, const std::string& shape,
                          const std::string& at) {
        return R"({"x":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + at +
               "}}";
    };
    const Row rows[] = {
        {"header size alone", "1234567"},
        {"header of", std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10)},
        {"header of", file_of("")},
        {"not begin", file_of("[]")},
        {"not JSON", file_of("{\"x\":")},
        {"not JSON", file_of("{\"\xff\":1}")},
        {"behind the last", file_of(ok, "12345")},
        {"payload of 3", file_of(ok, "123")},
        {"behind the last", file_of("{}", "1")},
        {"appears twice", file_of(R"({"x":{},"x":{}})")},
        {"appears twice",
         file_of(R"({"x":{"dtype":"U8","dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "1234")},
        {"needs exactly", file_of(R"({"x":{"dtype":"U8","shape":[4]}})", "1234")},
        {"dtype", file_of(entry("\"F8\"", "[4]", "[0,4]"), "1234")},
        {"dtype", file_of(entry("4", "[4]", "[0,4]"), "1234")},
        {"shape", file_of(entry("\"U8\"", "4", "[0,4]"), "1234")},
        {"shape", file_of(entry("\"U8\"", "[-4]", "[0,4]"), "1234")},
        {"shape", file_of(entry("\"U8\"", "[4.0]", "[0,4]"), "1234")},
        {"rank 7", file_of(entry("\"U8\"", "[1,1,1,1,1,1,4]", "[0,4]"), "1234")},
        {"overflows", file_of(entry("\"U8\"", "[4294967296,4294967296]", "[0,4]"), "1234")},
        {"overflows", file_of(entry("\"U8\"", "[0,4294967296,4294967296]", "[0,0]"))},
        {"data_offsets", file_of(entry("\"U8\"", "[4]", "[4]"), "1234")},
        {"data_offsets", file_of(entry("\"U8\"", "[4]", "[4,0]"), "1234")},
        {"needs 16", file_of(entry("\"F32\"", "[4]", "[0,4]"), "1234")},
        {"begins at byte 1", file_of(entry("\"U8\"", "[3]", "[1,4]"), "1234")},
        {"begins at byte 2", file_of(R"({"x":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                                     R"("y":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}})",
                                     "123456")},
        {"too deeply", file_of(entry("\"U8\"", "[[[4]]]", "[0,4]"), "1234")},
        {"not a string", file_of(R"({"__metadata__":{"a":1}})")},
        {"too deeply", file_of("{\"x\":" + std::string(100000, '['))},
    };
    const test::TempDir dir;
    for (const Row& row : rows) {
        CAPTURE(row.what);
        write_atomic(dir / "bad.safetensors", row.content);
        try {
            const SafetensorsReader r(dir / "bad.safetensors");
            FAIL("accepted");
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kData);
            CHECK(e.message().find("bad.safetensors") != std::string::npos);
            CHECK_MESSAGE(e.message().find(row.what) != std::string::npos, e.message());
        }
    }
    CHECK_THROWS_WITH_AS(SafetensorsReader(dir / "none"), Contains("No such file"), Error);
}

TEST_CASE("safetensors: 4,000 mutated headers: read or refused, never worse") {
    const std::string seed_file = read_file(test::source_dir() / "tests/data/plain.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, seed_file.data(), 8);
    const test::TempDir dir;
    int accepted = 0, refused = 0;
    for (uint64_t i = 0; i < 4000; ++i) {
        std::string s = seed_file;
        const auto draw = [&](uint64_t k, uint64_t below) {
            const auto b = philox::block(11, Purpose::kTest, i, k);
            return b[0] % below;
        };
        const uint64_t edits = 1 + draw(0, 3);
        for (uint64_t e = 0; e < edits; ++e) {
            const uint64_t at = draw(10 * e + 1, 8 + header);
            switch (draw(10 * e + 2, 4)) {
                case 0:  // flip a bit
                    s[at] = static_cast<char>(s[at] ^ (1 << draw(10 * e + 3, 8)));
                    break;
                case 1:  // another digit, bracket or quote
                    s[at] = "0123456789{}[]\",:-eE"[draw(10 * e + 3, 20)];
                    break;
                case 2:  // cut the file
                    if (draw(10 * e + 3, 8) == 0) s.resize(std::max<size_t>(at, 1) + 200);
                    break;
                default:  // move a piece
                    std::memmove(s.data() + at / 2, s.data() + at,
                                 std::min<size_t>(16, 8 + header - at));
            }
        }
        write_atomic(dir / "m", s);
        try {
            const SafetensorsReader r(dir / "m");
            for (const StoredTensor& t : r.tensors()) {  // whatever was accepted can be read
                std::vector<char> raw(static_cast<size_t>(t.bytes) + 1);
                DType same = DType::kF32;
                for (const DType d : {DType::kF64, DType::kF32, DType::kBF16, DType::kI64,
                                      DType::kI32, DType::kU8}) {
                    if (stored(d) == t.type) same = d;
                }
                if (t.type != StoredType::kF16) r.read(t, Tensor(raw.data(), t.shape, same));
            }
            ++accepted;
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kData);
            ++refused;
        }
    }
    CHECK(accepted > 100);  // a renamed tensor or other metadata is still a valid file
    CHECK(refused > 2000);
}
