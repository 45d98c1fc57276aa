// SPDX-License-Identifier: MIT
#include <vector>

#include <doctest/doctest.h>

#include "comm/agree.h"
#include "comm/comm.h"

using namespace vt;

TEST_CASE("self group: collectives are the identity and are counted") {
    const auto g = self_group();
    CHECK(g->rank() == 0);
    CHECK(g->size() == 1);
    std::vector<float> x{1, 2, 3}, y(3);
    const Tensor tx(x.data(), {3}, DType::kF32);
    const Tensor ty(y.data(), {3}, DType::kF32);
    g->all_reduce(tx, ReduceOp::kSum, nullptr).wait();
    CHECK(x == std::vector<float>{1, 2, 3});
    g->all_gather(ty, tx, nullptr).wait();
    CHECK(y == x);
    y = {0, 0, 0};
    g->all_to_all(ty, tx, {2}, {2}, nullptr).wait();
    CHECK(y == std::vector<float>{1, 2, 0});
    g->reduce_scatter(ty, tx, nullptr).wait();
    CHECK(y == x);
    g->broadcast(tx, 0, nullptr).wait();
    g->send(tx, 0, nullptr).wait();
    x[0] = 9;  // a sent message is a copy
    g->recv(ty, 0, nullptr).wait();
    CHECK(y[0] == 1);
    CHECK(g->count().calls == 7);
    CHECK(g->count().bytes == 12 + 12 + 8 + 12 + 12 + 12);
    CHECK(g->split(3, 0, "tp")->name() == "tp");
    CHECK_THROWS_AS((void)g->recv(ty, 0, nullptr), Error);
    CHECK_THROWS_AS((void)g->all_gather(ty, {x.data(), {2}, DType::kF32}, nullptr), Error);
}

TEST_CASE("agree: the error comes back as it was thrown; texts travel") {
    const auto g = self_group();
    bool ran = false;
    agree(*g, "run", [&] { ran = true; });
    CHECK(ran);
    CHECK_THROWS_WITH_AS(agree(*g, "run", [] { raise(Fault::kData, "bad file"); }), "bad file",
                         Error);
    CHECK(broadcast_text(*g, "hello, world") == "hello, world");
    CHECK(broadcast_text(*g, "").empty());
    CHECK(gather_texts(*g, "abc") == std::vector<std::string>{"abc"});
}
