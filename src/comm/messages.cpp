// SPDX-License-Identifier: MIT
// How messages in flight advance, and how a failing rank tells the others. Floor 1.
#include "comm/messages.h"

#include <algorithm>
#include <exception>
#include <thread>

namespace vt {

namespace {

using Clock = std::chrono::steady_clock;

size_t at(int i) {
    return static_cast<size_t>(i);
}

}  // namespace

Engine::Engine(std::unique_ptr<Wire> wire, const MpiOptions& options)
    : options_(options), wire_(std::move(wire)) {
    VT_CHECK(0 < options.piece_bytes && options.piece_bytes <= (int64_t{1} << 30),
             "pieces of {} bytes", options.piece_bytes);
    rank = wire_->rank();
    size = wire_->size();
    max_tag = wire_->max_tag();
    left_.resize(at(size));
    listen();
}

Engine::~Engine() {
    try {
        say_farewell();
    } catch (const std::exception& e) {
        fmt::print(stderr, "vtrain: rank {}: {}\n", rank, e.what());
        wire_->end_all(static_cast<int>(Fault::kSystem));
    }
}

// No rank finalises before all have left. One that ends by an error does not wait for ever.
void Engine::say_farewell() {
    const bool failing = broken_ || std::uncaught_exceptions() > 0;
    const Clock::time_point start = Clock::now();
    tell({});
    while (num_left_ < size - 1 || !telling_.empty()) {
        hear();
        std::erase_if(telling_, [&](int64_t id) { return wire_->test(id, nullptr); });
        std::this_thread::sleep_for(std::chrono::microseconds(100));
        const std::chrono::duration<double> waited = Clock::now() - start;
        if (!failing || waited.count() < options_.leave_seconds) continue;
        fmt::print(stderr, "vtrain: rank {} failed; ending the {} ranks that have not ended\n",
                   rank, size - 1 - num_left_);
        wire_->end_all(static_cast<int>(broken_ ? fault_ : Fault::kSystem));
    }
    if (listening_ != 0) {
        wire_->cancel(listening_);
        while (!wire_->test(listening_, nullptr)) std::this_thread::yield();
    }
    wire_->close(!broken_);
}

void Engine::tell(const News& news) {
    outgoing_.push_back(news);
    for (int r = 0; r < size; ++r) {
        if (r == rank) continue;
        telling_.push_back(wire_->send(&outgoing_.back(), sizeof(News), r, kNewsTag));
    }
}

void Engine::listen() {
    if (size == 1) return;
    listening_ = wire_->recv(&incoming_, sizeof(News), Wire::kAnyone, kNewsTag);
}

void Engine::hear() {
    int source = 0;
    while (listening_ != 0 && wire_->test(listening_, &source)) {
        if (incoming_.broken != 0) {
            if (!broken_) {
                broken_ = true;
                fault_ = static_cast<Fault>(incoming_.fault);
                why_ = incoming_.why.data();
            }
        } else {
            left_[at(source)] = Clock::now();
            ++num_left_;
        }
        listen();
    }
}

void Engine::abort(Fault fault, const std::string& why) {
    if (broken_) return;
    broken_ = true;
    fault_ = fault;
    why_ = why;
    News news{.broken = 1, .fault = static_cast<int64_t>(fault), .why = {}};
    std::copy_n(why.begin(), std::min(why.size(), news.why.size() - 1), news.why.begin());
    tell(news);
}

void Engine::add(int64_t lane, std::shared_ptr<Operation> op) {
    lanes_[lane].push_back(std::move(op));
    poll();
}

void Engine::poll() {
    hear();
    if (broken_) return;
    for (auto it = lanes_.begin(); it != lanes_.end();) {
        auto& lane = it->second;
        while (!lane.empty() && advance(*lane.front())) lane.pop_front();
        it = lane.empty() ? lanes_.erase(it) : std::next(it);
    }
}

bool Engine::advance(Operation& op) {
    std::erase_if(op.requests, [&](const Request& r) { return wire_->test(r.id, nullptr); });
    while (op.requests.empty() && !op.done) op.done = op.step(*this);
    return op.done && op.requests.empty();
}

void Engine::check_waiting(const Operation& op) {
    check();
    // Its last messages may still be under way when a farewell arrives.
    constexpr auto kGrace = std::chrono::seconds(1);
    for (const Request& r : op.requests) {
        const Clock::time_point when = left_[at(r.peer)];
        if (when == Clock::time_point{} || Clock::now() - when < kGrace) continue;
        const Members& m = *op.members;
        const auto who = std::find(m.world.begin(), m.world.end(), r.peer) - m.world.begin();
        abort(Fault::kSystem, fmt::format("group \"{}\": rank {} left while rank {} waits in {}",
                                          m.name, who, m.rank, op.text()));
        check();
    }
}

// The caller's memory may go after this: nothing more may be received into it.
void Engine::drop(Operation& op) {
    for (auto& [key, lane] : lanes_) {
        const auto found =
            std::find_if(lane.begin(), lane.end(), [&](const auto& p) { return p.get() == &op; });
        if (found == lane.end()) continue;
        dropped_.push_back(*found);
        lane.erase(found);
        break;
    }
    const Clock::time_point start = Clock::now();
    for (Request& r : op.requests) {
        if (!r.incoming) continue;
        wire_->cancel(r.id);
        while (!wire_->test(r.id, nullptr) && Clock::now() - start < std::chrono::seconds(1)) {
            std::this_thread::yield();
        }
    }
}

void Engine::send(Operation& op, const void* data, int64_t bytes, int to, Tag tag) {
    const int peer = op.members->world[at(to)];
    for (int64_t begin = 0; begin < bytes; begin += options_.piece_bytes) {
        const int piece = narrow<int>(std::min(options_.piece_bytes, bytes - begin));
        op.requests.push_back({wire_->send(static_cast<const char*>(data) + begin, piece, peer,
                                           op.members->id * kTagsPerGroup + tag),
                               peer, false});
    }
}

void Engine::recv(Operation& op, void* data, int64_t bytes, int from, Tag tag) {
    const int peer = op.members->world[at(from)];
    for (int64_t begin = 0; begin < bytes; begin += options_.piece_bytes) {
        const int piece = narrow<int>(std::min(options_.piece_bytes, bytes - begin));
        op.requests.push_back({wire_->recv(static_cast<char*>(data) + begin, piece, peer,
                                           op.members->id * kTagsPerGroup + tag),
                               peer, true});
    }
}

std::vector<char> Engine::take_scratch(int64_t bytes) {
    std::vector<char> out;
    if (!scratch_.empty()) {
        out = std::move(scratch_.back());
        scratch_.pop_back();
    }
    if (narrow<int64_t>(out.size()) < bytes) out.resize(narrow<size_t>(bytes));
    return out;
}

void Engine::give_scratch(std::vector<char> scratch) {
    if (!scratch.empty()) scratch_.push_back(std::move(scratch));
}

}  // namespace vt
