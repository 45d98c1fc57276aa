// SPDX-License-Identifier: MIT
#include <cmath>
#include <vector>

#include <doctest/doctest.h>

#include "core/hash.h"
#include "core/rng.h"
#include "model/params.h"
#include "model/store.h"

using namespace vt;

namespace {

ParamRow row_of(Init init, double scale, Shape shape) {
    ParamRow row;
    row.name = "blocks.3.attn1.to_q.weight";
    row.shape = shape;
    row.init = init;
    row.init_scale = scale;
    return row;
}

std::vector<float> drawn(const ParamRow& row, uint64_t seed) {
    std::vector<float> out(static_cast<size_t>(row.shape.numel()));
    init_param(row, seed, Tensor(out.data(), row.shape, DType::kF32));
    return out;
}

}  // namespace

TEST_CASE("init_param: normals are the keyed stream of the name, scaled") {
    const ParamRow row = row_of(Init::kNormal, 0.02, {7, 5});
    const std::vector<float> v = drawn(row, 9);
    for (size_t i = 0; i < v.size(); ++i) {
        const float z = random_normal(9, Purpose::kInit, xxh3(row.name), i);
        CHECK(v[i] == static_cast<float>(double(z) * 0.02));
    }
    ParamRow other = row;
    other.name = "blocks.4.attn1.to_q.weight";
    CHECK(drawn(other, 9) != v);
    CHECK(drawn(row, 10) != v);
}

TEST_CASE("init_param: uniforms fill (-bound, bound) evenly") {
    const ParamRow row = row_of(Init::kUniform, 0.5, {100, 1000});
    const std::vector<float> v = drawn(row, 1);
    double sum = 0, sq = 0, low = 1, high = -1;
    for (const float x : v) {
        sum += double(x);
        sq += double(x) * double(x);
        low = std::min(low, double(x));
        high = std::max(high, double(x));
    }
    const double n = double(v.size());
    // variance bound^2/3; five standard errors of the mean and of the mean square (bound^4 4/45)
    CHECK(std::abs(sum / n) < 5 * 0.5 / std::sqrt(3 * n));
    CHECK(std::abs(sq / n - 0.25 / 3) < 5 * 0.25 * std::sqrt(4.0 / 45 / n));
    // the extremes of n draws lie within 20/n of the ends but once in e^10 runs
    CHECK(low > -0.5);
    CHECK(high < 0.5);
    CHECK(low < -0.5 + 20 / n);
    CHECK(high > 0.5 - 20 / n);
}

TEST_CASE("init_param: any slice in either dtype is the same numbers") {
    for (const Init init : {Init::kNormal, Init::kUniform, Init::kOnes, Init::kZeros}) {
        const ParamRow row = row_of(init, 0.3, {3, 11});
        const std::vector<float> whole = drawn(row, 4);
        for (const auto& [b, e] : {std::pair<int64_t, int64_t>{0, 33}, {1, 3}, {6, 22}, {5, 5}}) {
            std::vector<double> part(static_cast<size_t>(e - b));
            init_param_slice(row, 4, b, e, Tensor(part.data(), {e - b}, DType::kF64));
            for (int64_t i = b; i < e; ++i) {
                CHECK(part[static_cast<size_t>(i - b)] == double(whole[static_cast<size_t>(i)]));
            }
        }
    }
}

TEST_CASE("find_row: finds by name and refuses unknown names") {
    const ParamTable table = {row_of(Init::kOnes, 0, {2}), row_of(Init::kOnes, 0, {3, 4})};
    CHECK(find_row(table, "blocks.3.attn1.to_q.weight") == 0);
    CHECK(count_elements(table) == 14);
    CHECK_THROWS_AS((void)find_row(table, "blocks.3.attn1.to_q"), Error);
}

TEST_CASE("ParamStore: declares before it takes memory, and initialises alike on any threads") {
    ParamTable table = {row_of(Init::kNormal, 1, {300, 301}), row_of(Init::kUniform, 1, {5})};
    table[0].matmul = true;
    table[1].name = "b";
    ParamStore store(table, {DType::kBF16, DType::kF32, DType::kF32}, true);
    CHECK(store.weights().operand[0].dtype == DType::kBF16);
    CHECK(store.weights().operand[1].dtype == DType::kF32);
    CHECK(store.weights().master[0].data == nullptr);
    CHECK(store.arenas()[0]->high_water() == round_up(300 * 301 * 4, 64) + 64);
    CHECK(store.arenas()[1]->high_water() == round_up(300 * 301 * 2, 64));
    store.reserve();
    Pool pool(2);
    store.init(5, &pool);
    const std::vector<float> want = drawn(table[0], 5);
    const float* got = store.master()[0].as<float>();
    CHECK(std::equal(want.begin(), want.end(), got));
    CHECK(store.weights().operand[1].data == store.master()[1].data);
    CHECK(store.flat_grads().numel() * 4 == store.arenas()[2]->high_water());
}
