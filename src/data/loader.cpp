// SPDX-License-Identifier: MIT
// The prefetching reader. Step buffers form a ring: the caller has one, threads fill the others.
//
// Invariants (all under mutex_, but for the payload a thread is writing):
//  1. buffers go free -> planning -> filling -> ready -> in use -> free, and are planned and given
//     in the order of steps; several may be filled at once, the oldest first;
//  2. a thread writes only the memory of the items it took, which no other thread takes;
//  3. an error belongs to the step it came up in: earlier steps are completed and given, and from
//     that step on next() rethrows it for ever;
//  4. what a step met (bad samples, bad files) is counted and said when the step is given, in the
//     order of its draws: the count after n steps is the same whatever the threads did;
//  5. a thread inside a call into the file system may be left behind, and owns what it touches
//     there: itself (Impl, shared) and no tensor and no data set.
// Floor 3.
#include "data/loader.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "core/check.h"
#include "core/io_error.h"
#include "core/log.h"
#include "data/order.h"
#include "data/patient.h"
#include "data/watch.h"

namespace vt {

namespace {

enum class State : uint8_t { kFree, kPlanning, kFilling, kReady, kInUse };

struct Item {
    size_t micro = 0;
    int64_t row = 0;   // inside the micro-batch
    int32_t file = 0;  // items are read in the order of files and rows
    int64_t place = 0;
};

// What reading a step met.
struct Notes {
    struct File {
        uint64_t ordinal = 0;
        FileFault fault;
    };
    struct Slow {
        int32_t file = 0;
        std::string said;
    };
    int64_t replaced = 0;
    std::vector<BadSample> samples;
    std::vector<File> files;
    std::vector<Slow> slow;
    void take(Notes& other) {
        replaced += other.replaced;
        const auto move = [](auto& to, auto& from) {
            to.insert(to.end(), std::make_move_iterator(from.begin()),
                      std::make_move_iterator(from.end()));
            from.clear();
        };
        move(samples, other.samples);
        move(files, other.files);
        move(slow, other.slow);
        other.replaced = 0;
    }
};

struct Buffer {
    Tensor x0, text, ordinals;  // flat, for every micro-batch one after another
    StepBatch batch;
    std::vector<MicroBatch> spare;  // keep their draws' memory while not in batch.micros
    StepPlan plan;
    std::vector<Item> items;
    Notes notes;
    State state = State::kFree;
    uint64_t step = 0;            // counted from the loader's first
    int64_t taken = 0, done = 0;  // items
};

struct Reader {
    ReadWatch watch;
    std::thread thread;
    bool ended = false;
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

constexpr int64_t kRunBytes = 1 << 18;  // a thread takes about as much at a time
constexpr auto kPoll = std::chrono::milliseconds(50);

}  // namespace

struct Loader::Impl {
    const Dataset& data;
    const LoaderOptions options;
    std::vector<Buffer> buffers;
    Tensor empty_text, table;
    std::unique_ptr<BlockOrder> order;  // used by the thread that plans
    int64_t run = 1;                    // items a thread takes at a time, at most

    std::mutex mutex;
    std::condition_variable work, ready, ended;  // for threads; for next(); for the destructor
    uint64_t cursor = 0;                         // of the next step to be planned
    uint64_t planned = 0, given = 0;             // steps
    uint64_t failed = UINT64_MAX;                // the step that cannot be given, and why
    std::exception_ptr error;
    std::atomic<bool> any_bad_file{false};
    std::set<int32_t> bad_files;                      // replaced without a look
    std::set<int32_t> reported_files, reported_slow;  // next() only
    BadLedger ledger;                                 // of the steps given
    bool stop = false;
    std::vector<std::unique_ptr<Reader>> readers;
    std::vector<StallReport> stalls;  // next() only

    Impl(const Dataset& d, const LoaderOptions& o, uint64_t c)
        : data(d), options(o), cursor(c), ledger(o.met) {}

