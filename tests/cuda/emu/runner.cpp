// SPDX-License-Identifier: MIT
// See runner.h.
#include "tests/cuda/emu/runner.h"

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstring>
#include <exception>
#include <map>

#include "tests/cuda/emu/switch.h"

// The registers that a called function must keep, and the stack. (The floating-point control words
// are the same in all fibers.)
asm(R"(
    .text
    .globl vt_emu_switch
    .type vt_emu_switch, @function
vt_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size vt_emu_switch, .-vt_emu_switch
)");

namespace vt::emu {

constinit thread_local Runner* runner = nullptr;

std::string vformat(const char* f, va_list args) {
    char text[1024];
    std::vsnprintf(text, sizeof text, f, args);
    return text;
}
std::string format(const char* f, ...) {
    va_list args;
    va_start(args, f);
    std::string text = vformat(f, args);
    va_end(args);
    return text;
}

namespace {

bool same(const Site& a, const Site& b) {
    if (a.line() != b.line() || a.column() != b.column()) return false;
    return a.file_name() == b.file_name() || std::strcmp(a.file_name(), b.file_name()) == 0;
}

}  // namespace

// ---- switching
// ----------------------------------------------------------------------------------------

void Runner::need_stacks(unsigned threads) {
    const std::size_t stride = (options().stack_bytes + kPage - 1) / kPage * kPage + kPage;
    if (threads <= stack_count_ && stride == stack_stride_) return;
    if (stacks_ != nullptr) ::munmap(stacks_, stacks_bytes_);
    stack_count_ = threads, stack_stride_ = stride, stacks_bytes_ = stride * threads;
    void* p = ::mmap(nullptr, stacks_bytes_, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) throw Error("no memory for fiber stacks");
    stacks_ = static_cast<char*>(p);
    for (unsigned i = 0; i < threads; ++i)
        ::mprotect(stacks_ + i * stride, kPage, PROT_NONE);  // overflow faults
}

// Leaves `from` and continues `to`. Returns when some fiber jumps back to `from`.
void Runner::jump(Fiber& from, Fiber& to, [[maybe_unused]] bool leaving) {
    if (&to == &from) return;
    self = &to == &main_ ? nullptr : &to;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(leaving ? nullptr : &from.fake_stack, to.stack, to.stack_bytes);
#endif
    came_from_ = &from;
    vt_emu_switch(&from.context, to.context);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from.fake_stack, nullptr, nullptr);
#endif
}

void Runner::enter() {
    Runner& r = *runner;
#ifdef __SANITIZE_ADDRESS__
    const void* bottom;
    std::size_t bytes;
    __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
    if (r.came_from_ == &r.main_) r.main_.stack = bottom, r.main_.stack_bytes = bytes;
#endif
    try {
        r.body_(r.arg_);
    } catch (const std::exception& e) {
        r.note_error(std::string("a kernel threw: ") + e.what());
    }
    if (!r.error_.empty()) r.abandon();
    r.leave();  // never returns; not marked so, because ASan then wipes the whole stack's shadow
}

Fiber& Runner::next() {
    if (ready_.empty()) return main_;
    std::size_t i = ready_.size() - 1;
    if (shuffled_) i = rng_.below(ready_.size());
    Fiber* f = ready_[i];
    ready_[i] = ready_.back();
    ready_.pop_back();
    return *f;
}

void Runner::leave() {
    Fiber& f = me();
    f.state = State::Exited;
    ++exited_, yields_ = 0;
    Warp& w = warps_[f.rank / 32];
    w.living &= ~(1u << f.rank % 32);
    for (unsigned left = w.arrived; left != 0;
         left &= left - 1) {  // someone may have waited for this lane only
        if (try_warp(fibers_[f.rank / 32 * 32 + std::countr_zero(left)])) break;
    }
    try_barrier();
    switch_from(f, true);
}

void Runner::note_error(const std::string& text) {
    const uint3 t = self->idx, b = block_.idx;
    error_ =
        text + format(" [thread (%u,%u,%u) of block (%u,%u,%u)]", t.x, t.y, t.z, b.x, b.y, b.z);
}

