// SPDX-License-Identifier: MIT
// Ranks as threads of one process. Floor 1.
#include "comm/threads.h"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <map>
#include <mutex>
#include <thread>

#include "comm/host.h"

namespace vt {

namespace {

constexpr int64_t kChunk = 1 << 16;  // elements of a reduction that one thread takes at a time

size_t at(int i) {
    return static_cast<size_t>(i);
}

// One world: its lock, and how it ended. Every group of the world shares it.
struct World {
    std::mutex mutex;
    std::condition_variable news;
    bool broken = false;
    Fault fault = Fault::kSystem;
    std::string why;

    // All with the lock held.
    void abort(Fault f, const std::string& text) {
        if (broken) return;
        broken = true;
        fault = f;
        why = text;
        news.notify_all();
    }
    void check() const {
        if (broken) raise(fault, why);
    }
};

struct Board;

// A collective: what each rank handed in, and how far the work is.
struct Op {
    std::vector<Job> jobs;  // by rank
    std::vector<bool> here;
    int arrived = 0;
    int first = 0;  // rank that called first
    int64_t chunks = 1, next_chunk = 0, done_chunks = 0;
    int active = 0;  // threads at work on it, without the lock
    bool done = false;
    std::vector<std::shared_ptr<Board>> boards;  // split: by old rank
    std::vector<int> new_rank;
};

struct Letter {
    DType dtype = DType::kU8;
    int64_t numel = 0;
    std::vector<char> bytes;
};

// Letters from one rank to another, numbered.
struct Mail {
    std::map<int64_t, Letter> letters;
    int64_t sent = 0;
    int64_t asked = 0;
};

// One group, as its ranks share it.
struct Board {
    Board(std::shared_ptr<World> w, std::string n, int size)
        : world(std::move(w)), name(std::move(n)), left(at(size)), next(at(size)) {}

    std::shared_ptr<World> world;
    std::string name;
    std::vector<bool> left;                    // rank's Group is gone
    std::vector<int64_t> next;                 // number of each rank's next collective
    int64_t front = 0;                         // number of ops.front()
    std::deque<std::shared_ptr<Op>> ops;       // in order; done ones are gone
    std::map<std::pair<int, int>, Mail> mail;  // (from, to)