    void declare(Arena& arena);
    void plan(Buffer& b, uint64_t first);
    void read_item(Buffer& b, const Item& item, ReadWatch& watch, Notes& notes);
    bool file_is_bad(int32_t file);
    void met_file(const Draw& draw, const FileFault& e, Notes& notes);
    [[nodiscard]] Buffer* to_fill();
    void fill(Buffer& b, Reader& self, std::unique_lock<std::mutex>& lock);
    void thread_main(Reader& self);
    void settle(Buffer& b);
    Buffer& at(uint64_t step) { return buffers[static_cast<size_t>(step % buffers.size())]; }
};

void Loader::Impl::declare(Arena& arena) {
    const LatentFacts& f = data.facts();
    const std::vector<std::array<int64_t, 4>> shapes = data.shapes();
    int64_t largest = 0;
    for (const auto& s : shapes) largest = std::max(largest, s[0] * s[1] * s[2] * s[3]);
    const int64_t n = options.global_batch_size;
    run = std::clamp<int64_t>(kRunBytes / (4 * std::max<int64_t>(largest, 1)), 1,
                              std::max<int64_t>(1, n / (2 * options.reader_threads)));
    // each shape leaves at most one micro-batch that is not full
    const int64_t micros =
        std::min(n, n / options.micro_batch_size + static_cast<int64_t>(shapes.size()));
    const auto flat = [&](const char* what, int64_t per_sample, DType dtype) {
        const int64_t pad = Arena::kAlign / size_of(dtype);
        return arena.alloc(what, {n * per_sample + micros * pad}, dtype);
    };
    buffers.resize(static_cast<size_t>(options.prefetch_steps) + 1);
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
    b.batch.bad.clear();
    b.taken = b.done = 0;
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
            const Draw& draw = b.plan.draws[static_cast<size_t>(slot)];
            m.draws.push_back(draw);
            m.ordinals.as<int64_t>()[i - begin] = static_cast<int64_t>(draw.ordinal);
            const Dataset::Sample s = data.sample(draw.source, draw.index);
            b.items.push_back({.micro = k, .row = i - begin, .file = s.file, .place = s.row});
        }
        begin = end;
    }
    std::sort(b.items.begin(), b.items.end(), [](const Item& x, const Item& y) {
        return x.file != y.file ? x.file < y.file : x.place < y.place;
    });
}

bool Loader::Impl::file_is_bad(int32_t file) {
    if (!any_bad_file.load(std::memory_order_relaxed)) return false;
    const std::lock_guard lock(mutex);
    return bad_files.contains(file);
}

void Loader::Impl::met_file(const Draw& draw, const FileFault& e, Notes& notes) {
    if (!options.replace_bad_files) {
        raise(e.fault(),
              fmt::format("{}; it holds {} samples of data source '{}'", e.message(), e.samples(),
                          data.source_name(draw.source)),
              "repair the file and start again, or set data.on_bad_file = \"replace\" to train on "
              "without it");
    }
    notes.files.push_back({draw.ordinal, e});
    const std::lock_guard lock(mutex);
    bad_files.insert(e.file());
    any_bad_file = true;
}

void Loader::Impl::read_item(Buffer& b, const Item& item, ReadWatch& watch, Notes& notes) {
    MicroBatch& m = b.batch.micros[item.micro];
    const auto& s = m.shape;
    const LatentFacts& f = data.facts();
    const Tensor latent = row_of(m.x0, item.row, {s[0], s[1], s[2], s[3]});
    const Tensor text = row_of(m.text, item.row, {f.text_len, f.text_dim});
    Draw& draw = m.draws[static_cast<size_t>(item.row)];
    const Draw wanted = draw;
    uint64_t tried = 0;
    std::string why = "its file was met before";
    for (int32_t file = item.file;; file = data.sample(draw.source, draw.index).file) {
        try {
            if (!file_is_bad(file)) {
                const Retried r = read_retrying(data, draw.source, draw.index, latent, text, watch,
                                                options.retry);
                if (r.tries > 1) {
                    notes.slow.push_back(
                        {file, fmt::format("{}; try {} succeeded", r.why, r.tries)});
                }
                break;
            }
        } catch (const IoError&) {
            throw;  // the machine's limits, no matter of this sample
        } catch (const FileFault& e) {
            why = e.message();
            met_file(draw, e, notes);
        } catch (const Error& e) {
            // a damaged sample; anything else is no matter of this sample
            if (e.fault() != Fault::kData && e.fault() != Fault::kSystem) throw;
            why = e.message();
            notes.samples.push_back({draw, why, "unknown", false});
            try {
                notes.samples.back().id = data.sample_id_watched(draw.source, draw.index, &watch);
            } catch (const Error&) {
                // the message has file and row
            }
        }
        // of a bad file the sample drawn is named, not each that might have stood in for it
        const bool named =
            !notes.samples.empty() && notes.samples.back().draw.ordinal == draw.ordinal;
        if (!named) notes.samples.push_back({draw, "its file is bad", "", true});
        if (!next_substitute(data, options.seed, wanted, s, tried, draw.index)) {
            raise(Fault::kData,
                  fmt::format("no readable sample of shape {},{},{},{} is left in data source "
                              "'{}'; the last: {}",
                              s[0], s[1], s[2], s[3], data.source_name(draw.source), why),
                  "run `vtrain data verify` on the shards");
        }
    }
    if (draw.index != wanted.index) ++notes.replaced;
    if (caption_dropped(options.seed, draw.ordinal, options.cfg_dropout_prob)) {
        std::memcpy(text.data, empty_text.data, static_cast<size_t>(text.bytes()));
    }
}

