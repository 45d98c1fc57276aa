// SPDX-License-Identifier: MIT
// The loader on files and file systems that fail: for a while, for good, or without an answer.
#include <cerrno>
#include <chrono>
#include <set>
#include <sys/stat.h>
#include <thread>

#include <doctest/doctest.h>

#include "core/check.h"
#include "data/patient.h"
#include "tests/data/read_shim.h"
#include "tests/data/refused.h"
#include "tests/data/running.h"

using namespace vt;
using namespace vt::test;

namespace {

using Clock = std::chrono::steady_clock;

double since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

LoaderOptions quick() {
    LoaderOptions o = kOptions;
    o.retry = {.tries = 4, .pause_s = 0.001};
    return o;
}

int64_t count_of(const std::string& text, const std::string& part) {
    int64_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
    return n;
}

std::vector<uint64_t> hashes(const Dataset& d, const LoaderOptions& o, int steps) {
    Running run(d, o, 0);
    std::vector<uint64_t> out;
    for (int i = 0; i < steps; ++i) out.push_back(hash_of(run.loader->next(nullptr)));
    return out;
}

// One source of two files of one shape, 20 and 30 samples; nothing has been opened yet.
struct TwoFiles {
    TempDir dir;
    fs::path a = write_small(dir / "a.h5", small_facts(), {3, 1, 2, 2}, 1, 20);
    fs::path b = write_small(dir / "b.h5", small_facts(), {3, 1, 2, 2}, 2, 30);
    std::unique_ptr<Dataset> data = Dataset::open({source_of({a, b}, 1, "clips/*.h5")}, kChild);
};

}  // namespace

TEST_CASE("faults: errors that pass are tried again and change nothing") {
    const Shards s;
    const std::vector<uint64_t> want = hashes(*s.data, quick(), 5);
    for (const int number : {EIO, ESTALE, EAGAIN, ETIMEDOUT, EINTR}) {
        CAPTURE(number);
        const Stderr said;
        const BadReads bad("a.h5", BadReads::Kind::kError, 3, number);
        CHECK(hashes(*s.data, quick(), 5) == want);
        CHECK(bad.calls() > 3);
        // EINTR is no failure at all
        CHECK(count_of(said.text(), "try 4 succeeded") <= 1);
        if (number == EINTR) CHECK(said.text().empty());
    }
    SUBCASE("a wrong read is asked for once more") {
        const Stderr said;
        const BadReads bad("a.h5", BadReads::Kind::kWrong, 1);
        CHECK(hashes(*s.data, quick(), 5) == want);
        CHECK(has(said.text(), "the first read gave wrong bytes, the second the right ones"));
    }
}

TEST_CASE("faults: an I/O error that stays ends the run at its step, naming file and source") {
    for (const int threads : {1, 3}) {
        for (const int ahead : {1, 4}) {
            const TwoFiles s;
            LoaderOptions o = quick();
            o.global_batch_size = 3;
            o.reader_threads = threads;
            o.prefetch_steps = ahead;
            // the first step that asks for b.h5
            int64_t first = 0;
            const auto in_b = [&](int64_t step) {
                for (uint64_t i = 0; i < 3; ++i) {
                    const Draw d = draw_at(*s.data, 6, static_cast<uint64_t>(step) * 3 + i);
                    if (s.data->sample(0, d.index).file == 1) return true;
                }
                return false;
            };
            while (!in_b(first)) ++first;
            const BadReads bad("b.h5", BadReads::Kind::kError, -1, EIO);
            Running run(*s.data, o, 0);
            for (int64_t i = 0; i < first; ++i) CHECK_NOTHROW((void)run.loader->next(nullptr));
            for (int again = 0; again < 2; ++again) {
                try {
                    (void)run.loader->next(nullptr);
                    FAIL("no error");
                } catch (const Error& e) {
                    CHECK(e.fault() == Fault::kSystem);  // a restart may help
                    CHECK(has(e.message(),
                              "b.h5: Input/output error; it holds 30 samples of data "
                              "source 'clips/*.h5'"));
                    CHECK(has(e.hint(), "data.on_bad_file"));
                }
            }
        }
    }
}

