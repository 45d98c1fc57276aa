// SPDX-License-Identifier: MIT
// The prefetching reader. Two step buffers take turns: the caller has one, threads fill the other.
//
// Invariants (all under mutex_, but for the payload a thread is writing):
//  1. buffers go free -> planning -> filling -> ready -> in use -> free, the two in turn;
//  2. at most one buffer is being planned or filled, so steps are made in order;
//  3. a thread writes only the memory of the item it took, which no other thread takes;
//  4. after an error no further item is taken, and next() rethrows it for ever.
// Floor 3.
#include "data/loader.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "core/check.h"
#include "core/log.h"
#include "data/order.h"

namespace vt {

namespace {

enum class State : uint8_t { kFree, kPlanning, kFilling, kReady, kInUse };

struct Item {
    size_t micro = 0;
    int64_t row = 0;
};

struct Buffer {
    Tensor x0, text, ordinals;  // flat, for every micro-batch one after another
    StepBatch batch;
    std::vector<MicroBatch> spare;  // keep their draws' memory while not in batch.micros
    StepPlan plan;
    std::vector<Item> items;
    State state = State::kFree;
};

// The next n elements of a flat tensor as `shape`; starts are multiples of Arena::kAlign.
Tensor cut(const Tensor& flat, int64_t& at, Shape shape) {
    const int64_t width = size_of(flat.dtype), n = shape.numel();
    VT_CHECK(at + n <= flat.numel(), "step buffer of {} elements is full at {} + {}", flat.numel(),
             at, n);
    const Tensor out(static_cast<char*>(flat.data) + at * width, shape, flat.dtype);
    at = round_up(at + n, Arena::kAlign / width);
    return out;
}

// Row i of a tensor, without the leading dim.
Tensor row_of(const Tensor& t, int64_t i, Shape shape) {
    return t.rows(i, i + 1).view(shape);
}

}  // namespace

struct Loader::Impl {
    const Dataset& data;
    const LoaderOptions options;
    std::array<Buffer, 2> buffers;
    Tensor empty_text, table;
    std::unique_ptr<BlockOrder> order;  // used by the thread that plans

    std::mutex mutex;
    std::condition_variable work, ready;        // for threads; for next()
    uint64_t cursor = 0;                        // of the next step to be planned
    size_t fill = 0;                            // the buffer to be filled next
    size_t take = 0;                            // the buffer next() gives next
    int64_t taken = 0, done = 0;                // items of the buffer being filled
    std::set<std::pair<int32_t, int64_t>> bad;  // (source, index), met so far
    std::exception_ptr error;
    bool stop = false;
    std::vector<std::thread> threads;

    Impl(const Dataset& d, const LoaderOptions& o, uint64_t c) : data(d), options(o), cursor(c) {}
    ~Impl() {
        {
            const std::lock_guard lock(mutex);
            stop = true;
        }
        work.notify_all();
        for (std::thread& t : threads) t.join();
    }