// ---- barriers and warp operations
// -----------------------------------------------------------------------

void Runner::yield() {
    if (++yields_ > kMaxYields) {
        note_error("endless wait: no thread of the block does anything but yield");
        abandon();
    }
    release(me());
    switch_from(me());
}

int Runner::barrier(const char* op, int predicate, Site site) {
    Fiber& f = me();
    f.state = State::AtBarrier, f.op = op, f.site = site, f.predicate = predicate != 0;
    ++at_barrier_, yields_ = 0;
    try_barrier();
    switch_from(f);
    return f.result;
}

void Runner::try_barrier() {
    const unsigned exited = options().exit_counts_as_arrival ? exited_ : 0;
    if (at_barrier_ == 0 || at_barrier_ + exited != fibers_.size()) return;
    const Fiber* first = nullptr;
    int count = 0;
    for (Fiber& f : fibers_) {
        if (f.state != State::AtBarrier) continue;
        if (first == nullptr) first = &f;
        if (!same(first->site, f.site)) return;  // stuck() will report it
        count += f.predicate;
    }
    check_guards("at a __syncthreads");
    at_barrier_ = 0;
    for (std::size_t i = fibers_.size();
         i-- != 0;) {  // the last in the list goes first when the seed is 0
        Fiber& f = fibers_[i];
        if (f.state != State::AtBarrier) continue;
        ++f.epoch, f.result = count;
        release(f);
    }
}

void Runner::warp_op(const char* op, unsigned mask, void* payload, Resolve resolve, Site site,
                     bool same_site) {
    Fiber& f = me();
    const unsigned lane = 1u << f.rank % 32;
    if ((mask & lane) == 0)
        vt::emu::fail(site, "%s: lane %u is not in its own mask %08x", op, f.rank % 32, mask);
    f.state = State::InWarpOp, f.op = op, f.site = site, f.mask = mask;
    f.payload = payload, f.resolve = resolve, f.same_site = same_site;
    yields_ = 0;
    warps_[f.rank / 32].arrived |= lane;
    try_warp(f);
    switch_from(f);
}

bool Runner::try_warp(Fiber& f) {
    Warp& w = warps_[f.rank / 32];
    const unsigned present = f.mask & w.living;
    if ((w.arrived & present) != present) return false;
    Fiber* base = &fibers_[f.rank / 32 * 32];
    void* payloads[32];
    for (unsigned left = present; left != 0; left &= left - 1) {
        const int l = std::countr_zero(left);
        Fiber& g = base[l];
        if (g.op != f.op || g.resolve != f.resolve || g.mask != f.mask)
            return false;  // stuck() will report it
        if (f.same_site && !same(f.site, g.site)) return false;
        payloads[l] = g.payload;
    }
    if (f.resolve != nullptr) f.resolve(payloads, present);
    w.arrived &= ~present;
    for (int l = 31; l >= 0; --l) {
        if ((present >> l & 1) == 0) continue;
        if (f.resolve == nullptr && present == w.living)
            ++base[l].warp_epoch;  // a __syncwarp of the whole warp
        release(base[l]);
    }
    return true;
}

std::string Runner::stuck() const {
    bool warp = false;
    std::map<std::string, std::vector<unsigned>> groups;
    for (const Fiber& f : fibers_) {
        std::string what = "have exited";
        if (f.state != State::Exited) {
            what = format("wait in %s, %s:%u", f.op, f.site.file_name(), f.site.line());
            if (f.state == State::InWarpOp) what += format(", mask %08x", f.mask), warp = true;
        }
        groups[what].push_back(f.rank);
    }
    std::string text = warp ? "divergent warp operation" : "divergent barrier";
    for (const auto& [what, ranks] : groups) {
        text += "\n    threads ";
        for (std::size_t i = 0; i < ranks.size();) {
            std::size_t j = i;
            while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
            text += format(i == j ? "%s%u" : "%s%u-%u", i == 0 ? "" : ",", ranks[i], ranks[j]);
            i = j + 1;
        }
        text += " " + what;
    }
    return text;
}

// ---- shared memory
// ------------------------------------------------------------------------------------------

