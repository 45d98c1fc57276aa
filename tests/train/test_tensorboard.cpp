// SPDX-License-Identifier: MIT
// Event files: the checksum against its published check value, the framing and messages byte by
// byte.
#include <bit>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <doctest/doctest.h>

#include "core/file.h"
#include "data/image.h"
#include "tests/paths.h"
#include "train/tensorboard.h"

namespace vt {

namespace {

uint64_t little(std::string_view s, size_t bytes) {
    uint64_t v = 0;
    for (size_t i = 0; i < bytes; ++i) v |= uint64_t{static_cast<unsigned char>(s[i])} << (8 * i);
    return v;
}

uint32_t masked(std::string_view s) {
    const uint32_t c = crc32c(s);
    return ((c >> 15) | (c << 17)) + 0xa282ead8U;
}

// The messages of a file whose every checksum holds.
std::vector<std::string> records(const std::string& file) {
    std::vector<std::string> out;
    std::string_view rest = file;
    while (rest.size() >= 12) {
        const auto size = static_cast<size_t>(little(rest, 8));
        CHECK(little(rest.substr(8), 4) == masked(rest.substr(0, 8)));
        REQUIRE(rest.size() >= size + 16);
        out.emplace_back(rest.substr(12, size));
        CHECK(little(rest.substr(12 + size), 4) == masked(out.back()));
        rest.remove_prefix(size + 16);
    }
    CHECK(rest.empty());
    return out;
}

}  // namespace

TEST_CASE("tensorboard: CRC-32C") {
    // check value of CRC-32/ISCSI in the catalogue of parametrised CRC algorithms
    CHECK(crc32c("123456789") == 0xe3069283U);
    CHECK(crc32c("") == 0);
    // RFC 3720, B.4: 32 bytes of zeros
    CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
}

TEST_CASE("tensorboard: records and messages") {
    const test::TempDir dir;
    EventsFile file(dir / "tb", 0);
    MetricRow row;
    row.step = 300;
    row.loss = 0.5;
    row.extra = {{"q0", -2.0}};
    file.append(row);
    row = {};
    file.append(row);  // nothing set: no record
    const auto messages = records(read_file(file.path()));
    REQUIRE(messages.size() == 2);
    // wall_time is 9 bytes, step 2
    CHECK(messages[0].substr(9) == std::string("\x10\x00\x1a\x0d", 4) + "brain.Event:2");
    CHECK(std::bit_cast<double>(little(std::string_view(messages[0]).substr(1), 8)) > 1.6e9);
    const std::string loss =
        std::string("\x0a\x0atrain/loss\x15", 13) + std::string("\x00\x00\x00\x3f", 4);
    const std::string q0 =
        std::string("\x0a\x08train/q0\x15", 11) + std::string("\x00\x00\x00\xc0", 4);
    CHECK(messages[1].substr(9) ==
          std::string("\x10\xac\x02\x2a\x24", 5) + "\x0a\x11" + loss + "\x0a\x0f" + q0);
}

TEST_CASE("tensorboard: a resume begins a later file with the mark that drops later steps") {
    const test::TempDir dir;
    const EventsFile first(dir.path(), 0);
    const EventsFile second(dir.path(), 100);
    CHECK(first.path().string() < second.path().string());
    const auto messages = records(read_file(second.path()));
    REQUIRE(messages.size() == 2);
    CHECK(messages[1].substr(9) == std::string("\x10\x65\x3a\x02\x08\x01", 6));
}

TEST_CASE("tensorboard: its own reader finds scalars, steps, wall times and pictures") {
    const char* given = std::getenv("VTRAIN_TEST_PYTHON");
    const std::string python =
        given != nullptr ? given : (test::source_dir() / "build/venv/bin/python").string();
    if (test::run(python + " -c 'import tensorboard'").code != 0) {
        MESSAGE("skipped: no Python with tensorboard (scripts/venv.sh makes one)");
        return;
    }
    const test::TempDir dir;
    const auto now = [] {
        return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    };
    const double begin = now();
    const auto row = [](int64_t step, double loss, bool eval) {
        MetricRow r;
        r.step = step;
        r.loss = loss;
        r.eval = eval;
        r.extra = {{"loss/t_0.2-0.3", 2 * loss}};
        return r;
    };
    const std::vector<uint8_t> rgb(5 * 7 * 3, 100);
    {
        EventsFile file(dir.path(), 0);
        for (const int64_t s : {1, 2, 300, 301})
            file.append(row(s, 0.5 / static_cast<double>(s), false));
        file.append(row(300, 0.25, true));
        file.append_image("samples/0", 300, encode_png(rgb.data(), 5, 7), 5, 7);
    }
    {
        EventsFile file(dir.path(), 300);  // a resume: step 301 is to be forgotten
        file.append(row(302, 8, false));
    }
    const auto ran = test::run(fmt::format(
        "{} {} {} 2>/dev/null", python,
        (test::source_dir() / "tests/train/read_events.py").string(), dir.path().string()));
    CAPTURE(ran.output);
    REQUIRE(ran.code == 0);
    const auto read = nlohmann::json::parse(ran.output.substr(ran.output.find("\n{") + 1));
    std::vector<std::pair<int64_t, float>> seen;
    for (const auto& e : read["scalars"]["train/loss"]) {
        seen.emplace_back(e[0].get<int64_t>(), e[1].get<float>());
        CHECK(e[2].get<double>() >= begin);
        CHECK(e[2].get<double>() <= now());
    }
    CHECK(seen == std::vector<std::pair<int64_t, float>>{
                      {1, 0.5F}, {2, 0.25F}, {300, 0.5F / 300}, {302, 8.0F}});
    CHECK(read["scalars"]["eval/loss"][0][1] == 0.25);
    CHECK(read["scalars"]["loss/t_0.2-0.3"].size() == 4 + 1);  // one of them of the validation
    CHECK(read["images"]["samples/0"] == nlohmann::json::parse(R"([[300, 7, 5, "89504e47"]])"));
}

}  // namespace vt