TEST_CASE("faults: a bad file is said once, and its samples are replaced without another look") {
    std::vector<uint64_t> want;
    for (const int threads : {1, 2, 5}) {
        const TwoFiles s;
        LoaderOptions o = quick();
        o.reader_threads = threads;
        o.replace_bad_files = true;
        o.max_bad_samples = 0;  // they are no bad samples
        const BadReads bad("b.h5", BadReads::Kind::kError, -1, ESTALE);
        const Stderr said;
        Running run(*s.data, o, 0);
        int64_t replaced = 0, expected = 0;
        for (uint64_t step = 0; step < 12; ++step) {
            const StepBatch& b = run.loader->next(nullptr);
            replaced += b.replaced;
            CHECK(std::ssize(b.bad) == b.replaced);
            for (size_t i = 0; i < b.bad.size(); ++i) {
                const Draw& d = b.bad[i].draw;
                CHECK(d.index == draw_at(*s.data, 6, d.ordinal).index);
                CHECK(b.bad[i].of_bad_file);
                CHECK(has(s.data->sample_place(0, d.index),
                          fmt::format("b.h5, row {}", s.data->sample(0, d.index).row)));
                if (i > 0) CHECK(b.bad[i - 1].draw.ordinal < d.ordinal);
            }
            for (const MicroBatch& m : b.micros) {
                for (const Draw& d : m.draws) {
                    CHECK(s.data->sample(0, d.index).file == 0);
                    const Draw drawn = draw_at(*s.data, 6, d.ordinal);
                    expected += s.data->sample(0, drawn.index).file == 1 ? 1 : 0;
                }
            }
            if (threads == 1) want.push_back(hash_of(b));
            CHECK(hash_of(b) == want[step]);
        }
        CHECK(replaced == expected);
        CHECK(replaced > 40);
        CHECK(run.loader->ledger().total() == 0);
        CHECK(count_of(said.text(), "bad file: ") == 1);
        CHECK(has(said.text(), "b.h5: Stale file handle (draw "));
        CHECK(has(said.text(), "its 30 samples are replaced by others from now on"));
        // 4 tries of each thread that was already at it, and no more
        CHECK(bad.calls() <= 4 * threads);
    }
}

TEST_CASE("faults: vanished, replaced, cut and emptied files") {
    const auto fault_of = [](const std::function<void(const TwoFiles&)>& harm, bool opened) {
        const TwoFiles s;
        LoaderOptions o = quick();
        std::vector<float> latent(12), text(24);
        if (opened) {
            s.data->read(0, 20, {latent.data(), {3, 1, 2, 2}, DType::kF32},
                         {text.data(), {4, 6}, DType::kF32});
        }
        harm(s);
        std::pair<Fault, std::string> out{Fault::kBug, ""};
        {
            Running run(*s.data, o, 0);
            try {
                for (int i = 0; i < 6; ++i) (void)run.loader->next(nullptr);
            } catch (const Error& e) {
                out = {e.fault(), e.message()};
            }
        }
        // and with the other policy the run goes on
        const Stderr said;
        o.replace_bad_files = true;
        Running run(*s.data, o, 0);
        for (int i = 0; i < 6; ++i) CHECK_NOTHROW((void)run.loader->next(nullptr));
        CHECK(count_of(said.text(), "bad file: ") == (out.second.empty() ? 0 : 1));
        return out;
    };
    auto [fault, message] = fault_of([](const TwoFiles& s) { fs::remove(s.b); }, false);
    CHECK(fault == Fault::kData);
    CHECK(has(message, "b.h5: No such file or directory; it holds 30 samples"));
    // an open file that is unlinked keeps its bytes
    CHECK(fault_of([](const TwoFiles& s) { fs::remove(s.b); }, true).second.empty());
    const auto other = [](const TwoFiles& s) {
        fs::remove(s.b);
        write_small(s.b, small_facts(), {3, 1, 2, 2}, 9, 30);
    };
    std::tie(fault, message) = fault_of(other, false);
    CHECK(fault == Fault::kData);
    CHECK(has(message, "b.h5 is not the file that was indexed"));
    for (const uintmax_t size : {uintmax_t{0}, uintmax_t{2000}}) {
        std::tie(fault, message) =
            fault_of([&](const TwoFiles& s) { fs::resize_file(s.b, size); }, true);
        CHECK(fault == Fault::kData);
        CHECK(has(message, "(the file changed while the run reads it); it holds 30 samples"));
        CHECK(fault_of([&](const TwoFiles& s) { fs::resize_file(s.b, size); }, false).first ==
              Fault::kData);
    }
    if (::geteuid() != 0) {  // root may read anything
        std::tie(fault, message) =
            fault_of([](const TwoFiles& s) { ::chmod(s.b.c_str(), 0); }, false);
        CHECK(has(message, "Permission denied"));
    }
    CHECK(FileFault("x", 0, 1, EACCES).fault() == Fault::kData);
    CHECK(!FileFault("x", 0, 1, EACCES).may_pass());
    CHECK(FileFault("x", 0, 1, ESTALE).may_pass());
}

