// SPDX-License-Identifier: MIT
// Named, categorised memory. The declaring code runs twice: first on a measuring arena (no memory,
// tensors have data == nullptr), then, after reserve(), on real memory. So the plan that
// `vtrain --dry-run` prints and what a run takes cannot differ.
// Floor 0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/tensor.h"

namespace vt {

enum class MemCategory : uint8_t {
    kWeights,
    kMaster,
    kGradients,
    kMoments,
    kEma,
    kActivations,
    kCommunication,
    kWorkspace,
    kData
};
inline constexpr int kNumMemCategories = 9;
[[nodiscard]] const char* name_of(MemCategory category);

// Where an arena's block comes from: host memory here, cudaMalloc behind the CUDA backend.
// alloc returns memory aligned to 64 bytes or more and throws kSystem when there is none.
struct Allocator {
    std::function<void*(int64_t bytes)> alloc;
    std::function<void(void* ptr, int64_t bytes)> free;
};
[[nodiscard]] const Allocator& host_allocator();

// A bump allocator with stack discipline. Invariants:
//  1. every tensor starts at a multiple of kAlign bytes;
//  2. until reserve(), alloc() returns declarations and only moves the high-water mark;
//  3. after reserve(), the mark never passes the reserved size (kBug with the list if it would).
class Arena {
  public:
    static constexpr int64_t kAlign = 64;

    Arena(std::string name, MemCategory category, const Allocator& allocator = host_allocator());
    ~Arena();
    Arena(const Arena&) = delete;
    Arena& operator=(const Arena&) = delete;

    /// Next tensor of this shape. `what` names it in the high-water list.
    [[nodiscard]] Tensor alloc(std::string_view what, Shape shape, DType dtype);
    [[nodiscard]] int64_t mark() const { return top_; }
    /// Gives back everything allocated after `mark`.
    void release(int64_t mark);
    void reset() { release(0); }

    /// Takes the high-water size from the allocator, once. top goes back to 0. The block is zeroed
    /// and its pages are touched, so that a process's resident size does not creep during training.
    void reserve();
    [[nodiscard]] bool reserved() const { return reserved_; }
    [[nodiscard]] bool measuring() const { return !reserved_; }

    [[nodiscard]] int64_t high_water() const { return high_; }
    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] MemCategory category() const { return category_; }

    struct Item {
        std::string what;
        int64_t bytes;
    };
    /// What was live at the high-water mark, in order of allocation; adjacent equal names merged.
    [[nodiscard]] std::vector<Item> high_water_list() const;

  private:
    struct Live {
        std::string what;
        int64_t begin, end;
    };
    std::string name_;
    MemCategory category_;
    const Allocator& allocator_;
    char* base_ = nullptr;
    bool reserved_ = false;
    int64_t top_ = 0, high_ = 0, size_ = 0;
    std::vector<Live> live_, peak_;  // kept while measuring only
};

// Gives back at scope end what was allocated inside the scope.
class ArenaScope {
  public:
    explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.mark()) {}
    ~ArenaScope() { arena_.release(mark_); }
    ArenaScope(const ArenaScope&) = delete;
    ArenaScope& operator=(const ArenaScope&) = delete;

  private:
    Arena& arena_;
    int64_t mark_;
};

}  // namespace vt
