// SPDX-License-Identifier: MIT
// Groups over messages: lists of ranks with tags of their own. Sums are made here, in group-rank
// order. Floor 1.
#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <thread>

#include "comm/messages.h"

namespace vt {

namespace {

size_t at(int i) {
    return static_cast<size_t>(i);
}

template <typename Byte>
Byte* element(const BasicTensor<Byte>& t, int64_t i) {
    using Char = std::conditional_t<std::is_const_v<Byte>, const char, char>;
    return t.data == nullptr ? nullptr : static_cast<Char*>(t.data) + i * size_of(t.dtype);
}

// Headers first: where all agree, the data follow.
class Collective final : public Operation {
  public:
    Collective(std::shared_ptr<const Members> m, Job job)
        : Operation(std::move(m)), job_(std::move(job)) {}
    bool step(Engine& engine) override;
    [[nodiscard]] std::string text() const override { return str(job_.call); }
    [[nodiscard]] const std::vector<Header>& headers() const { return got_; }

  private:
    enum class Phase { kStart, kHeaders, kPieces, kResult };

    void exchange_headers(Engine& engine);
    void compare_headers(Engine& engine) const;
    bool exchange_data(Engine& engine);
    void exchange_pieces(Engine& engine);
    void reduce_piece(Engine& engine);
    void exchange_results(Engine& engine);

    [[nodiscard]] int me() const { return members->rank; }
    [[nodiscard]] int64_t bytes(int64_t n) const { return n * size_of(job_.call.dtype); }
    // all_reduce: rank r sums elements [cut(r), cut(r + 1)) of x.
    [[nodiscard]] int64_t cut(int r) const {
        const int64_t n = job_.call.numel, q = n / members->size(), rest = n % members->size();
        return r * q + std::min<int64_t>(r, rest);
    }
    // [begin, end) of `in` that rank r sums
    [[nodiscard]] std::pair<int64_t, int64_t> piece(int r) const {
        if (job_.call.op == CommOp::kAllReduce) return {cut(r), cut(r + 1)};
        return {r * job_.call.numel, (r + 1) * job_.call.numel};
    }

