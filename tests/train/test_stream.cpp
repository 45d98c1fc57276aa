// SPDX-License-Identifier: MIT
// What a run keeps of its stream of samples over restarts, and how it ends when there is no data.
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include "data/watch.h"
#include "tests/train/rig.h"
#include "train/events.h"

using namespace vt;
using namespace vt::test;

namespace {

const std::vector<std::array<int64_t, 4>> kShapes = {{3, 1, 2, 2}, {3, 2, 2, 2}};

// The sample `bad` cannot be read, and from `stuck` on reads do not come back.
class Failing final : public FakeData {
  public:
    using FakeData::FakeData;
    int64_t bad = -1;
    std::atomic<int64_t> reads{0};
    int64_t stuck = -1;
    // of the readers themselves, so that one that is left behind may end after everything else
    struct Gate {
        std::mutex mutex;
        std::condition_variable cv;
        bool open = false;
        std::atomic<int> inside{0};
    };
    std::shared_ptr<Gate> gate = std::make_shared<Gate>();
    void read_watched(int s, int64_t i, Tensor latent, Tensor text,
                      ReadWatch* watch) const override {
        if (i == bad) raise(Fault::kData, "sample " + std::to_string(i) + " is bad");
        if (stuck >= 0 && const_cast<Failing*>(this)->reads++ >= stuck) {
            const std::shared_ptr<Gate> own = gate;
            if (watch != nullptr) watch->look_at("dead-server/a.h5");
            watched(watch, [&] {
                std::unique_lock lock(own->mutex);
                ++own->inside;
                own->cv.wait(lock, [&] { return own->open; });
                --own->inside;
            });
        }
        read(s, i, latent, text);
    }
};

std::string extra_of(const fs::path& dir, const char* key) {
    const CheckpointInfo info = read_info(dir);
    const auto it = info.extra.find(key);
    return it == info.extra.end() ? "" : it->second;
}

}  // namespace

TEST_CASE("stream: after a change of data a new epoch begins, and resumes exactly") {
    const FakeData before(9, kShapes, 11), after(14, kShapes, 12);
    TempDir dir;
    RunConfig c = tiny_config(dir / "whole");
    c.run.train_iters = 3;
    (void)train(c, before);
    c.run.train_iters = 10;
    CHECK_THROWS_AS((void)train(c, after), Error);  // refused by default
    c.data.on_change = "new_epoch";
    // the same in two pieces
    fs::copy(dir / "whole", dir / "pieces", fs::copy_options::recursive);
    const RunOutcome whole = train(c, after);
    CHECK(extra_of(whole.last, "order_origin") == "12");
    RunConfig p = c;
    p.run.out = (dir / "pieces").string();
    p.run.train_iters = 6;
    CHECK(extra_of(train(p, after).last, "order_origin") == "12");
    p.run.train_iters = 10;
    p.data.on_change = "refuse";  // the data is the checkpoint's by now
    const RunOutcome pieces = train(p, after);
    CHECK(extra_of(pieces.last, "order_origin") == "12");
    REQUIRE(whole.loss.size() == 10);
    CHECK(pieces.loss == whole.loss);
    CHECK(pieces.norm == whole.norm);
    CHECK(read_info(pieces.last).cursor == 40);
}

TEST_CASE("stream: bad samples are counted over restarts") {
    Failing data(9, kShapes);
    data.bad = 4;
    TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.run.train_iters = 3;
    c.data.max_bad_samples = 1;
    RunOutcome out = train(c, data);
    CHECK(extra_of(out.last, "bad_samples") == "0 0:4");
    const std::string replaced = extra_of(out.last, "replaced_samples");
    CHECK(std::stoi(replaced) >= 1);
    // the second one is one too many, though it is the first of its process
    data.bad = 5;
    c.run.train_iters = 8;
    try {
        (void)train(c, data);
        FAIL("no error");
    } catch (const Error& e) {
        CHECK(e.fault() == Fault::kData);
        CHECK(e.message().find("2 bad samples, more than data.max_bad_samples = 1") !=
              std::string::npos);
    }
    c.data.max_bad_samples = 2;
    out = train(c, data);
    CHECK(out.code == 0);
    CHECK(extra_of(out.last, "bad_samples") == "0 0:4 0:5");
    CHECK(std::stoi(extra_of(out.last, "replaced_samples")) > std::stoi(replaced));
}

TEST_CASE("stream: events name the bad samples of a step, up to a number") {
    struct Bad final : FakeData {
        using FakeData::FakeData;
        int64_t first_bad = 0;
        void read(int s, int64_t i, Tensor l, Tensor t) const override {
            if (i >= first_bad) vt::raise(Fault::kData, "does not match its checksum");
            FakeData::read(s, i, l, t);
        }
    };
    const TempDir dir;
    const auto texts = [&](int64_t first_bad, const std::string& name) {
        Bad data(24, {kShapes.front()});
        data.first_bad = first_bad;
        RunConfig c = tiny_config(dir / name);
        c.run.train_iters = 1;
        c.data.global_batch_size = 24;  // an epoch: every bad sample is drawn
        c.data.max_bad_samples = 24;
        CHECK(train(c, data).code == 0);
        std::vector<std::string> out;
        for (const RunEvent& e : read_events(fs::path(c.run.out) / "events.jsonl")) {
            if (e.kind == EventKind::kBadSample) out.push_back(e.text);
        }
        return out;
    };
    CHECK(texts(24, "none").empty());
    const std::vector<std::string> one = texts(23, "one"), many = texts(4, "many");
    REQUIRE(one.size() == 1);
    uint64_t draw = 0;
    while (draw_at(FakeData(24, {kShapes.front()}), 5, draw).index != 23) ++draw;
    CHECK(one[0] == fmt::format("1 sample replaced: source 0, sample 23: does not match its "
                                "checksum (id 23, draw {})",
                                draw));
    REQUIRE(many.size() == 1);
    CHECK(many[0].starts_with("20 samples replaced: source 0, sample "));
    size_t named = 0;
    for (size_t at = 0; (at = many[0].find("(id ", at)) != std::string::npos; ++at) ++named;
    CHECK(named == 8);
    // bad ones that were tried as substitutes count among those not named
    const size_t more = many[0].find("; and ");
    REQUIRE(more != std::string::npos);
    CHECK(std::stoi(many[0].substr(more + 6)) >= 12);
}

TEST_CASE("stream: a signal during a stall saves and ends with 75") {
    Failing data(9, kShapes);
    data.stuck = 4 * 6;  // six steps' worth of samples
    TempDir dir;
    RunConfig c = tiny_config(dir / "run");
    c.run.train_iters = 50;
    c.data.stall_warn_s = 0.1;
    std::thread user([&] {
        while (data.gate->inside == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        ::kill(::getpid(), SIGUSR1);
    });
    const auto start = std::chrono::steady_clock::now();
    const RunOutcome out = train(c, data);
    user.join();
    CHECK(out.code == kExitRequeue);
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(10));
    REQUIRE(!out.last.empty());
    const CheckpointInfo info = read_info(out.last);
    CHECK(info.step >= 4);  // reading ahead of step 7 does not take steps 1 to 6 away
    CHECK(info.cursor == static_cast<uint64_t>(info.step) * 4);
    {
        const std::lock_guard lock(data.gate->mutex);
        data.gate->open = true;
        data.gate->cv.notify_all();
    }
    while (data.gate->inside > 0) std::this_thread::yield();
    data.stuck = -1;
    c.run.train_iters = info.step + 2;
    CHECK(train(c, data).code == 0);  // and goes on
}
