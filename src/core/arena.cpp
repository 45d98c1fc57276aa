// SPDX-License-Identifier: MIT
#include "core/arena.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>

namespace vt {

const char* name_of(MemCategory category) {
    static constexpr std::array<const char*, kNumMemCategories> kNames = {
        "weights",     "master",        "gradients", "moments", "ema",
        "activations", "communication", "workspace", "data"};
    return kNames.at(static_cast<size_t>(category));
}

const Allocator& host_allocator() {
    // mmap rather than malloc: the whole block goes back to the system when the arena dies, and
    // the kernel may back it with huge pages.
    static const Allocator kHost = {
        [](int64_t bytes) -> void* {
            void* p = ::mmap(nullptr, narrow<size_t>(bytes), PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (p == MAP_FAILED) {
                raise(
                    Fault::kSystem,
                    fmt::format("cannot get {} bytes of memory: {}", bytes, std::strerror(errno)),
                    "lower data.micro_batch_size or the model's size; `--dry-run` prints the plan");
            }
            // fewer page faults and address translations; a kernel that cannot is not an error
            if (bytes >= (int64_t{2} << 20)) {
                (void)::madvise(p, static_cast<size_t>(bytes), MADV_HUGEPAGE);
            }
            return p;
        },
        [](void* p, int64_t bytes) { ::munmap(p, static_cast<size_t>(bytes)); }};
    return kHost;
}

Arena::Arena(std::string name, MemCategory category, const Allocator& allocator)
    : name_(std::move(name)), category_(category), allocator_(allocator) {}

Arena::~Arena() {
    if (base_ != nullptr) allocator_.free(base_, size_);
}

Tensor Arena::alloc(std::string_view what, Shape shape, DType dtype) {
    const int64_t bytes = shape.numel() * size_of(dtype);
    const int64_t begin = top_, end = begin + round_up(bytes, kAlign);
    if (reserved_) {
        VT_CHECK(end <= size_, "arena {}: {} {} ({} bytes) passes the declared {} bytes by {}",
                 name_, what, shape.str(), bytes, size_, end - size_);
    } else {
        live_.push_back({std::string(what), begin, end});
    }
    top_ = end;
    if (top_ > high_) {
        high_ = top_;
        if (!reserved_) peak_.clear();  // rebuilt lazily: live_ still describes the peak
    }
    void* data = reserved_ && bytes > 0 ? base_ + begin : nullptr;
    return {data, shape, dtype};
}

void Arena::release(int64_t mark) {
    VT_CHECK(mark <= top_, "arena {}: release {} above top {}", name_, mark, top_);
    if (!reserved_) {
        if (top_ == high_ && peak_.empty()) peak_ = live_;
        while (!live_.empty() && live_.back().end > mark) live_.pop_back();
    }
    top_ = mark;
}

void Arena::reserve() {
    VT_CHECK(!reserved_, "arena {} reserved twice", name_);
    if (peak_.empty()) peak_ = live_;
    size_ = high_;
    if (size_ > 0) {
        base_ = static_cast<char*>(allocator_.alloc(size_));
        if (&allocator_ == &host_allocator()) std::memset(base_, 0, narrow<size_t>(size_));
    }
    live_.clear();
    reserved_ = true;
    top_ = 0;
}

std::vector<Arena::Item> Arena::high_water_list() const {
    const std::vector<Live>& from = peak_.empty() ? live_ : peak_;
    std::vector<Item> out;
    for (const Live& l : from) {
        if (!out.empty() && out.back().what == l.what) {
            out.back().bytes += l.end - l.begin;
        } else {
            out.push_back({l.what, l.end - l.begin});
        }
    }
    return out;
}

}  // namespace vt
