// SPDX-License-Identifier: MIT
// Ranks as threads: the common table of cases, and what happens when ranks disagree, throw or go.
#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <thread>

#include <doctest/doctest.h>

#include "comm/agree.h"
#include "comm/threads.h"
#include "tests/comm/cases.h"

using namespace vt;

namespace {

// What each rank threw: "<fault>: <message>", or empty.
std::vector<std::string> thrown(int n, const std::function<void(Group&)>& body) {
    std::vector<std::string> out(static_cast<size_t>(n));
    std::vector<std::unique_ptr<Group>> groups = thread_groups(n);
    std::vector<std::thread> threads;
    const auto start = std::chrono::steady_clock::now();
    for (size_t r = 0; r < groups.size(); ++r) {
        threads.emplace_back([&out, &body, r, g = std::move(groups[r])]() mutable {
            const auto run = [&] {
                const std::unique_ptr<Group> mine = std::move(g);  // goes with the exception
                body(*mine);
            };
            try {
                run();
            } catch (const Error& e) {
                out[r] = fmt::format("{}: {}", e.exit_code(), e.message());
            } catch (const std::exception& e) {
                out[r] = e.what();
            }
        });
    }
    for (std::thread& t : threads) t.join();
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
    return out;
}

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

struct Numbers {
    std::vector<float> x = std::vector<float>(64, 1.0F);
    std::vector<float> y = std::vector<float>(64, 1.0F);
    [[nodiscard]] Tensor tensor(int64_t n, DType t = DType::kF32) { return {x.data(), {n}, t}; }
    [[nodiscard]] Tensor other(int64_t n, DType t = DType::kF32) { return {y.data(), {n}, t}; }
};

}  // namespace

TEST_CASE("comm: one rank by itself") {
    test::check_group(*self_group());
}

TEST_CASE("comm: threads, 1 to 7 ranks") {
    for (const int n : {1, 2, 3, 4, 7}) run_ranks(n, test::check_group);
}

TEST_CASE("comm: threads, whatever the order of arrival") {
    // Ranks come late by turns; two calls are in flight meanwhile.
    run_ranks(4, [](Group& g) {
        for (int turn = 0; turn < 8; ++turn) {
            if (turn % 4 == g.rank()) std::this_thread::sleep_for(std::chrono::milliseconds(3));
            std::array<float, 2> x{g.rank() == 0 ? 1e8F : 1.0F, 1.0F};
            float y = g.rank() == 3 ? 1e8F : 3.0F;
            CommHandle a = g.all_reduce({x.data(), {2}, DType::kF32}, ReduceOp::kSum, nullptr);
            CommHandle b = g.all_reduce({&y, {1}, DType::kF32}, ReduceOp::kSum, nullptr);
            b.wait();
            a.wait();
            if (x[0] != 1e8F || x[1] != 4) FAIL_CHECK("not in rank order");  // 1e8 + 1 = 1e8
            if (y != 100000008.0F) FAIL_CHECK("not in rank order");          // 9 + 1e8, ulp 8
        }
    });
}

TEST_CASE("comm: ranks that call different things all learn which") {
    struct Row {
        const char* what;
        std::function<void(Group&, Numbers&, bool odd)> call;
        const char *says, *says_too;
    };
    const std::vector<Row> rows{
        {"op",
         [](Group& g, Numbers& b, bool odd) {
             if (odd) {
                 g.broadcast(b.tensor(6), 0, nullptr).wait();
             } else {
                 g.all_reduce(b.tensor(6), ReduceOp::kSum, nullptr).wait();
             }
         },
         "called all_reduce(sum, f32, 6 elements)", "called broadcast(from 0, f32, 6 elements)"},
        {"size",
         [](Group& g, Numbers& b, bool odd) {
             g.all_reduce(b.tensor(odd ? 5 : 6), ReduceOp::kSum, nullptr).wait();
         },
         "6 elements", "5 elements"},
        {"type",
         [](Group& g, Numbers& b, bool odd) {
             g.all_reduce(b.tensor(6, odd ? DType::kI32 : DType::kF32), ReduceOp::kSum, nullptr)
                 .wait();
         },
         "f32", "i32"},
        {"reduction",
         [](Group& g, Numbers& b, bool odd) {
             g.all_reduce(b.tensor(6), odd ? ReduceOp::kMax : ReduceOp::kSum, nullptr).wait();
         },
         "sum", "max"},
        {"root",
         [](Group& g, Numbers& b, bool odd) {
             g.broadcast(b.tensor(6), odd ? 1 : 0, nullptr).wait();
         },
         "from 0", "from 1"},
        {"barrier",
         [](Group& g, Numbers& b, bool odd) {
             if (odd) {
                 g.barrier();
             } else {
                 g.all_gather(b.tensor(12), b.other(4), nullptr).wait();
             }
         },
         "all_gather(f32, parts of 4 elements)", "barrier()"},
        {"counts",
         [](Group& g, Numbers& b, bool odd) {
             const std::vector<int64_t> give = {1, odd ? 3 : 1, 1};
             g.all_to_all(b.tensor(6), b.other(6), {1, 1, 1}, give, nullptr).wait();
         },
         "all_to_all: rank 2 gives 3 elements to rank 1", "which takes 1"},
        {"letter",
         [](Group& g, Numbers& b, bool odd) {
             if (odd) g.send(b.tensor(3), 0, nullptr).wait();
             if (g.rank() == 0) g.recv(b.tensor(4), 2, nullptr).wait();
             g.barrier();
         },
         "rank 2 sent f32 x 3", "rank 0 takes f32 x 4"},
        {"own shapes",
         [](Group& g, Numbers& b, bool odd) {
             g.all_gather(b.tensor(odd ? 5 : 12), b.other(4), nullptr).wait();
         },
         "rank 2: all_gather of f32 (4) into f32 (5) over 3 ranks", ""},
        {"in a group of the world",
         [](Group& g, Numbers& b, bool odd) {
             const auto tp = g.split(g.rank() == 0 ? 0 : 1, 0, "tp");
             if (g.rank() != 0)
                 tp->all_reduce(b.tensor(odd ? 5 : 6), ReduceOp::kSum, nullptr).wait();
             g.barrier();
         },
         "group \"tp\"", "5 elements"},
    };
    for (const Row& row : rows) {
        CAPTURE(row.what);
        // Two calls: a rank that was not asked by the first must learn it in the second.
        const auto said = thrown(3, [&](Group& g) {
            Numbers b;
            row.call(g, b, g.rank() == 2);
            g.barrier();
        });
        for (const std::string& s : said) {
            INFO(s);
            CHECK(s.find("5: ") == 0);  // kBug
            CHECK(has(s, row.says));
            CHECK(has(s, row.says_too));
            CHECK(s == said[0]);
        }
    }
}

