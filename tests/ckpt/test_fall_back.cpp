// SPDX-License-Identifier: MIT
// A run's folder whose newest checkpoint is damaged in any of many ways: what is loaded is a state
// that was saved, never a mixture, and it is the newest one that is whole.
#include <algorithm>
#include <cstdlib>

#include <doctest/doctest.h>

#include "ckpt/load.h"
#include "ckpt/manifest.h"
#include "ckpt/run_dir.h"
#include "ckpt/save.h"
#include "core/hash.h"
#include "tests/ckpt/fault_shim.h"
#include "tests/ckpt/states.h"
#include "tests/paths.h"

using namespace vt;
using test::Armed;
using test::Mischief;
using test::State;

namespace {

constexpr const char* kShard = "rank-00000.safetensors";

void put(const fs::path& path, const std::string& bytes) {
    const Fd fd = create_write(path);
    write_all(fd, bytes.data(), std::ssize(bytes), path);
}

// The manifest with one of its digits or letters changed, and a checksum that fits again.
std::string forged(const std::string& text, uint64_t draw) {
    const size_t head = text.find("\"manifest\":") + 11, hash = text.find("\"xxh3\":\"") + 8;
    std::string body = text.substr(head, text.size() - head - 2);
    // among the tensors, where a change is about what is loaded
    const size_t from = body.find("\"files\":");
    for (uint64_t n = 0;; ++n) {
        const auto b = philox::block(52, Purpose::kTest, draw, n);
        char& c = body[from + b[0] % (body.size() - from)];
        const std::string_view digits = "0123456789abcdef";
        if (digits.find(c) == std::string_view::npos) continue;
        const char next = digits[b[1] % (c <= '9' ? 10 : 16)];
        if (next == c) continue;
        c = next;
        break;
    }
    std::string out = text.substr(0, head) + body + "}\n";
    out.replace(hash, 16, hex64(xxh3(body)));
    return out;
}

}  // namespace

TEST_CASE("fall back: the newest whole one of three, whatever was done to the newest") {
    const test::TempDir temp;
    const fs::path good = temp / "good", run = temp / "run";
    {
        const Armed quiet(Mischief::kNone, -1);
        for (const int64_t step : {10, 20, 30}) {
            State s(static_cast<uint64_t>(step));
            CheckpointInfo info;
            info.step = step;
            info.run_id = "run-a";
            save(good, info, s.whole(), *self_group());
        }
    }
    const uint64_t wanted = std::getenv("VTRAIN_TEST_FULL") != nullptr ? 4000 : 200;
    const auto world = self_group();
    int64_t fell_back = 0, identical = 0;
    for (uint64_t n = 0; n < wanted; ++n) {
        CAPTURE(n);
        fs::remove_all(run);
        fs::copy(good, run, fs::copy_options::recursive);
        const auto b = philox::block(51, Purpose::kTest, n, 0);
        const fs::path newest = run / step_name(30);
        const fs::path file = newest / (b[0] % 3 == 0 ? kManifestName : kShard);
        const fs::path other = run / step_name(b[1] % 2 == 0 ? 20 : 10) / file.filename();
        std::string bytes = read_file(file);
        const size_t place = b[2] % bytes.size();
        bool may_be_read = false;  // a forged manifest may say the same in other words
        switch (n % 10) {
            case 0:
                bytes[place] = static_cast<char>(bytes[place] ^ (1 << (b[3] % 8)));
                put(file, bytes);
                break;
            case 1:
                put(file, bytes.substr(0, place));
                break;
            case 2:
                std::fill(bytes.begin() + static_cast<std::ptrdiff_t>(place), bytes.end(), '\0');
                bytes[place] = static_cast<char>(~read_file(file)[place]);  // surely another
                put(file, bytes);
                break;
            case 3:
                fs::remove(file);
                break;
            case 4:  // two files of two checkpoints in each other's place
                put(file, read_file(other));
                put(other, bytes);
                break;
            case 5:  // an older copy
                put(file, read_file(other));
                break;
            case 6:
                put(file, bytes + bytes.substr(place));
                break;
            case 7:
                put(file, "");
                break;
            case 8:  // a folder where a file was
                fs::remove(file);
                fs::create_directory(file);
                break;
            default:
                put(newest / kManifestName, forged(read_file(newest / kManifestName), n));
                may_be_read = true;
        }
        State got(0);
        const Armed quiet(Mischief::kNone, -1);
        const auto loaded = load_latest(run, got.whole(), *world, {});
        REQUIRE(loaded.has_value());
        uint64_t found = 0;
        for (const uint64_t step : {10, 20, 30}) {
            if (got == State(step)) found = step;
        }
        CHECK(found != 0);
        if (found == 30) CHECK(may_be_read);
        CHECK(found == static_cast<uint64_t>(loaded->info.step));
        (found == 30 ? identical : fell_back) += 1;
    }
    MESSAGE(fell_back << " times an older one, " << identical << " times the same tensors");
    CHECK(fell_back > static_cast<int64_t>(wanted) * 8 / 10);
}