Buffer* Loader::Impl::to_fill() {
    for (uint64_t step = given > 0 ? given - 1 : 0; step < std::min(planned, failed); ++step) {
        Buffer& b = at(step);
        if (b.step == step && b.state == State::kFilling && b.taken < std::ssize(b.items)) {
            return &b;
        }
    }
    return nullptr;
}

void Loader::Impl::fill(Buffer& b, Reader& self, std::unique_lock<std::mutex>& lock) {
    const int64_t begin = b.taken, end = std::min(begin + run, std::ssize(b.items));
    b.taken = end;
    lock.unlock();
    Notes notes;
    for (int64_t i = begin; i < end; ++i) {
        read_item(b, b.items[static_cast<size_t>(i)], self.watch, notes);
    }
    lock.lock();
    b.notes.take(notes);
    b.done += end - begin;
    if (b.done < std::ssize(b.items)) return;
    b.state = State::kReady;
    ready.notify_all();
}

void Loader::Impl::thread_main(Reader& self) {
    std::unique_lock lock(mutex);
    while (!stop) {
        uint64_t step = planned;
        try {
            if (Buffer* const b = to_fill(); b != nullptr) {
                step = b->step;
                fill(*b, self, lock);
            } else if (failed == UINT64_MAX && at(planned).state == State::kFree) {
                Buffer& next = at(planned);
                next.state = State::kPlanning;
                const uint64_t first = cursor;
                lock.unlock();
                plan(next, first);
                lock.lock();
                cursor = next.batch.next;
                next.step = planned++;
                next.state = State::kFilling;
                work.notify_all();
            } else {
                work.wait(lock);
            }
        } catch (const ReadWatch::Left&) {
            return;
        } catch (...) {
            if (!lock.owns_lock()) lock.lock();
            if (step < failed) {
                failed = step;
                error = std::current_exception();
            }
            ready.notify_all();
        }
    }
    self.ended = true;
    ended.notify_all();
}

// Counts and says what the step met; too many bad samples end the run.
void Loader::Impl::settle(Buffer& b) {
    Notes& notes = b.notes;
    const auto by_ordinal = [](const auto& x, const auto& y) { return x < y; };
    std::stable_sort(notes.files.begin(), notes.files.end(), [&](const auto& x, const auto& y) {
        return by_ordinal(x.ordinal, y.ordinal);
    });
    std::stable_sort(notes.samples.begin(), notes.samples.end(), [&](const auto& x, const auto& y) {
        return by_ordinal(x.draw.ordinal, y.draw.ordinal);
    });
    for (const Notes::Slow& slow : notes.slow) {
        if (reported_slow.insert(slow.file).second) warn("{}", slow.said);
    }
    for (const Notes::File& f : notes.files) {
        if (!reported_files.insert(f.fault.file()).second) continue;
        warn("bad file: {} (draw {}); its {} samples are replaced by others from now on",
             f.fault.message(), f.ordinal, f.fault.samples());
    }
    const int64_t most = options.max_bad_samples;
    for (const BadSample& s : notes.samples) {
        if (s.of_bad_file || !ledger.add(s.draw.source, s.draw.index)) continue;
        if (ledger.total() <= most) {
            warn(
                "bad sample {} of at most {} ({} in data source '{}'): {} (id {}, draw {}); "
                "another of its shape takes its place",
                ledger.total(), most, ledger.of_source(s.draw.source),
                data.source_name(s.draw.source), s.why, s.id, s.draw.ordinal);
            continue;
        }
        raise(Fault::kData,
              most == 0 ? fmt::format("a bad sample, and data.max_bad_samples = 0 allows none: {} "
                                      "(id {}, draw {})",
                                      s.why, s.id, s.draw.ordinal)
                        : fmt::format("{} bad samples, more than data.max_bad_samples = {}; the "
                                      "last, in data source '{}': {} (id {}, draw {})",
                                      ledger.total(), most, data.source_name(s.draw.source), s.why,
                                      s.id, s.draw.ordinal),
              "run `vtrain data verify` on the shards, or raise data.max_bad_samples");
    }
    b.batch.replaced = notes.replaced;
    b.batch.bad = std::move(notes.samples);
    notes = Notes{};
}