    void declare(Arena& arena);
    void plan(Buffer& b, uint64_t first);
    void read_item(Buffer& b, const Item& item, int64_t& replaced);
    void met_bad(const Draw& draw, int64_t index, const Error& why);
    void thread_main();
};

void Loader::Impl::declare(Arena& arena) {
    const LatentFacts& f = data.facts();
    const std::vector<std::array<int64_t, 4>> shapes = data.shapes();
    int64_t largest = 0;
    for (const auto& s : shapes) largest = std::max(largest, s[0] * s[1] * s[2] * s[3]);
    const int64_t n = options.global_batch_size;
    // each shape leaves at most one micro-batch that is not full
    const int64_t micros =
        std::min(n, n / options.micro_batch_size + static_cast<int64_t>(shapes.size()));
    const auto flat = [&](const char* what, int64_t per_sample, DType dtype) {
        const int64_t pad = Arena::kAlign / size_of(dtype);
        return arena.alloc(what, {n * per_sample + micros * pad}, dtype);
    };
    for (Buffer& b : buffers) {
        b.x0 = flat("step latents", largest, DType::kF32);
        b.text = flat("step text", f.text_len * f.text_dim, DType::kF32);
        b.ordinals = flat("step ordinals", 1, DType::kI64);
        if (arena.measuring()) continue;
        const auto many = static_cast<size_t>(n), most = static_cast<size_t>(micros);
        b.items.reserve(many);
        b.plan.draws.reserve(many);
        b.plan.shapes.reserve(many);
        b.plan.slots.reserve(many);
        b.plan.ends.reserve(most);
        b.batch.micros.reserve(most);
        b.spare.resize(most);
        for (MicroBatch& m : b.spare) {
            m.draws.reserve(static_cast<size_t>(std::min(n, options.micro_batch_size)));
        }
    }
    empty_text = arena.alloc("empty caption", {f.text_len, f.text_dim}, DType::kF32);
    if (BlockOrder::needs_table(data)) {
        table = arena.alloc("order of draws", {int64_t{kBlockDraws}}, DType::kI64);
    }
}

void Loader::Impl::plan(Buffer& b, uint64_t first) {
    const int64_t batch = options.batch_at(first);
    b.plan.make(data, *order, first, batch, options.micro_batch_size);
    for (size_t i = 0; i < b.batch.micros.size(); ++i) b.spare[i] = std::move(b.batch.micros[i]);
    b.batch.micros.clear();
    b.items.clear();
    b.batch.first = first;
    b.batch.next = first + static_cast<uint64_t>(batch);
    b.batch.replaced = 0;
    const LatentFacts& f = data.facts();
    int64_t begin = 0, x0_at = 0, text_at = 0, ordinals_at = 0;
    for (size_t k = 0; k < b.plan.ends.size(); ++k) {
        const int64_t end = b.plan.ends[k], n = end - begin;
        MicroBatch& m = b.batch.micros.emplace_back(std::move(b.spare[k]));
        m.shape = b.plan.shapes[static_cast<size_t>(b.plan.slots[static_cast<size_t>(begin)])];
        m.x0 = cut(b.x0, x0_at, {n, m.shape[0], m.shape[1], m.shape[2], m.shape[3]});
        m.text = cut(b.text, text_at, {n, f.text_len, f.text_dim});
        m.ordinals = cut(b.ordinals, ordinals_at, {n});
        m.draws.clear();
        for (int64_t i = begin; i < end; ++i) {
            const int64_t slot = b.plan.slots[static_cast<size_t>(i)];
            m.draws.push_back(b.plan.draws[static_cast<size_t>(slot)]);
            m.ordinals.as<int64_t>()[i - begin] = static_cast<int64_t>(m.draws.back().ordinal);
            b.items.push_back({.micro = k, .row = i - begin});
        }
        begin = end;
    }
}

// Names the sample once, and ends the run when too many different ones are bad.
void Loader::Impl::met_bad(const Draw& draw, int64_t index, const Error& why) {
    size_t count = 0;
    {
        const std::lock_guard lock(mutex);
        if (!bad.emplace(draw.source, index).second) return;
        count = bad.size();
    }
    std::string id = "unknown";
    try {
        id = data.sample_id(draw.source, index);
    } catch (const Error&) {
        // the file may be gone altogether
    }
    warn("bad sample {} of at most {}: {} (id {}, draw {}); another of its shape takes its place",
         count, options.max_bad_samples, why.message(), id, draw.ordinal);
    if (static_cast<int64_t>(count) > options.max_bad_samples) {
        raise(Fault::kData,
              fmt::format("{} bad samples, more than data.max_bad_samples = {}; the last: {}",
                          count, options.max_bad_samples, why.message()),
              "run `vtrain data verify` on the shards, or raise data.max_bad_samples");
    }
}

void Loader::Impl::read_item(Buffer& b, const Item& item, int64_t& replaced) {
    MicroBatch& m = b.batch.micros[item.micro];
    const auto& s = m.shape;
    const LatentFacts& f = data.facts();
    const Tensor latent = row_of(m.x0, item.row, {s[0], s[1], s[2], s[3]});
    const Tensor text = row_of(m.text, item.row, {f.text_len, f.text_dim});
    Draw& draw = m.draws[static_cast<size_t>(item.row)];
    const Draw wanted = draw;
    uint64_t tried = 0;
    for (;;) {
        try {
            data.read(draw.source, draw.index, latent, text);
            break;
        } catch (const Error& e) {
            // a damaged sample or a failing disk; anything else is no matter of this sample
            if (e.fault() != Fault::kData && e.fault() != Fault::kSystem) throw;
            met_bad(wanted, draw.index, e);
            if (!next_substitute(data, options.seed, wanted, s, tried, draw.index)) {
                raise(Fault::kData,
                      fmt::format("no readable sample of shape {},{},{},{} is left in data source "
                                  "{}; the last: {}",
                                  s[0], s[1], s[2], s[3], draw.source, e.message()),
                      e.hint());
            }
        }
    }
    if (draw.index != wanted.index) ++replaced;
    if (caption_dropped(options.seed, draw.ordinal, options.cfg_dropout_prob)) {
        std::memcpy(text.data, empty_text.data, static_cast<size_t>(text.bytes()));
    }
}

void Loader::Impl::thread_main() {
    std::unique_lock lock(mutex);
    for (;;) {
        Buffer& b = buffers[fill];
        if (stop || error) return;
        try {
            if (b.state == State::kFree) {
                b.state = State::kPlanning;
                const uint64_t first = cursor;
                lock.unlock();
                plan(b, first);
                lock.lock();
                cursor = b.batch.next;
                taken = done = 0;
                b.state = State::kFilling;
                work.notify_all();
            } else if (b.state == State::kFilling && taken < std::ssize(b.items)) {
                const Item item = b.items[static_cast<size_t>(taken++)];
                int64_t replaced = 0;
                lock.unlock();
                read_item(b, item, replaced);
                lock.lock();
                b.batch.replaced += replaced;
                if (++done == std::ssize(b.items)) {
                    b.state = State::kReady;
                    fill ^= 1U;
                    work.notify_all();
                    ready.notify_all();
                }
            } else {
                work.wait(lock);
            }
        } catch (...) {
            if (!lock.owns_lock()) lock.lock();
            if (!error) error = std::current_exception();
            work.notify_all();
            ready.notify_all();
            return;
        }
    }
}

Loader::Loader(const Dataset& data, const LoaderOptions& options, uint64_t cursor, Arena& arena)
    : impl_(std::make_unique<Impl>(data, options, cursor)) {
    VT_CHECK(options.global_batch_size >= 1 && options.micro_batch_size >= 1 &&
                 options.reader_threads >= 1,
             "batch {}, micro-batch {}, {} reader threads", options.global_batch_size,
             options.micro_batch_size, options.reader_threads);
    Impl& l = *impl_;
    (void)options.batch_at(0);  // a ramp that cannot be is refused before it is met
    l.declare(arena);
    if (arena.measuring()) return;
    data.read_empty_text(l.empty_text);
    l.order = std::make_unique<BlockOrder>(data, options.seed, l.table);
    for (int i = 0; i < options.reader_threads; ++i) {
        l.threads.emplace_back([&l] { l.thread_main(); });
    }
}

Loader::~Loader() = default;

const StepBatch& Loader::next(double* wait) {
    Impl& l = *impl_;
    VT_CHECK(!l.threads.empty(), "next() of a loader on a measuring arena");
    std::unique_lock lock(l.mutex);
    Buffer& previous = l.buffers[l.take ^ 1U];
    if (previous.state == State::kInUse) {
        previous.state = State::kFree;
        l.work.notify_all();
    }
    Buffer& b = l.buffers[l.take];
    if (b.state != State::kReady) {
        const auto start = std::chrono::steady_clock::now();
        l.ready.wait(lock, [&] { return b.state == State::kReady || l.error != nullptr; });
        const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
        if (wait != nullptr) *wait += waited.count();
    }
    // steps that were complete before the error are still given
    if (b.state != State::kReady) std::rethrow_exception(l.error);
    b.state = State::kInUse;
    l.take ^= 1U;
    return b.batch;
}

}  // namespace vt
