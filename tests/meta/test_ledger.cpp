// SPDX-License-Identifier: MIT
// The meta backend's ledger: what `--dry-run` says each op is asked for.
#include <algorithm>

#include <doctest/doctest.h>

#include "meta/meta.h"
#include "tests/ops/cases.h"

using namespace vt;
using namespace vt::test;

TEST_CASE("meta/ledger: every row of the op table, on declarations, as the counter has it") {
    const Ops meta = meta_ops(Ops{});
    for (const Case& c : all_cases()) {
        Args args;
        double outputs = 0, all = 0;
        for (const Arg& a : c.args) {
            args.tensors.emplace_back(nullptr, a.shape, a.dtype);
            const auto bytes = static_cast<double>(args.tensors.back().bytes());
            all += bytes;
            if (a.role == Role::kOut) outputs = std::max(outputs, bytes);
        }
        OpCount count;
        Ledger ledger;
        const Ctx ctx{.ops = &meta, .count = &count, .observer = &ledger};
        c.call(ctx, args);
        INFO(c.name());
        const std::vector<OpTotal> totals = ledger.totals();
        REQUIRE(totals.size() == 1);
        CHECK(totals[0].op == c.op);
        CHECK(totals[0].calls == 1);
        CHECK(totals[0].flop == count.flop);
        CHECK(totals[0].bytes == count.bytes);
        // each tensor once, an accumulator twice
        CHECK(totals[0].bytes >= outputs);
        CHECK(totals[0].bytes <= 2 * all + 64);
    }
}

TEST_CASE("meta/ledger: calls add up by op, most flop first") {
    Ledger ledger;
    ledger.begin("cast", 0, 100);
    ledger.begin("linear_fwd", 2000, 50);
    ledger.begin("add", 10, 40);
    ledger.begin("linear_fwd", 2000, 150);
    const std::vector<OpTotal> t = ledger.totals();
    REQUIRE(t.size() == 3);
    CHECK(t[0].op == "linear_fwd");
    CHECK(t[0].calls == 2);
    CHECK(t[0].flop == 4000);
    CHECK(t[0].intensity() == 20);
    CHECK(t[1].op == "add");
    CHECK(t[2].intensity() == 0);
}