    [[nodiscard]] int size() const { return narrow<int>(left.size()); }
    std::shared_ptr<Op> post(int rank, Job job);
    void run(Op& op, int64_t chunk) const;
    void make_boards(Op& op) const;
    bool work(std::unique_lock<std::mutex>& lock);
    void blame_missing(const Op& op, int rank);
};

int64_t chunks_of(const Job& job, int size) {
    switch (job.call.op) {
        case CommOp::kAllReduce:
        case CommOp::kBroadcast:
            return std::max<int64_t>(1, div_up(job.call.numel, kChunk));
        case CommOp::kReduceScatter:
            return std::max<int64_t>(1, div_up(job.call.numel, kChunk)) * size;
        case CommOp::kAllGather:
        case CommOp::kAllToAll:
            return size;
        default:
            return 1;
    }
}

template <typename Byte>
Byte* element(const BasicTensor<Byte>& t, int64_t i) {
    using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
    return t.data == nullptr ? nullptr : static_cast<Char*>(t.data) + i * size_of(t.dtype);
}

void copy(const Tensor& out, int64_t to, const CTensor& in, int64_t from, int64_t n) {
    if (n == 0 || element(out, to) == element(in, from)) return;
    std::memcpy(element(out, to), element(in, from), static_cast<size_t>(n * size_of(in.dtype)));
}

void reduce_range(const Op& op, int64_t at_in, int64_t n, const std::vector<void*>& outs) {
    std::vector<const void*> inputs;
    for (const Job& job : op.jobs) inputs.push_back(element(job.in, at_in));
    const Call& call = op.jobs[0].call;
    reduce_in_order(outs, inputs, n, call.dtype, call.reduce);
}

void Board::run(Op& op, int64_t chunk) const {
    const Call& call = op.jobs[0].call;
    const int64_t n = call.numel;
    switch (call.op) {
        case CommOp::kAllReduce: {
            const int64_t begin = chunk * kChunk;
            std::vector<void*> outs;
            for (const Job& job : op.jobs) outs.push_back(element(job.out, begin));
            return reduce_range(op, begin, std::min(kChunk, n - begin), outs);
        }
        case CommOp::kReduceScatter: {
            const int64_t each = chunks_of(op.jobs[0], 1);
            const int64_t part = chunk / each, begin = chunk % each * kChunk;
            return reduce_range(op, part * n + begin, std::min(kChunk, n - begin),
                                {element(op.jobs[static_cast<size_t>(part)].out, begin)});
        }
        case CommOp::kAllGather:
            for (const Job& job : op.jobs) {
                copy(job.out, chunk * n, op.jobs[static_cast<size_t>(chunk)].in, 0, n);
            }
            return;
        case CommOp::kAllToAll: {
            const auto from = static_cast<size_t>(chunk);
            const Job& giver = op.jobs[from];
            for (size_t to = 0; to < op.jobs.size(); ++to) {
                copy(op.jobs[to].out, op.jobs[to].out_parts[from], giver.in, giver.in_parts[to],
                     giver.in_parts[to + 1] - giver.in_parts[to]);
            }
            return;
        }
        case CommOp::kBroadcast: {
            const int64_t begin = chunk * kChunk;
            for (const Job& job : op.jobs) {
                copy(job.out, begin, op.jobs[at(call.root)].in, begin, std::min(kChunk, n - begin));
            }
            return;
        }
        case CommOp::kSplit:
            return make_boards(op);
        case CommOp::kBarrier:
            return;
    }
}

void Board::make_boards(Op& op) const {
    std::vector<int64_t> colors, keys;
    for (const Job& job : op.jobs) {
        colors.push_back(job.color);
        keys.push_back(job.key);
    }
    op.boards.resize(op.jobs.size());
    op.new_rank.resize(op.jobs.size());
    for (int r = 0; r < size(); ++r) {
        const std::vector<int> members = members_of_split(colors, keys, r);
        if (members[0] != r) continue;
        const auto board = std::make_shared<Board>(world, name, narrow<int>(members.size()));
        for (size_t i = 0; i < members.size(); ++i) {
            op.boards[at(members[i])] = board;
            op.new_rank[at(members[i])] = narrow<int>(i);
        }
    }
}

// Hands in rank's share; the last to come makes the call ready. Lock held.
std::shared_ptr<Op> Board::post(int rank, Job job) {
    world->check();
    const int64_t number = next[at(rank)]++ - front;
    if (number == narrow<int64_t>(ops.size())) {
        ops.push_back(std::make_shared<Op>());
        ops.back()->jobs.resize(left.size());
        ops.back()->here.resize(left.size());
        ops.back()->first = rank;
        ops.back()->chunks = chunks_of(job, size());
    }
    const std::shared_ptr<Op> op = ops[static_cast<size_t>(number)];
    const Call& theirs = op->jobs[at(op->first)].call;
    if (op->arrived > 0 && !(job.call == theirs)) {
        world->abort(Fault::kBug, mismatch(name, op->first, theirs, rank, job.call));
        world->check();
    }
    op->jobs[at(rank)] = std::move(job);
    op->here[at(rank)] = true;
    if (++op->arrived < size()) return op;
    for (size_t i = 0; op->jobs[0].call.op == CommOp::kAllToAll && i < left.size(); ++i) {
        for (size_t j = 0; j < left.size(); ++j) {
            const Job &giver = op->jobs[i], &taker = op->jobs[j];
            const int64_t given = giver.in_parts[j + 1] - giver.in_parts[j];
            const int64_t taken = taker.out_parts[i + 1] - taker.out_parts[i];
            if (given == taken) continue;
            world->abort(Fault::kBug,
                         fmt::format("group \"{}\": all_to_all: rank {} gives {} elements to rank "
                                     "{}, which takes {}",
                                     name, i, given, j, taken));
            world->check();
        }
    }
    world->news.notify_all();
    return op;
}

// Does a chunk of the oldest call if there is one to do. The lock is let go meanwhile.
bool Board::work(std::unique_lock<std::mutex>& lock) {
    if (ops.empty() || world->broken) return false;
    const std::shared_ptr<Op> op = ops.front();
    if (op->arrived < size() || op->next_chunk == op->chunks) return false;
    const int64_t chunk = op->next_chunk++;
    ++op->active;
    lock.unlock();
    std::string failure;
    try {
        run(*op, chunk);
    } catch (const std::exception& e) {
        failure = e.what();
    }
    lock.lock();
    --op->active;
    if (!failure.empty()) world->abort(Fault::kSystem, failure);
    if (++op->done_chunks == op->chunks && !world->broken) {
        op->done = true;
        ops.pop_front();
        ++front;
    }
    if (op->done || world->broken) world->news.notify_all();
    return true;
}

void Board::blame_missing(const Op& op, int rank) {
    for (int r = 0; r < size(); ++r) {
        if (op.here[at(r)] || !left[at(r)]) continue;
        world->abort(Fault::kSystem,
                     fmt::format("group \"{}\": rank {} left while rank {} waits in {}", name, r,
                                 rank, str(op.jobs[at(rank)].call)));
    }
}

// A handle's destructor may run because of an exception: then it must not wait for other ranks.
class InFlight : public CommHandle::Work {
  public:
    InFlight(std::shared_ptr<Board> board, int rank)
        : board_(std::move(board)), rank_(rank), exceptions_(std::uncaught_exceptions()) {}

