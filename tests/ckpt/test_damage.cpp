// SPDX-License-Identifier: MIT
// Whatever is changed in a committed checkpoint is found before a weight of it is used.
#include <algorithm>
#include <fcntl.h>
#include <unistd.h>

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
using doctest::Contains;
using test::Armed;
using test::Mischief;
using test::State;

namespace {

fs::path quiet_save(const fs::path& dir, int64_t step, State& s) {
    CheckpointInfo info;
    info.step = step;
    const Armed quiet(Mischief::kNone, -1);
    return save(dir, info, s.whole(), *self_group());
}

// True if the checkpoint is refused, or loads as exactly `want` with nothing wrong in it.
bool found_out(const fs::path& at, const State& want, bool& refused) {
    refused = false;
    try {
        verify(at);
        State got(0);
        load(at, got.whole());
        return got == want;
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kData);
        refused = true;
        return true;
    }
}

// In place: truncating first would make the file system flush on every close.
void put(const fs::path& path, const std::string& text) {
    const Fd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0666));
    REQUIRE(fd.open());
    pwrite_all(fd, text.data(), static_cast<int64_t>(text.size()), 0, path);
    REQUIRE(::ftruncate(fd.get(), static_cast<off_t>(text.size())) == 0);
}

}  // namespace

TEST_CASE("damage: 3,000 flips, cuts and zeroings of every file are found") {
    const test::TempDir dir;
    State s(7);
    const fs::path at = quiet_save(dir.path(), 10, s);
    int64_t refusals = 0;
    for (const char* name : {"rank-00000.safetensors", kManifestName}) {
        const std::string good = read_file(at / name);
        for (uint64_t n = 0; n < 1500; ++n) {
            CAPTURE(n);
            const auto b = philox::block(31, Purpose::kTest, xxh3(name), n);
            std::string bad = good;
            const size_t place = b[0] % bad.size();
            switch (b[1] % 8) {
                case 0:
                    bad.resize(place);
                    break;
                case 1:
                    bad += good.substr(place);
                    break;
                case 2:
                    for (size_t i = place; i < std::min(place + 64, bad.size()); ++i) bad[i] = 0;
                    break;
                default:
                    bad[place] = static_cast<char>(bad[place] ^ (1 << (b[2] % 8)));
            }
            if (bad == good) continue;
            put(at / name, bad);
            bool refused = false;
            CHECK(found_out(at, s, refused));
            CHECK(refused);
            refusals += refused ? 1 : 0;
        }
        put(at / name, good);
    }
    CHECK(refusals > 2900);
    CHECK_NOTHROW(verify(at));
}

TEST_CASE("damage: missing, swapped and stale files are found, the one before is chosen") {
    const test::TempDir dir;
    State a(7), b(8);
    const fs::path old_one = quiet_save(dir.path(), 10, a);
    const fs::path new_one = quiet_save(dir.path(), 20, b);
    const std::string shard = "rank-00000.safetensors";
    const std::string good = read_file(new_one / shard);
    const std::string manifest = read_file(new_one / kManifestName);

    fs::remove(new_one / shard);
    CHECK_THROWS_WITH_AS(verify(new_one), Contains(shard.c_str()), Error);
    CHECK(find_latest(dir.path()) == old_one);
    put(new_one / shard, good);
    CHECK(find_latest(dir.path()) == new_one);

    fs::remove(new_one / kManifestName);
    CHECK(find_latest(dir.path()) == old_one);
    // the manifest of the other step: its sizes fit, its checksums do not
    put(new_one / kManifestName, read_file(old_one / kManifestName));
    State got(0);
    CHECK_THROWS_WITH_AS((void)load(new_one, got.whole()), Contains("damaged"), Error);
    CHECK_THROWS_AS(verify(new_one), Error);
    put(new_one / kManifestName, manifest);

    // the payload of the other step
    put(new_one / shard, read_file(old_one / shard));
    const auto world = self_group();
    const auto loaded = load_latest(dir.path(), got.whole(), *world, {});
    REQUIRE(loaded.has_value());
    CHECK(loaded->info.step == 10);
    CHECK(got == a);
}

