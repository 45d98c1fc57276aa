// SPDX-License-Identifier: MIT
// Groups of processes that only send each other messages: what is in flight, how it advances, how
// an error reaches everyone. Floor 1.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <mutex>

#include "comm/host.h"
#include "comm/mpi.h"

namespace vt {

// Messages between the ranks of a world. Between two ranks, those of one tag arrive in order. A
// message in flight has an id (never 0) until test() has said that it is over. kSystem on failure.
class Wire {
  public:
    static constexpr int kAnyone = -1;
    virtual ~Wire() = default;
    [[nodiscard]] virtual int rank() const = 0;
    [[nodiscard]] virtual int size() const = 0;
    [[nodiscard]] virtual int max_tag() const = 0;
    [[nodiscard]] virtual int64_t send(const void* data, int bytes, int to, int tag) = 0;
    [[nodiscard]] virtual int64_t recv(void* data, int bytes, int from, int tag) = 0;
    /// True: it is over, and `source` (where given) sent it.
    [[nodiscard]] virtual bool test(int64_t id, int* source) = 0;
    /// A receive that is not wanted any more; test() says when its memory is free.
    virtual void cancel(int64_t id) = 0;
    /// Every rank has left; `clean` if no message is in flight.
    virtual void close(bool clean) = 0;
    /// Ends every process of the world.
    virtual void end_all(int exit_code) = 0;
};

// Tags: four per group. The first group's stand for the whole world's farewells too.
enum Tag : int { kHeader, kData, kLetterHeader, kLetterData, kTagsPerGroup };
inline constexpr int kNewsTag = 0;
inline constexpr int kFirstGroup = 1;

// What each rank tells each other before the data of a collective travel.
struct Header {
    Call call;
    int64_t count = 0;  // all_to_all: elements for the receiver of this header
    int64_t color = 0;
    int64_t key = 0;
    int64_t next_group = 0;
};

struct News {
    int64_t broken = 0;  // 0: the sender leaves
    int64_t fault = 0;
    std::array<char, 1008> why{};
};

// One message in flight, and the world rank at its other end.
struct Request {
    int64_t id = 0;
    int peer = 0;
    bool incoming = false;
};

struct Members {
    std::string name;
    int id = kFirstGroup;
    int rank = 0;
    std::vector<int> world;  // world rank of each group rank
    [[nodiscard]] int size() const { return narrow<int>(world.size()); }
};

class Engine;

// A call in flight. step() starts what can start, and is called again whenever its messages have
// arrived, until it says that it is done.
struct Operation {
    explicit Operation(std::shared_ptr<const Members> m) : members(std::move(m)) {}
    virtual ~Operation() = default;
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;
    virtual bool step(Engine& engine) = 0;
    [[nodiscard]] virtual std::string text() const = 0;

    std::shared_ptr<const Members> members;
    std::vector<Request> requests;
    bool done = false;
};

// Everything of MPI in this process: started, advanced, ended here. Not thread safe by itself.
class Engine {
  public:
    Engine(std::unique_ptr<Wire> wire, const MpiOptions& options);
    ~Engine();
    Engine(const Engine&) = delete;
    Engine& operator=(const Engine&) = delete;

    std::mutex mutex;
    int rank = 0;
    int size = 1;
    int64_t next_group = kFirstGroup + 1;
    int max_tag = 0;

    void check() const {
        if (broken_) raise(fault_, why_);
    }
    void abort(Fault fault, const std::string& why);
    /// Ops of one lane start one after the other, those of different lanes side by side.
    void add(int64_t lane, std::shared_ptr<Operation> op);
    void poll();
    /// Raises if the world is broken, or if op waits for a rank that has left.
    void check_waiting(const Operation& op);
    void drop(Operation& op);

    void send(Operation& op, const void* data, int64_t bytes, int to, Tag tag);
    void recv(Operation& op, void* data, int64_t bytes, int from, Tag tag);
    std::vector<char> take_scratch(int64_t bytes);
    void give_scratch(std::vector<char> scratch);

  private:
    void tell(const News& news);
    void listen();
    void hear();
    bool advance(Operation& op);
    void say_farewell();

    MpiOptions options_;
    std::unique_ptr<Wire> wire_;
    std::map<int64_t, std::deque<std::shared_ptr<Operation>>> lanes_;
    std::vector<std::shared_ptr<Operation>> dropped_;  // MPI may still write to their memory
    std::vector<std::vector<char>> scratch_;

    bool broken_ = false;
    Fault fault_ = Fault::kSystem;
    std::string why_;
    News incoming_;
    int64_t listening_ = 0;
    std::deque<News> outgoing_;
    std::vector<int64_t> telling_;
    std::vector<std::chrono::steady_clock::time_point>
        left_;  // when a rank's farewell came; 0 if it did not
    int num_left_ = 0;
};

/// The first group of a wire.
[[nodiscard]] std::unique_ptr<Group> message_world(std::unique_ptr<Wire> wire,
                                                   const MpiOptions& options);

}  // namespace vt