    Job job_;
    Phase phase_ = Phase::kStart;
    std::vector<Header> sent_, got_;  // by group rank
    std::vector<char> scratch_;
};

bool Collective::step(Engine& engine) {
    switch (phase_) {
        case Phase::kStart:
            phase_ = Phase::kHeaders;
            exchange_headers(engine);
            return false;
        case Phase::kHeaders:
            compare_headers(engine);
            return exchange_data(engine);
        case Phase::kPieces:
            reduce_piece(engine);
            if (job_.call.op == CommOp::kReduceScatter) return true;
            phase_ = Phase::kResult;
            exchange_results(engine);
            return false;
        case Phase::kResult:
            break;
    }
    return true;
}

void Collective::exchange_headers(Engine& engine) {
    const int n = members->size();
    sent_.resize(at(n));
    got_.resize(at(n));
    for (int r = 0; r < n; ++r) {
        Header& h = sent_[at(r)];
        h = {job_.call, 0, job_.color, job_.key, engine.next_group};
        if (job_.call.op == CommOp::kAllToAll) {
            h.count = job_.in_parts[at(r) + 1] - job_.in_parts[at(r)];
        }
        if (r == me()) {
            got_[at(r)] = h;
        } else {
            engine.recv(*this, &got_[at(r)], sizeof(Header), r, kHeader);
            engine.send(*this, &h, sizeof(Header), r, kHeader);
        }
    }
}

void Collective::compare_headers(Engine& engine) const {
    std::string wrong;
    for (int r = 0; r < members->size() && wrong.empty(); ++r) {
        const Header& h = got_[at(r)];
        if (!(h.call == got_[0].call)) {
            wrong = mismatch(members->name, 0, got_[0].call, r, h.call);
        } else if (h.call.op == CommOp::kAllToAll) {
            const int64_t taken = job_.out_parts[at(r) + 1] - job_.out_parts[at(r)];
            if (h.count == taken) continue;
            wrong = fmt::format(
                "group \"{}\": all_to_all: rank {} gives {} elements to rank {}, "
                "which takes {}",
                members->name, r, h.count, me(), taken);
        }
    }
    if (wrong.empty()) return;
    engine.abort(Fault::kBug, wrong);
    engine.check();
}

bool Collective::exchange_data(Engine& engine) {
    const Call& call = job_.call;
    const int n = members->size();
    const auto to_myself = [&](int64_t to, int64_t from, int64_t count) {
        void* out = element(job_.out, to);
        const void* in = element(job_.in, from);
        if (count > 0 && out != in) std::memcpy(out, in, static_cast<size_t>(bytes(count)));
    };
    switch (call.op) {
        case CommOp::kAllReduce:
        case CommOp::kReduceScatter:
            phase_ = Phase::kPieces;
            exchange_pieces(engine);
            return false;
        case CommOp::kAllGather:
            for (int r = 0; r < n; ++r) {
                if (r == me()) continue;
                engine.recv(*this, element(job_.out, r * call.numel), bytes(call.numel), r, kData);
                engine.send(*this, job_.in.data, bytes(call.numel), r, kData);
            }
            to_myself(me() * call.numel, 0, call.numel);
            return true;
        case CommOp::kAllToAll:
            for (int r = 0; r < n; ++r) {
                const int64_t in = job_.in_parts[at(r)], given = job_.in_parts[at(r) + 1] - in;
                const int64_t out = job_.out_parts[at(r)], taken = job_.out_parts[at(r) + 1] - out;
                if (r == me()) {
                    to_myself(out, in, taken);
                    continue;
                }
                engine.recv(*this, element(job_.out, out), bytes(taken), r, kData);
                engine.send(*this, element(job_.in, in), bytes(given), r, kData);
            }
            return true;
        case CommOp::kBroadcast:
            for (int r = 0; r < n && me() == call.root; ++r) {
                if (r != me()) engine.send(*this, job_.in.data, bytes(call.numel), r, kData);
            }
            if (me() != call.root) {
                engine.recv(*this, job_.out.data, bytes(call.numel), call.root, kData);
            }
            return true;
        case CommOp::kBarrier:
        case CommOp::kSplit:
            break;
    }
    return true;
}

// My piece of everyone, in scratch by rank; my own stays where it is.
void Collective::exchange_pieces(Engine& engine) {
    const auto [begin, end] = piece(me());
    scratch_ = engine.take_scratch(bytes(end - begin) * members->size());
    for (int r = 0; r < members->size(); ++r) {
        if (r == me()) continue;
        engine.recv(*this, scratch_.data() + r * bytes(end - begin), bytes(end - begin), r, kData);
        const auto [b, e] = piece(r);
        engine.send(*this, element(job_.in, b), bytes(e - b), r, kData);
    }
}

void Collective::reduce_piece(Engine& engine) {
    const auto [begin, end] = piece(me());
    std::vector<const void*> inputs;
    for (int r = 0; r < members->size(); ++r) {
        inputs.push_back(scratch_.data() + r * bytes(end - begin));
    }
    inputs[at(me())] = element(job_.in, begin);
    const std::array<void*, 1> out{
        element(job_.out, job_.call.op == CommOp::kAllReduce ? begin : 0)};
    reduce_in_order(out, inputs, end - begin, job_.call.dtype, job_.call.reduce);
    engine.give_scratch(std::move(scratch_));
}

void Collective::exchange_results(Engine& engine) {
    const auto [begin, end] = piece(me());
    for (int r = 0; r < members->size(); ++r) {
        if (r == me()) continue;
        const auto [b, e] = piece(r);
        engine.recv(*this, element(job_.out, b), bytes(e - b), r, kData);
        engine.send(*this, element(job_.out, begin), bytes(end - begin), r, kData);
    }
}

// A letter: a header with its size and type, then its data.
class Letter final : public Operation {
  public:
    Letter(std::shared_ptr<const Members> m, Tensor x, bool incoming, int peer)
        : Operation(std::move(m)), x_(x), incoming_(incoming), peer_(peer) {
        header_.call = {CommOp::kBarrier, x.dtype, ReduceOp::kSum, 0, x.numel()};
    }
    [[nodiscard]] std::string text() const override {
        return incoming_ ? fmt::format("recv(from {})", peer_) : fmt::format("send(to {})", peer_);
    }
    bool step(Engine& engine) override {
        if (!incoming_) {
            engine.send(*this, &header_, sizeof(Header), peer_, kLetterHeader);
            engine.send(*this, x_.data, x_.bytes(), peer_, kLetterData);
            return true;
        }
        if (!asked_) {
            asked_ = true;
            engine.recv(*this, &header_, sizeof(Header), peer_, kLetterHeader);
            return false;
        }
        const Call& sent = header_.call;
        if (sent.dtype != x_.dtype || sent.numel != x_.numel()) {
            engine.abort(Fault::kBug,
                         fmt::format("group \"{}\": rank {} sent {} x {}, rank {} takes {} x {}",
                                     members->name, peer_, name_of(sent.dtype), sent.numel,
                                     members->rank, name_of(x_.dtype), x_.numel()));
            engine.check();
        }
        engine.recv(*this, x_.data, x_.bytes(), peer_, kLetterData);
        return true;
    }

