// SPDX-License-Identifier: MIT
// A small training state for checkpoint tests: random bits, so that NaNs and -0 must survive too.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "ckpt/state.h"
#include "core/rng.h"

namespace vt::test {

struct Item {
    std::string name;
    Shape shape;
    DType dtype = DType::kF32;
    std::vector<char> bytes;
    [[nodiscard]] Tensor tensor() { return {bytes.data(), shape, dtype}; }
};

struct State {
    std::vector<Item> items;

    // Random bits that are a function of `seed`; 0: zeros.
    explicit State(uint64_t seed) {
        add("model/blocks.0.attn1.to_q.weight", {6, 10}, DType::kF32, seed);
        add("model/patch_embedding.weight", {8, 4, 1, 2, 2}, DType::kF32, seed);
        add("adam_m/blocks.0.attn1.to_q.weight", {6, 10}, DType::kF32, seed);
        add("ema0/scale", {}, DType::kF32, seed);
        add("counts", {7}, DType::kI64, seed);
        add("nothing", {0, 3}, DType::kBF16, seed);
    }
    void add(const std::string& name, Shape shape, DType dtype, uint64_t seed) {
        Item item{name, shape, dtype, {}};
        item.bytes.resize(static_cast<size_t>(shape.numel() * size_of(dtype)));
        for (size_t i = 0; i < item.bytes.size(); ++i) {
            if (seed == 0) break;
            item.bytes[i] =
                static_cast<char>(philox::block(seed, Purpose::kTest, items.size(), i)[0] & 0xffU);
        }
        items.push_back(std::move(item));
    }
    [[nodiscard]] std::vector<StateTensor> whole() {
        std::vector<StateTensor> out;
        for (Item& i : items)
            out.push_back({.name = i.name, .global = i.shape, .local = i.tensor()});
        return out;
    }
    bool operator==(const State& o) const {
        for (size_t i = 0; i < items.size(); ++i) {
            if (items[i].bytes != o.items[i].bytes) return false;
        }
        return items.size() == o.items.size();
    }
};

}  // namespace vt::test