void* Runner::variable(const void* key, const char* name, std::size_t bytes, std::size_t align) {
    for (const Variable& v : variables_)
        if (v.key == key) return v.data;
    shared_bytes_ += bytes;
    align = std::max<std::size_t>(align, 16);
    char* data =
        arena_ + (static_cast<std::size_t>(top_ - arena_) + kGuard + align - 1) / align * align;
    char* end = data + bytes + kGuard;
    if (shared_bytes_ > kMaxShared || end > arena_ + kArena) {
        note_error(format("more than %zu bytes of shared memory", kMaxShared));
        abandon();
    }
    unpoison(top_, static_cast<std::size_t>(end - top_));
    std::memset(top_, kGuardByte, static_cast<std::size_t>(end - top_));
    std::memset(data, kPoisonByte, bytes);
    poison(top_, static_cast<std::size_t>(data - top_));
    poison(data + bytes, kGuard);
    top_ = end;
    variables_.push_back({key, name, data, bytes});
    return data;
}

void Runner::check_guards(const char* when) {
    if (kAsan || !error_.empty()) return;  // ASan has reported it at once
    for (const Variable& v : variables_) {
        for (std::size_t i = 0; i < kGuard; ++i) {
            const bool before = static_cast<unsigned char>(
                                    v.data[-1 - static_cast<std::ptrdiff_t>(i)]) != kGuardByte;
            const bool after = static_cast<unsigned char>(v.data[v.bytes + i]) != kGuardByte;
            if (!before && !after) continue;
            error_ = format(
                "write outside shared '%s' (%zu bytes): byte %zu %s it had changed %s of block "
                "(%u,%u,%u)",
                v.name, v.bytes, i + 1, before ? "before" : "after", when, block_.idx.x,
                block_.idx.y, block_.idx.z);
            ready_.clear();
            if (self != nullptr) jump(me(), main_, false);
            return;
        }
    }
}

// ---- one block
// --------------------------------------------------------------------------------------------------

void Runner::run_block(const Block& block, std::size_t dynamic, void (*body)(void*), void* arg) {
    const unsigned n = block.dim.x * block.dim.y * block.dim.z;
    need_stacks(n);
    runner = this;
    block_ = block;
    block_.shared_lo = arena_, block_.shared_hi = arena_ + kArena;
    block_.runtime_lo = stacks_, block_.runtime_hi = stacks_ + stacks_bytes_;
    body_ = body, arg_ = arg;
    shuffled_ = options().seed != 0, yields_ = 0;
    rng_.state = mix(options().seed ^ mix(block.serial ^ std::uint64_t{block.launch} << 32));
    at_barrier_ = exited_ = 0;
    error_.clear();
    ready_.clear();

    if (top_ != nullptr) poison(arena_, static_cast<std::size_t>(top_ - arena_));
    top_ = arena_;
    variables_.clear();
    shared_bytes_ = 0;
    if (dynamic != 0) variable(nullptr, "dynamic shared memory", dynamic, 1024);

    warps_.assign((n + 31) / 32, Warp{});
    fibers_.resize(n);
    for (unsigned rank = n; rank-- != 0;) {
        Fiber& f = fibers_[rank];
        f.idx = {rank % block.dim.x, rank / block.dim.x % block.dim.y,
                 rank / (block.dim.x * block.dim.y)};
        f.rank = rank, f.block = &block_, f.epoch = f.warp_epoch = 0;
        char* high = stacks_ + (rank + 1) * stack_stride_ - rank * kStackShift % kPage;
        f.stack = stacks_ + rank * stack_stride_ + kPage,
        f.stack_bytes = static_cast<std::size_t>(high - static_cast<const char*>(f.stack));
        f.context = new_context(high, enter);
        warps_[rank / 32].living |= 1u << rank % 32;
        release(f);
    }

    jump(main_, next(), false);  // comes back when no fiber is ready, or one has failed

    if (error_.empty() && exited_ != n) error_ = stuck();
    check_guards("at the end");
    if (error_.empty()) return;
    for (Fiber& f : fibers_) unpoison(f.stack, f.stack_bytes);  // frames abandoned in the middle
    throw Error("emu: " + error_);
}

}  // namespace vt::emu