  private:
    Tensor x_;
    bool incoming_;
    int peer_;
    bool asked_ = false;
    Header header_;
};

class Pending final : public CommHandle::Work {
  public:
    Pending(std::shared_ptr<Engine> engine, std::shared_ptr<Operation> op)
        : engine_(std::move(engine)), op_(std::move(op)), exceptions_(std::uncaught_exceptions()) {}
    // May run because of an exception: then it must not wait for other ranks.
    ~Pending() override {
        if (over_) return;
        try {
            if (std::uncaught_exceptions() > exceptions_) {
                const std::lock_guard lock(engine_->mutex);
                engine_->abort(Fault::kSystem,
                               fmt::format("group \"{}\": rank {} left a call of "
                                           "{} by an exception",
                                           op_->members->name, op_->members->rank, op_->text()));
                engine_->drop(*op_);
            } else {
                wait();
            }
        } catch (const std::exception&) {  // the world stays broken: the next call says it
            over_ = true;
        }
    }
    Pending(const Pending&) = delete;
    Pending& operator=(const Pending&) = delete;
    void wait() override {
        if (over_) return;
        for (int64_t turn = 0;; ++turn) {
            {
                const std::lock_guard lock(engine_->mutex);
                try {
                    engine_->poll();
                    over_ = op_->done && op_->requests.empty();
                    if (over_) return;
                    engine_->check_waiting(*op_);
                } catch (const Error& e) {
                    over_ = true;
                    engine_->abort(e.fault(), e.message());
                    engine_->drop(*op_);
                    throw;
                }
            }
            // Others may share the core: give it up soon, sleep later.
            if (turn < 1000) {
                std::this_thread::yield();
            } else {
                std::this_thread::sleep_for(std::chrono::microseconds(50));
            }
        }
    }

  private:
    std::shared_ptr<Engine> engine_;
    std::shared_ptr<Operation> op_;
    int exceptions_;
    bool over_ = false;
};

class MessageGroup final : public HostGroup {
  public:
    MessageGroup(std::shared_ptr<Engine> engine, std::shared_ptr<const Members> m)
        : HostGroup(m->name, m->rank, m->size()), engine_(std::move(engine)), members_(m) {}

  protected:
    void abort(Fault fault, const std::string& why) override {
        const std::lock_guard lock(engine_->mutex);
        engine_->abort(fault, why);
    }
    CommHandle start(Job job) override {
        return begin(0, std::make_shared<Collective>(members_, std::move(job)));
    }
    CommHandle start_send(CTensor x, int to) override {
        // Sends need no lane, but each header must leave beside its data: one lane per receiver.
        const Tensor seen(const_cast<void*>(x.data), x.shape, x.dtype);
        return begin(1 + 2 * to, std::make_shared<Letter>(members_, seen, false, to));
    }
    CommHandle start_recv(Tensor x, int from) override {
        return begin(2 + 2 * from, std::make_shared<Letter>(members_, x, true, from));
    }
    std::unique_ptr<Group> start_split(Job job, std::string name) override {
        const auto op = std::make_shared<Collective>(members_, std::move(job));
        begin(0, op).wait();
        std::vector<int64_t> colors, keys, distinct;
        int64_t first = 0;
        for (const Header& h : op->headers()) {
            colors.push_back(h.color);
            keys.push_back(h.key);
            first = std::max(first, h.next_group);
        }
        distinct = colors;
        std::sort(distinct.begin(), distinct.end());
        distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
        const int64_t mine = colors[at(rank())];
        const auto index =
            std::lower_bound(distinct.begin(), distinct.end(), mine) - distinct.begin();
        const std::vector<int> members = members_of_split(colors, keys, rank());
        auto m = std::make_shared<Members>();
        m->name = std::move(name);
        for (const int r : members) {
            if (r == rank()) m->rank = narrow<int>(m->world.size());
            m->world.push_back(members_->world[at(r)]);
        }
        const std::lock_guard lock(engine_->mutex);
        // Two ranks that share a group agree on its number, and have never used that number before.
        engine_->next_group =
            std::max(engine_->next_group, first + narrow<int64_t>(distinct.size()));
        if (engine_->next_group * kTagsPerGroup > engine_->max_tag) {
            raise(Fault::kSystem, fmt::format("more than {} groups: MPI has tags up to {}",
                                              engine_->max_tag / kTagsPerGroup, engine_->max_tag));
        }
        m->id = narrow<int>(first + index);
        return std::make_unique<MessageGroup>(engine_, std::move(m));
    }

  private:
    CommHandle begin(int64_t lane, const std::shared_ptr<Operation>& op) {
        const std::lock_guard lock(engine_->mutex);
        engine_->check();
        const int64_t lanes = 1 + 2 * int64_t{size()};
        VT_CHECK(lane < lanes, "lane {} of {}", lane, lanes);
        try {
            engine_->add((int64_t{members_->id} << 32) + lane, op);
        } catch (const Error& e) {
            engine_->abort(e.fault(), e.message());
            engine_->drop(*op);
            throw;
        }
        return CommHandle(std::make_unique<Pending>(engine_, op));
    }

    std::shared_ptr<Engine> engine_;
    std::shared_ptr<const Members> members_;
};

}  // namespace

std::unique_ptr<Group> message_world(std::unique_ptr<Wire> wire, const MpiOptions& options) {
    auto engine = std::make_shared<Engine>(std::move(wire), options);
    auto members = std::make_shared<Members>();
    members->name = "world";
    members->rank = engine->rank;
    for (int r = 0; r < engine->size; ++r) members->world.push_back(r);
    return std::make_unique<MessageGroup>(std::move(engine), std::move(members));
}

}  // namespace vt