TEST_CASE("comm: no rank waits for one that has thrown or gone") {
    struct Row {
        const char* what;
        std::function<void(Group&, Numbers&)> wait;
        const char* in;
    };
    const std::vector<Row> rows{
        {"all_reduce",
         [](Group& g, Numbers& b) { g.all_reduce(b.tensor(4), ReduceOp::kSum, nullptr).wait(); },
         "all_reduce(sum, f32, 4 elements)"},
        {"barrier", [](Group& g, Numbers&) { g.barrier(); }, "barrier()"},
        {"split", [](Group& g, Numbers&) { (void)g.split(0, 0, "x"); }, "split()"},
        {"recv", [](Group& g, Numbers& b) { g.recv(b.tensor(4), 1, nullptr).wait(); }, "recv"},
    };
    for (const Row& row : rows) {
        for (const bool throws : {false, true}) {
            for (const int ms : {0, 5}) {  // leaves before or after the others wait
                CAPTURE(row.what);
                const auto said = thrown(4, [&](Group& g) {
                    Numbers b;
                    if (g.rank() != 1) return row.wait(g, b);
                    std::this_thread::sleep_for(std::chrono::milliseconds(ms));
                    if (throws) throw std::runtime_error("disk full");
                });
                for (const size_t r : {0UL, 2UL, 3UL}) {
                    INFO(said[r]);
                    CHECK(said[r].find("4: ") == 0);  // kSystem
                    CHECK(has(said[r], "rank 1 left while rank"));
                    CHECK(has(said[r], row.in));
                }
                CHECK(said[1] == (throws ? "disk full" : ""));
            }
        }
    }
}

TEST_CASE("comm: an exception with calls in flight frees their buffers and the other ranks") {
    const auto said = thrown(3, [&](Group& g) {
        Numbers b;
        CommHandle first = g.all_reduce(b.tensor(4), ReduceOp::kSum, nullptr);
        if (g.rank() == 1) raise(Fault::kData, "bad sample");
        first.wait();
        g.barrier();
    });
    CHECK(said[1] == "3: bad sample");
    // Whether the sum was done before rank 1 dropped it is a matter of time; that it is rank 1 who
    // is missing is not.
    for (const size_t r : {0UL, 2UL}) {
        INFO(said[r]);
        CHECK(has(said[r], "rank 1 "));
    }
}

TEST_CASE("comm: run_ranks tells every rank who failed and why") {
    std::mutex mutex;
    std::vector<std::string> said;
    const auto body = [&](Group& g) {
        Numbers b;
        const auto half = g.split(g.rank() % 2, 0, "half");
        if (g.rank() == 2) {
            CommHandle pending = half->all_reduce(b.tensor(4), ReduceOp::kSum, nullptr);
            pending.wait();
            raise(Fault::kData, "bad shard");
        }
        try {
            if (g.rank() == 0) half->all_reduce(b.tensor(4), ReduceOp::kSum, nullptr).wait();
            half->recv(b.tensor(4), 1, nullptr).wait();  // never sent
        } catch (const Error& e) {
            const std::lock_guard lock(mutex);
            said.push_back(e.message());
            if (e.fault() != Fault::kData && e.fault() != Fault::kSystem) said.back() = "fault";
            throw;
        }
    };
    CHECK_THROWS_WITH_AS(run_ranks(4, body), "bad shard", Error);
    REQUIRE(said.size() == 3);
    for (const std::string& s : said) {
        INFO(s);
        CHECK((has(s, "rank 2 failed: bad shard") || has(s, "rank 1 left while rank 0 waits")));
    }
    CHECK_NOTHROW(run_ranks(3, [](Group&) {}));
}

TEST_CASE("comm: agree over threads") {
    run_ranks(3, [](Group& g) {
        const std::string text(g.rank() == 2 ? "from rank two" : "");
        if (broadcast_text(g, text, 2) != "from rank two") FAIL_CHECK("broadcast_text");
        const auto all = gather_texts(g, std::string(static_cast<size_t>(g.rank()) * 5, 'x'));
        if (g.rank() == 0 && all != std::vector<std::string>{"", "xxxxx", "xxxxxxxxxx"})
            FAIL_CHECK("gather_texts");
        std::string said;
        try {
            agree(g, "open it", [&] {
                if (g.rank() > 0) raise(Fault::kData, fmt::format("bad {}", g.rank()));
            });
        } catch (const Error& e) {
            said = e.message();
        }
        const std::array<std::string, 3> want{"rank 1 could not open it: bad 1", "bad 1", "bad 2"};
        if (said != want.at(static_cast<size_t>(g.rank()))) FAIL_CHECK(said);
        agree(g, "go on", [] {});  // the group still works
    });
}