  protected:
    // To be called by the destructors of the classes below.
    void finish(const std::string& what) {
        if (over_) return;
        if (std::uncaught_exceptions() > exceptions_) {
            const std::lock_guard lock(board_->world->mutex);
            board_->world->abort(
                Fault::kSystem,
                fmt::format("group \"{}\": rank {} left a call of {} by an exception", board_->name,
                            rank_, what));
        }
        try {
            wait();
        } catch (const std::exception&) {  // the world stays broken: the next call says it
            over_ = true;
        }
    }
    std::shared_ptr<Board> board_;
    int rank_;
    bool over_ = false;

  private:
    int exceptions_;
};

class Collective final : public InFlight {
  public:
    Collective(std::shared_ptr<Board> board, int rank, std::shared_ptr<Op> op)
        : InFlight(std::move(board), rank), op_(std::move(op)) {}
    ~Collective() override { finish(str(op_->jobs[at(rank_)].call)); }
    Collective(const Collective&) = delete;
    Collective& operator=(const Collective&) = delete;
    void wait() override {
        if (over_) return;
        World& world = *board_->world;
        std::unique_lock lock(world.mutex);
        while (!op_->done) {
            if (board_->work(lock)) continue;
            if (op_->arrived < board_->size()) board_->blame_missing(*op_, rank_);
            if (world.broken) {
                // Nobody starts on it any more; wait for those who still touch the buffers.
                world.news.wait(lock, [&] { return op_->active == 0; });
                over_ = true;
                world.check();
            }
            world.news.wait(lock);
        }
        over_ = true;
    }

  private:
    std::shared_ptr<Op> op_;
};

class Receive final : public InFlight {
  public:
    Receive(std::shared_ptr<Board> board, int rank, Tensor x, int from, int64_t number)
        : InFlight(std::move(board), rank), x_(x), from_(from), number_(number) {}
    ~Receive() override { finish(fmt::format("recv(from {})", from_)); }
    Receive(const Receive&) = delete;
    Receive& operator=(const Receive&) = delete;
    void wait() override {
        if (over_) return;
        World& world = *board_->world;
        std::unique_lock lock(world.mutex);
        Mail& mail = board_->mail[{from_, rank_}];
        while (mail.letters.count(number_) == 0) {
            if (board_->left[at(from_)]) {
                world.abort(Fault::kSystem,
                            fmt::format("group \"{}\": rank {} left while rank {} waits in recv",
                                        board_->name, from_, rank_));
            }
            if (world.broken) {
                over_ = true;
                world.check();
            }
            world.news.wait(lock);
        }
        over_ = true;
        const Letter letter = std::move(mail.letters.at(number_));
        mail.letters.erase(number_);
        if (letter.dtype != x_.dtype || letter.numel != x_.numel()) {
            world.abort(Fault::kBug,
                        fmt::format("group \"{}\": rank {} sent {} x {}, rank {} takes {} x {}",
                                    board_->name, from_, name_of(letter.dtype), letter.numel, rank_,
                                    name_of(x_.dtype), x_.numel()));
            world.check();
        }
        lock.unlock();
        if (!letter.bytes.empty()) std::memcpy(x_.data, letter.bytes.data(), letter.bytes.size());
    }