TEST_CASE("faults: a stall is reported, survived, and ends at a signal") {
    const Shards s;
    LoaderOptions o = quick();
    o.stall_warn_s = 0.1;
    o.leave_after_s = 0.2;
    const std::vector<uint64_t> want = hashes(*s.data, o, 4);
    SUBCASE("it passes") {
        BadReads bad("c.h5", BadReads::Kind::kHang, -1);
        const Stderr said;
        Running run(*s.data, o, 0);
        std::thread server([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(400));
            bad.release();
        });
        double wait = 0;
        for (int i = 0; i < 4; ++i) CHECK(hash_of(run.loader->next(&wait)) == want.at(i));
        server.join();
        CHECK(wait > 0.2);
        CHECK(has(said.text(), "has waited 0 s for the file system to read "));
        CHECK(has(said.text(), "c.h5; training waits"));
    }
    SUBCASE("it stays: the reader is left behind, and may come back when all is gone") {
        BadReads bad("c.h5", BadReads::Kind::kHang, -1);
        const auto start = Clock::now();
        {
            auto data = Dataset::open(s.specs, kChild);
            auto run = std::make_unique<Running>(*data, o, 0);
            bool stop = false;
            const auto stop_soon = [&] { return stop || bad.hanging() > 0; };
            const StepBatch* b = nullptr;
            int given = 0;
            while ((b = run->loader->next_unless(stop_soon, nullptr)) != nullptr) ++given;
            CHECK(given < 4);
            CHECK(bad.hanging() >= 1);
            stop = true;
            CHECK(run->loader->next_unless(stop_soon, nullptr) == nullptr);  // and so again
            run.reset();
            data.reset();
        }
        CHECK(since(start) < 3);
        bad.release();
        while (bad.hanging() > 0) std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(50));  // it ends by itself
    }
    SUBCASE("the same for one sample of a validation") {
        BadReads bad("c.h5", BadReads::Kind::kHang, -1);
        StallReport report(0.05);
        const Stderr said;
        std::vector<float> latent(96), text(24);
        const auto start = Clock::now();
        const auto stop = [&] { return since(start) > 0.3; };
        const auto read = [&](const std::function<bool()>& until) {
            return read_patiently(*s.data, 1, 0, {latent.data(), {3, 2, 4, 4}, DType::kF32},
                                  {text.data(), {4, 6}, DType::kF32}, o.retry, report, until);
        };
        CHECK(!read(stop));
        CHECK(since(start) < 2);
        CHECK(has(said.text(), "validation has waited"));
        bad.release();
        CHECK(read({}));
        const ShardSample sample = small_sample(s.facts, {3, 2, 4, 4}, 3, 0);
        CHECK(latent == sample.latent);
    }
}

TEST_CASE("faults: bad samples are counted over restarts, by source, and words fit a limit of 0") {
    Shards s;
    for (const int64_t row : {1, 3, 5}) s.damage("c.h5", row);
    s.damage("a.h5", 2);
    LoaderOptions o = quick();
    o.max_bad_samples = 4;
    // who met them first, step by step, whatever the threads and the read-ahead do
    std::vector<std::string> after;
    for (const auto& [threads, ahead] : {std::pair{1, 1}, {3, 1}, {5, 6}}) {
        o.reader_threads = threads;
        o.prefetch_steps = ahead;
        const Stderr said;
        Running run(*s.data, o, 0);
        for (size_t step = 0; step < 12; ++step) {
            (void)run.loader->next(nullptr);
            const std::string ledger = run.loader->ledger().text();
            if (threads == 1) after.push_back(ledger);
            CHECK(ledger == after[step]);
        }
        CHECK(run.loader->ledger().total() == 4);
        CHECK(run.loader->ledger().of_source(1) == 3);
        CHECK(count_of(said.text(), "bad sample ") == 4);
        CHECK(has(said.text(), "bad sample 4 of at most 4 ("));
        CHECK(has(said.text(), " in data source 'second')"));
    }
    // a restart in the middle goes on counting and says nothing twice
    size_t middle = 0;
    while (BadLedger::parse(after[middle], "").total() < 2) ++middle;
    o.met = BadLedger::parse(after[middle], "checkpoint");
    {
        const Stderr said;
        Running run(*s.data, o, 11 * (middle + 1));
        for (size_t step = middle + 1; step < 12; ++step) {
            (void)run.loader->next(nullptr);
            CHECK(run.loader->ledger().text() == after[step]);
        }
        CHECK(count_of(said.text(), "bad sample ") == 4 - o.met.total());
    }
    const auto message_of = [&](int64_t most, const BadLedger& met) {
        o.max_bad_samples = most;
        o.met = met;
        const Stderr said;
        Running run(*s.data, o, 0);
        try {
            for (int step = 0; step < 12; ++step) (void)run.loader->next(nullptr);
        } catch (const Error& e) {
            CHECK(e.fault() == Fault::kData);
            return e.message();
        }
        return std::string();
    };
    CHECK(
        has(message_of(3, {}), "4 bad samples, more than data.max_bad_samples = 3; the last, in"));
    CHECK(has(message_of(0, {}), "a bad sample, and data.max_bad_samples = 0 allows none: "));
    // what was met in another data set counts, though its indices mean nothing any more
    BadLedger old;
    for (const int64_t i : {1, 2, 3}) CHECK(old.add(0, i));
    CHECK(!old.add(0, 3));
    old.begin_new_data();
    CHECK(old.add(0, 3));
    CHECK(old.total() == 4);
    CHECK(old.text() == "3 0:3");
    CHECK(BadLedger::parse(old.text(), "") == old);
    CHECK(BadLedger::parse("", "") == BadLedger());
    CHECK(has(message_of(5, old), "6 bad samples, more than data.max_bad_samples = 5"));
    for (const char* bad : {"x", "1 ", "1 2", "1 2:", "-1", "1 2:3 2:3", "1 2:3x"}) {
        CHECK_THROWS_AS((void)BadLedger::parse(bad, "here"), Error);
    }
}