TEST_CASE("damage: two ranks' files changed for each other are found") {
    const test::TempDir dir;
    State s(7);
    CheckpointInfo info;
    info.step = 10;
    // two files of equal size, as two ranks would write them
    Manifest both;
    for (int r = 0; r < 2; ++r) {
        auto states = s.whole();
        for (StateTensor& t : states) t = share_of(t, r, 2);
        states.erase(states.begin() + 3, states.end());
        const fs::path part = dir / fmt::format("part{}", r);
        // complete for the writer: half the elements as a tensor of their own
        for (StateTensor& t : states) {
            t.global = {t.local.numel()};
            t.rect.clear();
            t.flat_begin = 0;
            t.flat_end = -1;
        }
        const Armed quiet(Mischief::kNone, -1);
        const fs::path at = save(part, info, states, *self_group());
        Manifest m = read_manifest(at);
        m.files[0].name = fmt::format("rank-{:05}.safetensors", r);
        for (auto& [key, t] : m.tensors) {
            const std::string& name = key;  // a lambda may not capture a binding
            const auto item = std::find_if(s.items.begin(), s.items.end(),
                                           [&](const test::Item& i) { return i.name == name; });
            const StateTensor share =
                share_of({.name = name, .global = item->shape, .local = item->tensor()}, r, 2);
            t.shape = item->shape;
            t.extents[0].rect = share.rect;
            t.extents[0].flat_begin = share.flat_begin;
            t.extents[0].flat_end = share.flat_end;
        }
        fs::create_directories(dir / "step-00000010");
        fs::copy_file(at / "rank-00000.safetensors", dir / "step-00000010" / m.files[0].name);
        if (r == 0) {
            both = m;
        } else {
            merge(both, m);
        }
    }
    const fs::path at = dir / "step-00000010";
    put(at / kManifestName, encode(both));
    CHECK_NOTHROW(verify(at));
    State got(0);
    auto states = got.whole();
    states.erase(states.begin() + 3, states.end());
    load(at, states);
    for (size_t i = 0; i < 3; ++i) CHECK(got.items[i].bytes == s.items[i].bytes);
    const std::string zero = read_file(at / "rank-00000.safetensors");
    const std::string one = read_file(at / "rank-00001.safetensors");
    REQUIRE(zero.size() == one.size());
    put(at / "rank-00000.safetensors", one);
    put(at / "rank-00001.safetensors", zero);
    CHECK_THROWS_WITH_AS((void)load(at, states), Contains("damaged"), Error);
}

TEST_CASE("damage: 3,000 edited manifests with a fitting checksum are read or refused") {
    const test::TempDir dir;
    State s(7);
    const fs::path at = quiet_save(dir.path(), 10, s);
    const std::string good = read_file(at / kManifestName);
    const size_t head = good.find("\"manifest\":") + 11;
    const size_t hash = good.find("\"xxh3\":\"") + 8;
    int64_t refused = 0;
    for (uint64_t n = 0; n < 3000; ++n) {
        CAPTURE(n);
        std::string body = good.substr(head, good.size() - head - 2);
        for (uint64_t e = 0; e < 1 + n % 3; ++e) {
            const auto b = philox::block(32, Purpose::kTest, n, e);
            const size_t place = b[0] % body.size();
            if (b[1] % 4 == 0) {
                body.erase(place, 1 + b[2] % 8);
            } else {
                body[place] = "0123456789{}[]\",:-eEtn"[b[2] % 22];
            }
        }
        std::string text = good.substr(0, head) + body + "}\n";
        text.replace(hash, 16, hex64(xxh3(body)));
        try {
            const Manifest m = decode(text, "manifest.json");
            check_complete(m, Fault::kData, "manifest.json");
        } catch (const Error& e) {
            CHECK_MESSAGE(e.fault() == Fault::kData, e.what());
            ++refused;
        }
    }
    CHECK(refused > 1500);
    CHECK(refused < 3000);
}