  private:
    Tensor x_;
    int from_;
    int64_t number_;
};

class ThreadGroup final : public HostGroup {
  public:
    ThreadGroup(std::shared_ptr<Board> board, std::string name, int rank)
        : HostGroup(std::move(name), rank, board->size()), board_(std::move(board)) {}
    ~ThreadGroup() override {
        const std::lock_guard lock(board_->world->mutex);
        board_->left[at(rank())] = true;
        board_->world->news.notify_all();  // who waits for this rank finds it gone
    }
    ThreadGroup(const ThreadGroup&) = delete;
    ThreadGroup& operator=(const ThreadGroup&) = delete;

    void abort(Fault fault, const std::string& why) override {
        const std::lock_guard lock(board_->world->mutex);
        board_->world->abort(fault, why);
    }
    /// Why the world is broken; empty if it is not.
    [[nodiscard]] std::string broken_by() const {
        const std::lock_guard lock(board_->world->mutex);
        return board_->world->why;
    }

  protected:
    CommHandle start(Job job) override {
        const std::lock_guard lock(board_->world->mutex);
        return CommHandle(
            std::make_unique<Collective>(board_, rank(), board_->post(rank(), std::move(job))));
    }
    CommHandle start_send(CTensor x, int to) override {
        const char* p = static_cast<const char*>(x.data);
        Letter letter{x.dtype, x.numel(), {p, p + x.bytes()}};
        const std::lock_guard lock(board_->world->mutex);
        board_->world->check();
        Mail& mail = board_->mail[{rank(), to}];
        mail.letters[mail.sent++] = std::move(letter);
        board_->world->news.notify_all();
        return {};
    }
    CommHandle start_recv(Tensor x, int from) override {
        const std::lock_guard lock(board_->world->mutex);
        board_->world->check();
        const int64_t number = board_->mail[{from, rank()}].asked++;
        return CommHandle(std::make_unique<Receive>(board_, rank(), x, from, number));
    }
    std::unique_ptr<Group> start_split(Job job, std::string name) override {
        std::shared_ptr<Op> op;
        {
            const std::lock_guard lock(board_->world->mutex);
            op = board_->post(rank(), std::move(job));
        }
        Collective(board_, rank(), op).wait();
        const std::shared_ptr<Board> board = op->boards[at(rank())];
        const std::lock_guard lock(board_->world->mutex);
        board->name = name;
        return std::make_unique<ThreadGroup>(board, std::move(name), op->new_rank[at(rank())]);
    }

  private:
    std::shared_ptr<Board> board_;
};

}  // namespace

std::vector<std::unique_ptr<Group>> thread_groups(int n) {
    VT_CHECK(n > 0, "{} ranks", n);
    const auto board = std::make_shared<Board>(std::make_shared<World>(), "world", n);
    std::vector<std::unique_ptr<Group>> out;
    for (int r = 0; r < n; ++r) out.push_back(std::make_unique<ThreadGroup>(board, "world", r));
    return out;
}

void run_ranks(int n, const std::function<void(Group&)>& body) {
    std::vector<std::unique_ptr<Group>> groups = thread_groups(n);
    std::mutex mutex;
    std::exception_ptr first, first_own;
    const auto failed = [&](ThreadGroup& group, Fault fault, const std::string& message) {
        {
            // What a rank throws because another one broke the world is not the cause.
            const bool own = group.broken_by() != message;
            const std::lock_guard lock(mutex);
            if (!first) first = std::current_exception();
            if (own && !first_own) first_own = std::current_exception();
        }
        group.abort(fault, fmt::format("rank {} failed: {}", group.rank(), message));
    };
    std::vector<std::thread> threads;
    for (int r = 0; r < n; ++r) {
        threads.emplace_back([&, mine = std::move(groups[at(r)])] {
            auto& group = static_cast<ThreadGroup&>(*mine);
            try {
                body(group);
            } catch (const Error& e) {
                failed(group, e.fault(), e.message());
            } catch (const std::exception& e) {
                failed(group, Fault::kSystem, e.what());
            } catch (...) {
                failed(group, Fault::kSystem, "unknown exception");
            }
        });
    }
    for (std::thread& t : threads) t.join();
    if (first_own) std::rethrow_exception(first_own);
    if (first) std::rethrow_exception(first);
}

}  // namespace vt