Loader::Loader(const Dataset& data, const LoaderOptions& options, uint64_t cursor, Arena& arena)
    : impl_(std::make_shared<Impl>(data, options, cursor)) {
    VT_CHECK(options.global_batch_size >= 1 && options.micro_batch_size >= 1 &&
                 options.reader_threads >= 1 && options.prefetch_steps >= 1,
             "batch {}, micro-batch {}, {} reader threads, {} steps ahead",
             options.global_batch_size, options.micro_batch_size, options.reader_threads,
             options.prefetch_steps);
    VT_CHECK(options.origin <= cursor, "an order from draw {} on at {}", options.origin, cursor);
    (void)options.batch_at(0);  // a ramp that cannot be is refused before it is met
    Impl& l = *impl_;
    l.declare(arena);
    if (arena.measuring()) return;
    data.read_empty_text(l.empty_text);
    l.order = std::make_unique<BlockOrder>(data, options.seed, l.table, options.origin);
    l.stalls.assign(static_cast<size_t>(options.reader_threads), StallReport(options.stall_warn_s));
    for (int i = 0; i < options.reader_threads; ++i) {
        Reader& r = *l.readers.emplace_back(std::make_unique<Reader>());
        // the thread shares what it touches, in case it is left behind
        r.thread = std::thread([shared = impl_, &r] { shared->thread_main(r); });
    }
}

Loader::~Loader() {
    Impl& l = *impl_;
    std::unique_lock lock(l.mutex);
    l.stop = true;
    l.work.notify_all();
    for (const auto& r : l.readers) r->watch.give_up();
    const auto until =
        std::chrono::steady_clock::now() + std::chrono::duration<double>(l.options.leave_after_s);
    for (const auto& r : l.readers) {
        const auto over = [&] { return r->ended; };
        while (!l.ended.wait_for(lock, kPoll, over)) {
            if (std::chrono::steady_clock::now() < until || !r->watch.leave_behind()) continue;
            warn("a reader that is stuck in the file system is left behind");
            break;
        }
        if (!r->ended) {
            r->thread.detach();
            continue;
        }
        lock.unlock();
        r->thread.join();
        lock.lock();
    }
}

const StepBatch& Loader::next(double* wait) {
    return *next_unless({}, wait);
}

const StepBatch* Loader::next_unless(const std::function<bool()>& stop, double* wait) {
    Impl& l = *impl_;
    VT_CHECK(!l.readers.empty(), "next() of a loader on a measuring arena");
    std::unique_lock lock(l.mutex);
    if (l.given > 0 && l.at(l.given - 1).state == State::kInUse) {
        l.at(l.given - 1).state = State::kFree;
        l.work.notify_all();
    }
    Buffer& b = l.at(l.given);
    const auto over = [&] { return b.state == State::kReady || l.failed <= l.given; };
    const auto start = std::chrono::steady_clock::now();
    bool stopped = false;
    while (!over() && !stopped) {
        if (l.ready.wait_for(lock, kPoll, over)) break;
        for (size_t i = 0; i < l.readers.size(); ++i) {
            l.stalls[i].look(l.readers[i]->watch, fmt::format("data reader {}", i));
        }
        stopped = stop && stop();
    }
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    if (wait != nullptr) *wait += waited.count();
    if (!over()) return nullptr;
    if (l.failed <= l.given) std::rethrow_exception(l.error);
    try {
        l.settle(b);
    } catch (...) {
        l.failed = l.given;
        l.error = std::current_exception();
        throw;
    }
    b.state = State::kInUse;
    ++l.given;
    return &b.batch;
}

BadLedger Loader::ledger() const {
    const std::lock_guard lock(impl_->mutex);
    return impl_->ledger;
}

}  // namespace vt
