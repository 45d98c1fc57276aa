// SPDX-License-Identifier: MIT
// Every row of the op case table on every backend: within its tolerance of the reference, nothing
// written outside the outputs, the same bits from one, two and three threads.
// VTRAIN_TEST_SHARES=1 prints the largest share of tolerance each op used.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "cpu/cpu.h"
#include "cpu/isa.h"
#include "tests/ops/run.h"
#include "tests/ref/ref.h"

using namespace vt;
using namespace vt::test;

namespace {

// The cpu tables this machine can run, and the reference itself (its share is 0).
std::vector<const Ops*> backends() {
    std::vector<const Ops*> list{&ref_ops()};
    for (const Isa isa : {Isa::kBaseline, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
        if (isa <= best_isa()) list.push_back(&cpu_ops_on(isa));
    }
    return list;
}

bool has_slot(const Ops& ops, const std::string& op) {
#define VT_OP_HAS(name) \
    if (op == #name) return ops.name != nullptr;
    VT_OPS(VT_OP_HAS)
#undef VT_OP_HAS
    return false;
}

std::vector<Case> rows_of(void (*add)(std::vector<Case>&)) {
    std::vector<Case> rows;
    add(rows);
    rows.erase(std::remove_if(rows.begin(), rows.end(), [](const Case& c) { return c.bench; }),
               rows.end());
    return rows;
}

std::string label(const Ops& ops, const Case& c) {
    return fmt::format("{} ({}): {}", ops.backend, ops.instruction_path, c.name());
}

void within_tolerance(void (*add)(std::vector<Case>&)) {
    Pool pool(1);
    std::map<std::string, double> shares;
    for (const Case& c : rows_of(add)) {
        const Memory inputs = make_inputs(c);
        Memory want(c);
        const std::string damage = run_case(ref_ops(), &pool, c, inputs, want);
        CHECK_MESSAGE(damage.empty(), label(ref_ops(), c), ": ", damage);
        for (const Ops* ops : backends()) {
            if (!has_slot(*ops, c.op)) continue;  // fails in the completeness test, named
            for (const bool odd : {false, true}) {
                Memory got(c, odd);
                const std::string hurt = run_case(*ops, &pool, c, inputs, got);
                CHECK_MESSAGE(hurt.empty(), label(*ops, c), ": ", hurt);
                const Verdict v = judge(c, inputs, want, got);
                CHECK_MESSAGE(v.failure.empty(), label(*ops, c), ": ", v.failure);
                if (c.also) {
                    const std::string wrong = c.also(got.args);
                    CHECK_MESSAGE(wrong.empty(), label(*ops, c), ": ", wrong);
                }
                if (v.failure.empty() && v.share > 0.9) {
                    MESSAGE(label(*ops, c), ": ", v.share * 100, " % of the tolerance used");
                }
                double& top = shares[fmt::format("{} {}", c.op, name_of(c.dtype))];
                top = std::max(top, v.share);
            }
        }
    }
    if (std::getenv("VTRAIN_TEST_SHARES") != nullptr) {
        for (const auto& [op, share] : shares) MESSAGE(op, ": ", share * 100, " % at most");
    }
}

void same_bits(void (*add)(std::vector<Case>&)) {
    Pool one(1), two(2), three(3);
    for (const Case& c : rows_of(add)) {
        const Memory inputs = make_inputs(c);
        for (const Ops* ops : backends()) {
            if (ops == &ref_ops() || !has_slot(*ops, c.op)) continue;
            Memory first(c);
            CHECK(run_case(*ops, &one, c, inputs, first).empty());
            for (Pool* pool : {&two, &three}) {
                Memory other(c);
                const std::string damage = run_case(*ops, pool, c, inputs, other);
                CHECK_MESSAGE(damage.empty(), label(*ops, c), ": ", damage);
                const std::string arg = different_bits(c, first, other);
                CHECK_MESSAGE(arg.empty(), label(*ops, c), ": ", arg, " differs with ",
                              pool->threads(), " threads");
            }
        }
    }
}

}  // namespace

#define VT_FAMILY(family)                                                              \
    TEST_CASE("ops/" #family ": every backend is within tolerance of the reference") { \
        within_tolerance(add_##family##_cases);                                        \
    }                                                                                  \
    TEST_CASE("ops/" #family ": 1, 2 and 3 threads give the same bits") {              \
        same_bits(add_##family##_cases);                                               \
    }
VT_FAMILY(linear)
VT_FAMILY(attention)
VT_FAMILY(norm)
VT_FAMILY(pointwise)
VT_FAMILY(embed)
VT_FAMILY(objective)
VT_FAMILY(optimize)
#undef VT_FAMILY

TEST_CASE("ops: every op has rows to compare and rows to time; names are unique") {
    std::map<std::string, int> small, large, names;
    for (const Case& c : all_cases()) {
        (c.bench ? large : small)[c.op] += 1;
        names[c.name()] += 1;
    }
    for (const auto& name : names) {
        CHECK_MESSAGE(name.second == 1, name.first, " appears ", name.second, " times");
    }
#define VT_OP_ROWS(name) CHECK_MESSAGE(small[#name] >= 2, #name);
    VT_OPS(VT_OP_ROWS)
#undef VT_OP_ROWS
    // too small in any model to be worth timing
    const std::vector<std::string> untimed = {"modulation_fwd", "modulation_bwd", "sinusoid",
                                              "fill"};
#define VT_OP_TIMED(name)                                                                      \
    CHECK_MESSAGE((large[#name] > 0 || std::count(untimed.begin(), untimed.end(), #name) > 0), \
                  #name);
    VT_OPS(VT_OP_TIMED)
#undef VT_OP_TIMED
}

TEST_CASE("ops: the runner finds planted faults") {
    const auto find = [](const char* op) -> const Case& {
        for (const Case& c : all_cases()) {
            if (c.op == op && c.shape.find("S5") == 0) return c;
        }
        raise(Fault::kBug, fmt::format("no row of {}", op));
    };
    const auto outcome = [](const Ops& ops, const Case& c) {
        const Memory inputs = make_inputs(c);
        Memory want(c), got(c);
        CHECK(run_case(ref_ops(), nullptr, c, inputs, want).empty());
        const std::string damage = run_case(ops, nullptr, c, inputs, got);
        return damage.empty() ? judge(c, inputs, want, got).failure : damage;
    };
    const Case &linear = find("linear_fwd"), &wgrad = find("linear_bwd_weight");
    CHECK(outcome(ref_ops(), linear).empty());
    CHECK(outcome(ref_ops(), wgrad).empty());

    Ops bad = ref_ops();
    bad.linear_fwd = [](const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b,
                        Epilogue f) {
        ref_ops().linear_fwd(ctx, y, pre, x, w, b, f);
        y.as<float>()[y.numel()] = 0;
    };
    CHECK(outcome(bad, linear) == "wrote outside y");
    bad.linear_fwd = [](const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor /*b*/,
                        Epilogue f) { ref_ops().linear_fwd(ctx, y, pre, x, w, {}, f); };
    CHECK(outcome(bad, linear).find("y[0] is ") == 0);
    bad.linear_fwd = [](const Ctx& ctx, Tensor y, Tensor pre, CTensor x, CTensor w, CTensor b,
                        Epilogue f) {
        ref_ops().linear_fwd(ctx, y, pre, x, w, b, f);
        const_cast<float*>(w.as<float>())[0] = 0;
    };
    CHECK(outcome(bad, linear) == "changed its input w");
    bad.linear_fwd = [](const Ctx& /*ctx*/, Tensor /*y*/, Tensor /*pre*/, CTensor /*x*/,
                        CTensor /*w*/, CTensor /*b*/, Epilogue /*f*/) {};
    CHECK(outcome(bad, linear).find("y[0] is ") == 0);  // left as NaN
    bad.linear_bwd_weight = [](const Ctx& ctx, Tensor dw, Tensor db, CTensor dy, CTensor x) {
        ref_ops().fill(ctx, dw, 0);  // overwrites where it should add
        ref_ops().linear_bwd_weight(ctx, dw, db, dy, x);
    };
    CHECK(outcome(bad, wgrad).find("dw[0] is ") == 0);
}

TEST_CASE("ops: every backend's table is complete") {
    for (const Ops* ops : backends()) CHECK_NOTHROW(check_complete(*ops));
}
